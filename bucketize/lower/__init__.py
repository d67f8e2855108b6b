"""From a function as dispatched to one whose bindings are kernels' workloads."""
