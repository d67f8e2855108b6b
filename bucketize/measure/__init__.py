"""Measuring: kernels and clones timed in processes of their own, here or on other machines."""
