"""Rows that a log cites, read back."""

from __future__ import annotations


def parse_cited(text: str) -> list[tuple[str, int]]:
    """The inverse of `bucketize.log.cell.cited`; a ValueError where it is none."""
    found = []
    for run, _, numbers in (part.rpartition(":") for part in text.split(";") if part):
        for ends in numbers.split(","):
            lo, _, hi = ends.partition("..")
            found += [(run, number) for number in range(int(lo), int(hi or lo) + 1)]
    return found
