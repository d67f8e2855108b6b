"""Many requests at once: which of them share a call, and their results apart again."""
