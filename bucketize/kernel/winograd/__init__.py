"""Convolutions by minimal filtering (Winograd)."""
