"""Operators told by tensors what their static twins are told by attributes."""
