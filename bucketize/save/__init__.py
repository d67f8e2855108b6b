"""Programs in files: written, and read back."""
