"""Templates made of one register tile: matrix products and convolutions."""
