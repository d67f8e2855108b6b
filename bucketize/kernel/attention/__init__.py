"""Attention as one kernel."""
