"""Operators that slide a window over images."""
