"""Templates of loop source: whatever vector code does not take."""
