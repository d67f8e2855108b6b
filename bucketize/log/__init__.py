"""The log of measurements: rows, how they are written and read, and what they decide."""
