"""Tables: whole in a pipe, fitted to a terminal without a cut in a number or a break in a word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketize.cli import table as tables
from bucketize.cli.table import table
from bucketize.table import Block, as_cell, folded, of_cell, several

ROWS = [
    {
        "host": "Intel(R) Xeon(R) Platinum 8573C",
        "function": f"main[B=2..3,S={size}..{2 * size - 1}]",
        "op": op,
        "latency_s": size / 3,
        "tried": 64,
        "schedule": f"kc=0 mr={size} nr=32 threads=1 ahead=4 copy=no",
    }
    for size, op in ((16, "matmul"), (128, "softmax"))
]
FORMATS = {"latency_s": "{:.3f}".format}


def test_what_has_lost_its_beginning_is_folded_and_keeps_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "terminal_width", lambda: 24)
    ops = ("MatMul +1", "Gemm")
    shown = table([{"node": f"…encoder/layer/{op}", "ms": 10.0**i} for i, op in enumerate(ops)])
    assert shown.splitlines()[1:] == [
        "…encoder/layer/MatMu   1",
        "l +1",
        "…encoder/layer/Gemm   10",
    ]


@pytest.fixture(params=[24, 50, 80, 120])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(tables, "terminal_width", lambda: request.param)
    return int(request.param)


def plain(text: str) -> list[str]:
    assert "\x1b" not in text
    return text.splitlines()


def test_a_pipe_gets_all_of_it() -> None:
    head, first, _ = table(ROWS, FORMATS).splitlines()
    assert head.split() == list(ROWS[0])
    assert first.endswith("  kc=0 mr=16 nr=32 threads=1 ahead=4 copy=no")
    assert len(head) < len(first)
    assert len(first) > 120


def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    lines = plain(table(ROWS, FORMATS))
    assert max(map(len, lines)) <= max(width, len("Platinum") + 2)
    assert "host: Intel(R)" in "\n".join(lines)


def test_numbers_are_whole_or_left_out_with_a_note(width: int) -> None:
    lines = plain(table(ROWS, FORMATS))
    assert ("5.333" in lines[1]) == (width >= 50)
    assert any(line.startswith("left out for want of") for line in lines) == (width < 50)
    for line in lines[1:3]:
        assert set(re.findall(r"\d+\.\d+", re.sub(r"main\S*", "", line))) <= {"5.333", "42.667"}


def test_the_widest_column_is_folded_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "terminal_width", lambda: 80)
    _, first, rest, _, _, *notes = plain(table(ROWS, FORMATS))
    begin = "main[B=2..3,S=16..31]    matmul       5.333  "
    assert first == f"{begin}kc=0 mr=16 nr=32 threads=1 ahead=4"
    assert rest == " " * len(begin) + "copy=no"
    assert notes == ["host: Intel(R) Xeon(R) Platinum 8573C", "tried: 64"]


def test_a_row_that_is_too_wide_becomes_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "terminal_width", lambda: 50)
    lines = plain(table(ROWS[:1], FORMATS))
    assert "schedule: kc=0 mr=16 nr=32 threads=1 ahead=4" in lines
    assert "  copy=no" in lines


def test_a_table_that_fits_is_the_same_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"name": "[red]a[/red] :smile:", "n": 1, "x": None}, {"name": "b", "n": 12, "x": None}]
    whole = table(rows)
    monkeypatch.setattr(tables, "terminal_width", lambda: 80)
    assert plain(table(rows)) == whole.splitlines()
    assert whole.splitlines()[1] == "[red]a[/red] :smile:   1  -"


def test_a_column_is_left_out_before_it_is_folded_to_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"function": f"main[N={i}]", "layer": "features.0.conv.weight" + "x" * i, "latency_s": 0.25}
        | {"explanation of it": "because of that", "schedule": f"ahead={i} copy=no mr=12"}
        for i in range(2)
    ]
    for width in range(40, 90):
        monkeypatch.setattr(tables, "terminal_width", lambda width=width: width)
        head, *_ = plain(table(rows))
        first, *texts = re.findall(r"(?<!\S)(?!latency_s)\S+(?: \S+)* {2,}", head)
        assert first == "function   "
        assert all(len(text) >= 12 + tables.GAP for text in texts)


WIDE = [{"node": "行列積" * 3, "n": 1}, {"node": "a\nb\x1b[1m", "n": 22}]


def test_wide_characters_take_two_columns_and_control_characters_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = ["node                 n", "行列積行列積行列積   1", "a\\nb\\x1b[1m         22"]
    assert table(WIDE).splitlines() == expected
    monkeypatch.setattr(tables, "terminal_width", lambda: 80)
    assert plain(table(WIDE)) == expected


def test_no_rows_are_nothing() -> None:
    assert table([]) == "nothing"


def test_the_environment_may_set_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tables.terminal_width() is None  # a test's stdout is no terminal
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "101")
    assert tables.terminal_width() == 101


def test_fractions_have_the_digits_that_tell_something() -> None:
    assert table([{"x": 1.0989772022523796, "n": 123456}]).split() == ["x", "n", "1.099", "123456"]


def test_lines_break_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "    N in [1, 64]: 1 2..3 4..7 8..15 16..31"
    assert tables.fitting(line) == line
    monkeypatch.setattr(tables, "terminal_width", lambda: 30)
    assert tables.fitting(line).splitlines() == [
        "    N in [1, 64]: 1 2..3 4..7",
        "      8..15 16..31",
    ]


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 6))
def test_folded_rows_unfold(rows: list[int], least: int) -> None:
    blocks = list(folded(rows, least))
    whole = [r for at, n, times in blocks for _ in range(times) for r in rows[at : at + n]]
    assert whole == rows
    assert all(block.saved >= least for block in blocks if block.times > 1)


def test_one_of_a_thing_is_no_more_than_one() -> None:
    assert [several(n, "worker") for n in range(3)] == ["0 workers", "1 worker", "2 workers"]


def test_the_longest_repetition_is_folded() -> None:
    layer = ["norm", "product", "product", "product", "attention"]
    assert list(folded(["embed", *layer * 6, "head"])) == [
        Block(0, 1, 1),
        Block(1, 5, 6),
        Block(31, 1, 1),
    ]
    assert list(folded(["a", "a", "a"])) == [Block(i, 1, 1) for i in range(3)]  # little is saved


def test_rows_are_read_as_often_as_there_are_pairs_of_them() -> None:
    read = 0

    class Rows(list[str]):
        def __getitem__(self, at: Any) -> Any:
            nonlocal read
            read += len(range(len(self))[at]) if isinstance(at, slice) else 1
            return super().__getitem__(at)

    layer = ["matmul", "add", "matmul", "softmax", "matmul", "mul"]
    rows = Rows(op for i in range(30) for op in (*layer, f"op{i}"))  # no layer comes again
    assert len(list(folded(rows))) == len(rows)
    assert read < 2 * len(rows) ** 2


def test_numbers_of_which_some_are_missing_stand_to_the_right() -> None:
    assert table([{"us": 1.5}, {"us": None}, {"us": 10.5}]).splitlines() == [
        "  us",
        " 1.5",
        "   -",
        "10.5",
    ]


CELLS = {
    "=HYPERLINK(x)": "'=HYPERLINK(x)",
    "+1+cmd|' /C calc'!A0": "'+1+cmd|' /C calc'!A0",
    "-2+3+cmd": "'-2+3+cmd",
    "@SUM(1)": "'@SUM(1)",
    "\t=1": "'\t=1",
    "'=1+A1": "''=1+A1",
    "-inf": "-inf",
    "-1.5e-07": "-1.5e-07",
    "+3": "+3",
    "-,8x8": "-,8x8",
    "-": "-",
    "'quoted'": "'quoted'",
    "a=b": "a=b",
    "": "",
}


@pytest.mark.parametrize(("text", "cell"), CELLS.items())
def test_a_cell_is_nothing_that_a_spreadsheet_computes(text: str, cell: str) -> None:
    assert as_cell(text) == cell
    assert of_cell(cell) == text


def test_a_written_frame_computes_nothing(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "name": ["=1+1", "layer", None],
            "time": [-1.5, 2.0, float("nan")],
            "shape": [(1, 2), "-", "@x"],
            "n": [-1, 2, 3],
            "self": ["+a", "-2e5", ""],
        }
    )
    tables.write_csv(frame, tmp_path / "f.csv")
    assert (tmp_path / "f.csv").read_text() == (
        "name,time,shape,n,self\n'=1+1,-1.5,\"(1, 2)\",-1,'+a\nlayer,2.0,-,2,-2e5\n,,'@x,3,\n"
    )
