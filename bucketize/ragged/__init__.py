"""Rows of unequal lengths as one: the proof that they keep apart, and the packed function."""
