"""The names of what packing adds: those of a packed function, its symbols and its parameters."""

from __future__ import annotations

TOKENS, ROWS = "tokens", "rows"
"""The symbols: all tokens, and the rows that they are of."""
ENDS, OWNER, POSITION = "ends", "owner", "position"
"""The parameters: where rows end, of each token its row, and its place there."""


def ragged_name(function: str) -> str:
    """The name of the packed form of a function."""
    return f"{function}[ragged]"
