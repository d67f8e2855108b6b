"""What a call does and takes: explained, predicted, profiled, beside what the machine could do."""
