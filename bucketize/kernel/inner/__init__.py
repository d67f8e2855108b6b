"""Convolutions of few channels out, by inner products."""
