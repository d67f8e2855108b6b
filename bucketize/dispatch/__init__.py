"""Graph dispatching: a clone per bucket behind a tree of decisions."""
