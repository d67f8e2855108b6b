"""Measurements: nothing here is a test, and nothing in the package imports it."""
