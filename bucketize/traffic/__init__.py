"""Traffic: how many requests of which sizes there are; counted, read, written, split."""
