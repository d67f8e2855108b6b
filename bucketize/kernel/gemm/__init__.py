"""Templates made of one register tile: matrix products, convolutions, depthwise convolutions."""
