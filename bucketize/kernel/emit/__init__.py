"""The two writers of kernels, LLVM vectors and loop text, and the functions that both know."""
