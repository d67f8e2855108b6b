"""Rows as one kernel: softmax, norms, reductions of the last axis."""
