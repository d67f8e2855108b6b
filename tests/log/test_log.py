"""The tuning log: what is written is read back, whatever happened to the file in between."""

from __future__ import annotations

import codecs
import csv
import dataclasses
import math
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from citing import parse_cited
from hypothesis import given
from hypothesis import strategies as st

from bucketize.errors import LogError
from bucketize.log.cell import cited
from bucketize.log.environment import here
from bucketize.log.log import BLOCK_BYTES, LogWarning, Tail, append, rows, select, table
from bucketize.log.maintain import merge
from bucketize.log.trial import ADDED, COLUMNS, SCHEMA_VERSION, Trial, schedule_hash, schedule_json


def trial(number: int = 0, **changes: object) -> Trial:
    schedule = {"mr": 6, "order": "nk"}
    values: dict[str, object] = {
        **dataclasses.asdict(here()),
        "run_id": "r",
        "trial": number,
        "timestamp": "2024-01-01T00:00:00+00:00",
        "threads": 1,
        "model": "mlp",
        "function": "main",
        "bucket": "N=1;H=32..63",
        "shape": "1x784,784x1024",
        "weight": 1.0,
        "op": "matmul",
        "workload": "w",
        "schedule": schedule_json(schedule),
        "schedule_hash": schedule_hash(schedule),
        "source": "default",
        "status": "ok",
        "error_kind": "none",
        "error": "",
        "latency_median_s": 1e-4,
    }
    return Trial(**{**values, **changes})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "new" / "log.csv"


def test_rows_come_back_typed_and_in_order(log: Path) -> None:
    trials = [trial(0), trial(1, status="failed", error_kind="crash", latency_median_s=None)]
    for one in trials:
        append(log, one)
    assert rows(log) == trials
    assert log.read_text().startswith("schema_version,run_id,trial,timestamp,bucketize_version,")


def test_columns_are_those_of_the_design() -> None:
    assert len(COLUMNS) == len(dataclasses.fields(Trial)) == 62
    assert COLUMNS[13:20] == (
        "threads", "model", "function", "bucket", "shape", "weight", "op",
    )  # fmt: skip


@given(
    error=st.text(),
    latency=st.none() | st.floats(0, exclude_min=True, allow_infinity=False),
    number=st.integers(-(2**63), 2**63 - 1),
)
def test_any_text_and_number_survive(
    tmp_path_factory: pytest.TempPathFactory, error: str, latency: float | None, number: int
) -> None:
    log = tmp_path_factory.mktemp("log") / "log.csv"
    append(log, trial(number, error=error, latency_median_s=latency))
    append(log, trial(0))
    first, second = rows(log)
    assert (first.trial, first.latency_median_s) == (number, latency)
    if error.isprintable():
        assert first.error == error
    assert second == trial()


@pytest.mark.parametrize("cut", [1, 2, 9, 40, 150, 10_000])
def test_a_torn_last_line_is_reported_skipped_and_removed(log: Path, cut: int) -> None:
    append(log, trial(0))
    whole = log.read_bytes()
    append(log, trial(1, max_rel_err=1.25e-07, error='said "no", twice'))
    row = len(log.read_bytes()) - len(whole)
    log.write_bytes(log.read_bytes()[: -min(cut, row - 1)])
    with pytest.warns(LogWarning, match=r"skipped 1 torn line\(s\): 3"):
        assert rows(log) == [trial(0)]
    with pytest.warns(LogWarning, match="removed a torn last line: '4"):
        append(log, trial(2))
    assert rows(log) == [trial(0), trial(2)]


def test_a_long_torn_tail_takes_no_row_with_it(log: Path) -> None:
    append(log, trial(0))
    with log.open("a") as file:
        file.write("x" * (2 * BLOCK_BYTES + 5))
    with pytest.warns(LogWarning, match="removed a torn last line: 'xxx"):
        append(log, trial(1))
    assert rows(log) == [trial(0), trial(1)]


