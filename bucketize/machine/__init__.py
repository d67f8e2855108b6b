"""The machine that kernels are made for, and what was measured of it."""
