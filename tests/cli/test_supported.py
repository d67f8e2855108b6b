"""docs/supported.md holds what the code supports."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from bucketize.cli.group import main
from bucketize.cli.operator import operators
from bucketize.kernel.emit.expression import DTYPES
from bucketize.onnx.load import OPSETS
from bucketize.onnx.node import CONVERTERS
from bucketize.types.number import kind_of

PAGE = Path(__file__).parents[2] / "docs" / "supported.md"
MARKED = re.compile(r"(?<=<!-- from the code -->\n).*(?=<!-- end -->)", re.DOTALL)


def supported() -> str:
    """The operators, as `bucketize ops` lists them, and the dtypes of kernels."""
    known = [asdict(o) for o in operators()]
    rows = [f"| {' | '.join(map(str, row.values()))} |" for row in known]
    dtypes = sorted(DTYPES, key=lambda d: (kind_of(d), d.itemsize, d.name))
    names = dict.fromkeys(d.name for d in dtypes)
    return "\n".join(
        [
            f"Opsets {OPSETS[0]} to {OPSETS[-1]}; {len(known)} operators:\n",
            f"| {' | '.join(known[0])} |",
            "|---" * len(known[0]) + "|",
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


def test_every_operator_that_is_read_has_a_row() -> None:
    rows = operators()
    assert sorted(o.operator for o in rows) == sorted(
        f"{domain}.{name}" if domain else name for domain, name in CONVERTERS
    )
    assert all(o.dtypes for o in rows)


@pytest.mark.parametrize(
    ("operator", "facts"),
    [
        ("Relu", ["bfloat16, floats, ints", "kernels", "sizes", "yes"]),
        ("ReduceMean", [None, "kernels; several axes of a run: numpy", "sizes", "yes"]),
        ("Pad", [None, "kernels; operands of a run: numpy", "sizes", "some axes"]),
        ("NonZero", ["bool, bfloat16, floats, ints, uints", "kernels", "values", "yes"]),
        ("Unique", [None, "kernels", "values", "no"]),
        ("BitCast", [None, "numpy", "sizes", "yes"]),
        ("Concat", [None, "kernels", "sizes", "some axes"]),
        ("If", ["bool", "kernels", "sizes", "no"]),
        ("Reshape", [None, "kernels", "sizes", "some axes"]),
        ("BitShift", ["ints, uints", "kernels", "sizes", "yes"]),
        ("RotaryEmbedding", ["bfloat16, float16, float32", None, "sizes", "some axes"]),
    ],
)
def test_what_is_known_of_an_operator(operator: str, facts: list[str | None]) -> None:
    (row,) = [o for o in operators() if o.operator == operator]
    got = [row.dtypes, row.runs, row.extents, row.pads]
    assert [g for g, f in zip(got, facts, strict=True) if f] == [f for f in facts if f]


def test_the_command() -> None:
    def told(*args: str) -> str:
        return CliRunner().invoke(main, ["ops", *args]).output

    lines = told().splitlines()
    assert len(lines) == len(CONVERTERS) + 1
    assert lines[0].split() == ["operator", "since", "dtypes", "runs", "extents", "pads"]
    rows = json.loads(told("topk", "Reduce*", "--json"))
    assert {row["operator"] for row in rows} >= {"TopK", "ReduceMean", "ReduceL2"}
    assert all(row["operator"].startswith(("TopK", "Reduce")) for row in rows)
    assert told("TopK").splitlines()[1].startswith("TopK ")
    assert json.loads(told("--json")) == [asdict(o) for o in operators()]
    unknown = CliRunner().invoke(main, ["ops", "Sofmax"])
    assert unknown.exit_code == 2
    assert "no operator named 'Sofmax'; known: Abs, " in unknown.output + unknown.stderr
    assert "did you mean 'Softmax'?" in unknown.output + unknown.stderr
