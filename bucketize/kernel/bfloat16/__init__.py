"""Products and convolutions of bfloat16 by instructions that multiply pairs of them."""