def test_a_torn_line_in_the_middle_takes_no_other_with_it(log: Path) -> None:
    append(log, trial(0))
    with log.open("a") as file:
        file.write('1,r,1,"torn in a quo\n1,r\n')
    append(log, trial(2))
    with pytest.warns(LogWarning, match=r"skipped 2 torn line\(s\): 3, 4$") as told:
        assert rows(log) == [trial(0), trial(2)]
    assert told[0].filename == __file__, "the line that asked is the one shown"


def test_the_first_of_many_torn_lines_are_named(log: Path) -> None:
    append(log, trial(0))
    with log.open("a") as file:
        file.write("1,r\n" * 900)
    with pytest.warns(LogWarning, match=r"skipped 900 torn line\(s\): 3, 4, 5, 6, 7, \.\.\.$"):
        assert rows(log) == [trial(0)]


def test_a_number_that_is_none_counts_as_torn(log: Path) -> None:
    append(log, trial(0, repeats=12345))
    append(log, trial(1))
    log.write_text(log.read_text().replace("12345", "12x45"))
    with pytest.warns(LogWarning, match=r"torn line\(s\): 2"):
        assert rows(log) == [trial(1)]


@pytest.mark.parametrize(
    ("error", "kept"),
    [("one\r\ntwo\n\nthree", "one two three"), ("half \udcff a pair", r"half \udcff a pair")],
)
def test_what_a_line_of_text_cannot_hold_is_replaced(log: Path, error: str, kept: str) -> None:
    append(log, trial(0, error=error))
    assert [row.error for row in rows(log)] == [kept]


def test_a_mark_of_utf_8_before_the_header_is_no_column(log: Path) -> None:
    append(log, trial(0))
    log.write_bytes(codecs.BOM_UTF8 + log.read_bytes())
    append(log, trial(1))
    assert rows(log) == [trial(0), trial(1)]


def test_two_machines_of_a_kind_measure_in_one_environment() -> None:
    """Calibrations never agree to the digit."""
    assert replace(here(), speed="ghz=1") == replace(here(), speed="ghz=2")
    assert here() != replace(here(), host_cores=999)


def test_a_quote_amid_a_cell_counts_as_torn(log: Path) -> None:
    append(log, trial(0, op="matmul"))
    append(log, trial(1))
    log.write_text(log.read_text().replace(",matmul,", ',"mat"mul,', 1))
    with pytest.warns(LogWarning, match=r"torn line\(s\): 2"):
        assert rows(log) == [trial(1)]


