"""Kernels: templates that write them, vector code, build and cache."""
