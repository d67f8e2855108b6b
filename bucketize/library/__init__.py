"""Libraries of C: a compiled program with its weights as a shared object, and its header."""
