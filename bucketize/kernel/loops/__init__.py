"""Templates of loop source: everything that is no matrix product."""
