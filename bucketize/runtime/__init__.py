"""Running compiled modules: memory, segments, the graph executor and the VM."""
