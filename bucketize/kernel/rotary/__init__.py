"""Rotary embeddings as one kernel."""
