"""docs/supported.md holds what the code supports."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import bucketize.onnx  # noqa: F401  fills the table of converters
from bucketize.kernel.loops.loop import DTYPES
from bucketize.onnx.load import OPSETS
from bucketize.onnx.node import CONVERTERS
from bucketize.onnx.standard import first_version

PAGE = Path(__file__).parent.parent / "docs" / "supported.md"
MARKED = re.compile(r"(?<=<!-- from the code -->\n).*(?=<!-- end -->)", re.DOTALL)


def supported() -> str:
    """The operators by the opset that they are read from, and the dtypes of kernels."""
    by_opset: dict[int, list[str]] = defaultdict(list)
    for (domain, op_type), versions in sorted(CONVERTERS.items()):
        name = f"{domain}.{op_type}" if domain else op_type
        by_opset[max(min(versions), first_version(domain, op_type))].append(name)
    rows = [f"| {since} | {', '.join(names)} |" for since, names in sorted(by_opset.items())]
    dtypes = sorted((np.dtype(c) for c in DTYPES), key=lambda d: (d.kind, d.itemsize))
    names = dict.fromkeys(d.name for d in dtypes)
    return "\n".join(
        [
            f"Opsets {OPSETS[0]} to {OPSETS[-1]}; {len(CONVERTERS)} operators:\n",
            "| since opset | operators |",
            "|---|---|",
            *rows,
            f"\nDtypes with kernels: {', '.join(names)}.\n",
        ]
    )


def test_the_page_is_what_the_code_says(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text()
    if request.config.getoption("--update-golden"):
        PAGE.write_text(MARKED.sub(lambda _: supported(), page))
    (found,) = MARKED.findall(PAGE.read_text())
    assert found == supported(), "accept the change with: pytest --update-golden"