def test_bytes_that_are_no_text_are_read_as_such(log: Path) -> None:
    append(log, trial(0, model="MODEL"))
    log.write_bytes(log.read_bytes().replace(b"MODEL", b"\xff"))
    assert [row.model for row in rows(log)] == ["\ufffd"]
    log.write_bytes(log.read_bytes() + b"2,r\xff")
    with pytest.warns(LogWarning, match="removed a torn last line: '2,r\ufffd'"):
        append(log, trial(2))
    log.write_bytes(b"\xff" + log.read_bytes())
    for use in (lambda: rows(log), lambda: append(log, trial())):
        with pytest.raises(LogError, match="its header: \ufffdschema_version,run_id"):
            use()
    log.write_bytes(b"\xff")
    with pytest.raises(LogError, match="is no tuning log: its first line is no text, a log's"):
        append(log, trial())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schedule": "[6]"}, r"schedule is '\[6\]', expected a JSON object"),
        ({"schedule": '{"mr": 6'}, "expected a JSON object"),
        ({"schedule": '{"mr": null}'}, "expected a JSON object of integers and words"),
        ({"latency_median_s": -1e-4}, "latency_median_s is -0.0001, expected a number above 0"),
        ({"latency_median_s": math.nan}, "latency_median_s is nan"),
        ({"baseline_s": -1.0}, "baseline_s is -1.0"),
        ({"ratio_low": 0.0}, "ratio_low is 0.0"),
        ({"ratio_high": -1.0}, "ratio_high is -1.0"),
        ({"weight": 0.0}, "weight is 0.0"),
        ({"weight": -2.0}, "weight is -2.0"),
        ({"shape": "1xjunk"}, "shape is '1xjunk', expected sizes such as"),
        ({"shape": "-3x4"}, "shape is '-3x4'"),
        ({"template": "matmull"}, "template is 'matmull', and no template has this name"),
        ({"threads": 10**20}, "threads is 100000000000000000000, more than 64 bits hold"),
        ({"repeats": -(10**20)}, "repeats is -100000000000000000000, more than"),
        ({"trial": 2**63}, "trial is 9223372036854775808"),
        ({"flops": -1.0}, "flops is -1.0, expected a number from 0 on"),
        ({"bytes": math.inf}, "bytes is inf, expected a number from 0"),
        ({"bytes": math.nan}, "bytes is nan"),
        ({"status": "fai"}, "status is 'fai', expected one of ok, failed"),
        ({"status": ""}, "status is '', expected one of ok"),
        ({"source": "defau1t"}, "source is 'defau1t', expected one of default, random, grid"),
        ({"error_kind": "crush"}, "error_kind is 'crush', expected one of none, invalid"),
        ({"level": "kernal"}, "level is 'kernal', expected one of kernel, place, clone"),
        ({"error_kind": "crash"}, "status and error_kind are 'ok' and 'crash', of which one alone"),
        ({"status": "failed"}, "status and error_kind are 'failed' and 'none', of which one"),
        (
            {"status": "failed", "error_kind": "crash"},
            "status and latency_median_s are 'failed' and 0.0001, expected none",
        ),
        ({"build": "compile"}, "build is 'compile', expected one of '', compiled, cached"),
        ({"seed": 2**63}, "seed is 9223372036854775808, more than 64 bits hold"),
        ({"expected_ratio": 0.0}, "expected_ratio is 0.0, expected a number above 0"),
        ({"expected_gain": -1.0}, "expected_gain is -1.0, expected a number from 0 on"),
        ({"load": math.nan}, "load is nan"),
        ({"packed_bytes": -1.0}, "packed_bytes is -1.0"),
        ({"graph_bytes": 1e19}, r"graph_bytes is 1e\+19, expected a number from 0 on, of 64 bits"),
        ({"graph_bytes": math.nan}, "graph_bytes is nan, expected a number from 0 on"),
        ({"graph_bytes": math.inf}, "graph_bytes is inf"),
        ({"latency_q1_s": -1.0}, "latency_q1_s is -1.0"),
        ({"baseline_q3_s": 0.0}, "baseline_q3_s is 0.0"),
        ({"rests_on": "r:1..x"}, r"rests_on is 'r:1\.\.x', expected rows such as 1f00c0ffee00:3"),
        ({"replaces": "7"}, "replaces is '7', expected rows such as"),
        ({"timestamp": "yesterday"}, "timestamp is 'yesterday', expected a time such as 2026-"),
    ],
)
def test_a_row_that_cannot_count_is_left_out(
    log: Path, changes: dict[str, object], reason: str
) -> None:
    for one in (trial(0), trial(1, **changes), trial(2), trial(3, weight=-9.0)):
        append(log, one)
    with pytest.warns(
        LogWarning, match=rf"left out 2 bad row\(s\), the first in line 3: .*{reason}"
    ):
        assert rows(log, {"matmul"}) == [trial(0), trial(2)]


