"""Transforms: `Module -> Module`, one file each; their order is a list."""
