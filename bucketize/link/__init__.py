"""Linking: a program gets plans, kernels and packed constants, and becomes an image."""