@pytest.fixture
def held(log: Path) -> Iterator[int]:
    """The log's lock, held by another process, whose number this is."""
    log.parent.mkdir()
    code = f"import filelock; lock = filelock.FileLock({str(log) + '.lock'!r}); lock.acquire()"
    holder = subprocess.Popen(
        [sys.executable, "-c", f"{code}; print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    yield holder.pid
    holder.communicate(b"\n")


def test_where_no_lock_can_be_made_nobody_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may do all in /proc but make a file, of which the system says that it is not there."""
    monkeypatch.setattr("bucketize.lock.PATIENCE_S", 0.1)
    with pytest.raises(LogError, match="no file can be made in /proc"):
        append("/proc/log.csv", trial())


def test_who_waits_for_the_lock_says_so_and_for_whom(
    log: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[append.__module__]
    monkeypatch.setattr("bucketize.lock.PATIENCE_S", 0.1)
    monkeypatch.setattr(module, "LOCK_TIMEOUT_S", 0.3)
    with (
        pytest.warns(LogWarning, match=rf"waiting for the lock .*csv\.lock, which process {held}"),
        pytest.raises(LogError, match=rf"waited 0.3 s for the lock .* which process {held} holds"),
    ):
        append(log, trial())


def test_a_torn_header_is_written_anew(log: Path) -> None:
    append(log, trial(0))
    log.write_bytes(log.read_bytes()[:50])
    with pytest.warns(LogWarning, match="torn header"):
        assert rows(log) == []
    with pytest.warns(LogWarning, match="removed a torn last line"):
        append(log, trial(1))
    assert rows(log) == [trial(1)]


def test_an_empty_file_is_an_empty_log(log: Path) -> None:
    log.parent.mkdir()
    log.touch()
    assert rows(log) == []
    append(log, trial(0))
    assert rows(log) == [trial()]


def test_unknown_columns_are_kept(log: Path) -> None:
    append(log, trial(0))
    header, row = log.read_text().splitlines()
    log.write_text(f"note,{header},watts\nmine,{row},65\n")
    append(log, trial(1))
    read = table(log)
    assert read.trials == [trial(0), trial(1)]
    assert read.unknown == {"note": ["mine", ""], "watts": ["65", ""]}


def test_a_log_of_an_older_version_has_no_columns_for_what_came_later(log: Path) -> None:
    append(log, trial(0))
    later = tuple(ADDED)
    with log.open() as file:
        kept = [row[: -len(later)] for row in csv.reader(file)]
    with log.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(kept)
    append(log, trial(1, layer="%1", flops=8.0, clone="c", ratio_low=0.5))
    assert rows(log) == [trial(0, speed=""), trial(1, speed="")]
    assert COLUMNS[-len(later) :] == later


RUNS = st.text(st.characters(exclude_characters=":;"), min_size=1)


@given(st.sets(st.tuples(RUNS, st.integers(0, 30))))
def test_rows_that_are_cited_are_read_back(asked: set[tuple[str, int]]) -> None:
    text = cited(asked)
    assert sorted(parse_cited(text)) == sorted(asked)


def test_rows_are_cited_in_ranges() -> None:
    asked = [("a", 3), ("b", 0), ("a", 1), ("a", 2), ("a", 7)]
    assert cited(asked) == "a:1..3,7;b:0"
    assert cited([]) == ""


NO_LOGS = [
    b"time,seconds\n1,2\n",
    b"not a log at all",
    b'{"model": "mlp"}\n',
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    b"\x7fELF\x02\x01\0\r" * 50_000,
    b'"never closed\n1\n',
    b"\n\n",
]


@pytest.mark.parametrize("content", NO_LOGS)
def test_a_file_that_is_no_log_is_refused_and_left_alone(log: Path, content: bytes) -> None:
    log.parent.mkdir()
    log.write_bytes(content)
    for use in (lambda: rows(log), lambda: append(log, trial())):
        with pytest.raises(LogError, match=r"log\.csv is no tuning log: its first line") as caught:
            use()
        assert re.search(
            "a log's (first line )?(begins )?with schema_version,run_id,", str(caught.value)
        )
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 600
    assert log.read_bytes() == content


def test_a_file_that_is_no_log_is_shown_by_its_first_60_bytes(log: Path) -> None:
    log.parent.mkdir()
    log.write_text("0123456789" * 9 + "\n")
    with pytest.raises(LogError) as caught:
        rows(log)
    assert str(caught.value) == (
        f"{log} is no tuning log: its first line begins with '{'0123456789' * 6}', "
        "a log's with schema_version,run_id,trial,timestamp; `tune` writes logs"
    )


def test_a_file_of_another_schema_is_refused_with_both_headers(log: Path) -> None:
    log.parent.mkdir()
    log.write_text("run_id,seconds\n1,2\n")
    for use in (lambda: rows(log), lambda: append(log, trial())):
        with pytest.raises(LogError, match="is of another schema: it lacks schema_ver") as caught:
            use()
        assert "its header: run_id,seconds\n" in str(caught.value)
        assert ",".join(COLUMNS) in str(caught.value)
    assert log.read_text() == "run_id,seconds\n1,2\n"


def test_a_missing_column_is_named(log: Path) -> None:
    append(log, trial(0))
    with log.open() as file:
        kept = [[cell for i, cell in enumerate(row) if i != 17] for row in csv.reader(file)]
    with log.open("w", newline="") as file:
        csv.writer(file).writerows(kept)
    with pytest.raises(LogError, match=f"^{log} is of another schema: it lacks shape\n"):
        rows(log)


@pytest.mark.parametrize(
    ("function", "bucket", "now"),
    [
        ("main[N=1..2]", "N=[1,2)", ("main[N=1]", "N=1")),
        (
            "main[big:N=2..16,H=32..]",
            "N=[2,16);H=[32,inf)",
            ("main[big:N=2..15,H=32..]", "N=2..15;H=32.."),
        ),
        ("main", "", ("main", "")),
    ],
)
def test_half_open_buckets_of_older_rows_are_read_as_they_are_written_now(
    log: Path, function: str, bucket: str, now: tuple[str, str]
) -> None:
    append(log, trial(0, schema_version=2, function=function, bucket=bucket))
    append(log, trial(1, function="main[N=2..4]", bucket="N=2..4"))
    old, new = rows(log)
    assert (old.function, old.bucket) == now
    assert (new.function, new.bucket) == ("main[N=2..4]", "N=2..4")


def test_rows_of_another_schema_version_are_refused(log: Path) -> None:
    append(log, trial(schema_version=SCHEMA_VERSION + 1))
    log.write_text(log.read_text() + log.read_text().splitlines()[1] + "\n")
    for use in (lambda: rows(log), lambda: append(log, trial())):
        with pytest.raises(LogError) as caught:
            use()
        assert str(caught.value).splitlines() == [
            f"{log} is of another schema: its rows are of schema {SCHEMA_VERSION + 1}",
            f"  its header: {','.join(COLUMNS)}",
            f"  schema {SCHEMA_VERSION}:   {','.join(COLUMNS)}",
        ]


def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"cannot read the tuning log .*no\.csv: No such file"):
        rows(tmp_path / "no.csv")


@contextmanager
def disk_full_at(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_full_disk_loses_only_the_trial_at_hand(log: Path, room: int) -> None:
    append(log, trial(0))
    with (
        disk_full_at(log.stat().st_size + room),
        pytest.raises(LogError, match=r"cannot add a trial to .*log\.csv: File too large"),
    ):
        append(log, trial(1))
    assert rows(log) == [trial(0)]
    append(log, trial(2))
    assert rows(log) == [trial(0), trial(2)]


def test_a_line_that_is_written_in_pieces_is_whole(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda fd, line: whole(fd, line[:100]))
        append(log, trial())
    assert rows(log) == [trial()]


def test_a_log_in_an_impossible_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogError, match=r"cannot add a trial to .*file/log\.csv"):
        append(tmp_path / "file" / "log.csv", trial())


WRITER = """
import dataclasses, sys
from bucketize.log.log import append, rows
first = rows(sys.argv[1])[0]
for number in range(int(sys.argv[2])):
    append(sys.argv[1], dataclasses.replace(first, run_id=sys.argv[3], trial=number))
"""


def test_several_writers_lose_nothing(log: Path) -> None:
    append(log, trial(0))
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(log), "40", name]) for name in "abc"
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    written = rows(log)
    for name in "abc":
        assert [t.trial for t in written if t.run_id == name] == list(range(40))
    assert len(written) == 121


def test_select_skips_other_hosts_and_versions_and_counts_them() -> None:
    ours = trial(0)
    theirs = [trial(1, host_cpu="znver9"), trial(2, host_cpu="znver9"), trial(3, host_cores=999)]
    older = trial(4, numba_version="0.1")
    reasons = (
        r"skipped 4 of 5 trials measured elsewhere: 2 with host_cpu znver9 \(here \S+\);"
        r" 1 with host_cores 999 \(here \d+\); 1 with numba_version 0\.1"
    )
    with pytest.warns(LogWarning, match=reasons):
        assert select([ours, *theirs, older]) == [ours]
    assert select([theirs[0]], environment=replace(here(), host_cpu="znver9")) == [theirs[0]]


def test_versions_that_write_no_machine_code_do_not_matter() -> None:
    """A patch release of Python or numpy voids no log."""
    ours = [trial(0, python_version="3.11.99"), trial(1, numpy_version="2.99.0")]
    assert select(ours) == ours


def test_releases_with_the_same_kernels_do_not_matter() -> None:
    now = replace(here(), bucketize_version="0.2.0")
    before, long_ago = trial(0, bucketize_version="0.1.0"), trial(1, bucketize_version="0.0.9")
    with pytest.warns(LogWarning, match=r"1 with bucketize_version 0\.0\.9 \(here 0\.2\.0\)"):
        assert select([before, long_ago], environment=now) == [before]


def test_the_hash_of_a_schedule_does_not_depend_on_order() -> None:
    assert schedule_hash({"a": 1, "b": "x"}) == schedule_hash({"b": "x", "a": 1})
    assert schedule_hash({"a": 1}) != schedule_hash({"a": "1"})


@pytest.mark.parametrize("text", ["=1+1", "@SUM(1)", "'=x", "-2+cmd|' /C calc'!A0", "it's", "-net"])
def test_a_spreadsheet_computes_nothing_of_a_log(log: Path, text: str) -> None:
    written = trial(model=text, shape="-,8x8")
    append(log, written)
    (cells,) = csv.DictReader(log.read_text().splitlines())
    assert cells["model"][0] not in "=+-@"
    assert cells["shape"] == "-,8x8"
    assert rows(log) == [written]


# --- reading on ----------------------------------------------------------------------------------


def told(tail: Tail) -> list[int]:
    """The numbers of the rows that are new."""
    return [t.trial for t in tail.read().table.trials]


def test_a_log_is_read_on_where_it_ended(log: Path) -> None:
    """Without a look at what is before: here it makes no sense any more."""
    tail = Tail(log)
    assert told(tail) == []
    append(log, trial(0))
    append(log, trial(1))
    assert told(tail) == [0, 1]
    header, first, *_ = log.read_bytes().split(b"\n")
    with log.open("rb+") as file:
        file.seek(len(header) + 1)
        file.write(b"x" * len(first))
    append(log, trial(2))
    append(log, trial(3))
    assert told(tail) == [2, 3]
    assert told(tail) == []


def test_a_torn_line_is_read_when_it_is_whole(log: Path) -> None:
    append(log, trial(0))
    whole = log.read_bytes()
    tail = Tail(log)
    for cut in (30, len(whole) - 9):  # in the header, in the row
        log.write_bytes(whole[:cut])
        assert told(tail) == []
        assert tail.read().torn
    log.write_bytes(whole)
    assert told(tail) == [0]
    with log.open("ab") as file:
        file.write(b"3,r,torn")
    assert told(tail) == []
    with pytest.warns(LogWarning, match="removed a torn last line"):
        append(log, trial(1))
    assert told(tail) == [1]


def test_a_log_that_was_replaced_is_read_anew(log: Path) -> None:
    tail = Tail(log)
    for number in range(3):
        append(log, trial(number))
    assert told(tail) == [0, 1, 2]
    merge([log], log)
    append(log, trial(3))
    assert told(tail) == [0, 1, 2, 3]
    log.write_bytes(log.read_bytes().split(b"\n")[0] + b"\n")
    append(log, trial(4))
    assert told(tail) == [4]


def test_a_log_that_cannot_be_read_on_is_an_error(log: Path) -> None:
    log.mkdir(parents=True)
    with pytest.raises(LogError, match=r"cannot read the tuning log .*: Is a directory"):
        Tail(log).read()
