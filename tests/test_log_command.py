"""`bucketize log`: logs from anywhere become one, lose what no longer counts, and are counted."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from test_log import held, log, trial

from bucketize.cli.group import main
from bucketize.errors import LogError
from bucketize.tune.cells import encoded, moment
from bucketize.tune.ledger import merge
from bucketize.tune.log import COLUMNS, SCHEMA_VERSION, LogWarning, Trial, append, rows, table

__all__ = ["held", "log"]  # fixtures

Run = Callable[..., Result]
FIRST, SECOND, THIRD = (f"2026-01-0{day}T00:00:00+00:00" for day in (1, 2, 3))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `bucketize log` in an empty directory; unexpected exceptions fail the test."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Result:
        result = CliRunner().invoke(main, ("log", *args))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def written(path: Path, *trials: Trial, **more: str) -> Path:
    """A log of these trials, with further columns of one value before the known ones."""
    cells = [[getattr(t, name) for name in COLUMNS] for t in trials]
    table = [[*more, *COLUMNS], *([*more.values(), *row] for row in cells)]
    path.write_bytes(b"".join(map(encoded, table)))
    return path


def files(folder: Path) -> set[str]:
    """The files of a folder, without locks."""
    return {path.name for path in folder.iterdir() if path.suffix != ".lock"}


@pytest.mark.parametrize("command", ["merge"])
def test_every_subcommand_has_help_with_examples(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Examples:\n    bucketize log {command} " in result.output


# Merging


def test_rows_of_all_logs_in_order_of_time(run: Run, tmp_path: Path) -> None:
    late, early, between = (trial(i, timestamp=t) for i, t in enumerate((THIRD, FIRST, SECOND)))
    written(Path("a.csv"), late, early)
    written(Path("b.csv"), between)
    result = run("merge", "a.csv", "b.csv", "-o", "c.csv")
    assert result.output == "c.csv: 3 rows of 2 logs\n"
    assert rows("c.csv") == [early, between, late]
    assert files(tmp_path) == {"a.csv", "b.csv", "c.csv"}


def test_times_compare_as_moments_whatever_their_zone(tmp_path: Path) -> None:
    texts = ["2026-01-01T01:00:00+02:00", "2025-12-31T23:30:00", "2026-01-01T00:00:00Z"]
    logs = [
        written(tmp_path / f"{i}.csv", trial(i, timestamp=text)) for i, text in enumerate(texts)
    ]
    merge(reversed(logs), tmp_path / "all.csv")
    assert [t.timestamp for t in rows(tmp_path / "all.csv")] == texts


def test_rows_of_one_second_keep_their_order(tmp_path: Path) -> None:
    """A reader takes the last of repeated measurements."""
    trials = [trial(0, latency_median_s=2.0), trial(0, latency_median_s=1.0)]
    merge([written(tmp_path / "a.csv", *trials)], tmp_path / "all.csv")
    assert rows(tmp_path / "all.csv") == trials


def test_identical_rows_are_one_and_are_counted(run: Run) -> None:
    written(Path("a.csv"), trial(0), trial(1))
    written(Path("b.csv"), trial(1), trial(2))
    result = run("merge", "a.csv", "b.csv", "a.csv", "-o", "c.csv")
    assert result.output == "c.csv: 3 rows of 3 logs; 3 repeated rows left out\n"
    assert rows("c.csv") == [trial(0), trial(1), trial(2)]
    assert run("merge", "c.csv", "a.csv", "-o", "d.csv", "--json").output == (
        '{"log": "d.csv", "rows": 3, "repeated": 2}\n'
    )


def test_rows_that_differ_in_a_number_that_is_none_are_two(tmp_path: Path) -> None:
    one, same, other = (trial(0, max_rel_err=float("nan"), error=text) for text in ("", "", "x"))
    merged = merge([written(tmp_path / "a.csv", one, same, other)], tmp_path / "b.csv")
    assert (merged.rows, merged.repeated) == (2, 1)


def test_columns_that_this_version_does_not_know_are_kept(tmp_path: Path) -> None:
    a = written(tmp_path / "a.csv", trial(0), watts="65", note="mine")
    b = written(tmp_path / "b.csv", trial(1), volts="5")
    merge([a, b], tmp_path / "all.csv")
    read = table(tmp_path / "all.csv")
    assert read.trials == [trial(0), trial(1)]
    assert read.unknown == {"note": ["mine", ""], "volts": ["", "5"], "watts": ["65", ""]}


def test_a_row_with_an_empty_unknown_cell_is_that_without_it(tmp_path: Path) -> None:
    a = written(tmp_path / "a.csv", trial(0))
    b = written(tmp_path / "b.csv", trial(0), note="")
    assert merge([a, b], tmp_path / "all.csv").repeated == 1


@pytest.mark.parametrize("version", [1, 2])
def test_rows_of_older_schemas_become_rows_of_this_one(tmp_path: Path, version: int) -> None:
    """Converted once: converted again, `N=2..3` would be read as half-open."""
    clone = {"function": "main[N=2..4]", "bucket": "N=[2,4)"}
    old = written(tmp_path / "old.csv", trial(0, schema_version=version, **clone))
    now = trial(0, function="main[N=2..3]", bucket="N=2..3")
    merge([old, written(tmp_path / "new.csv", now)], tmp_path / "all.csv")
    assert rows(tmp_path / "all.csv") == [now]


def test_columns_that_an_older_log_lacks_are_empty(tmp_path: Path) -> None:
    whole = written(tmp_path / "a.csv", trial(0), trial(1))
    old = tmp_path / "old.csv"
    lines = whole.read_text().splitlines()
    kept = [lines[0].removesuffix(",template,layer,flops,bytes"), *(x[:-4] for x in lines[1:])]
    old.write_text("\n".join([*kept, ""]))
    assert merge([old, whole], tmp_path / "all.csv").repeated == 2
    assert rows(tmp_path / "all.csv") == [trial(0), trial(1)]


def test_a_newer_schema_is_refused_with_both_headers(run: Run, tmp_path: Path) -> None:
    written(Path("a.csv"), trial(0))
    written(Path("new.csv"), trial(0, schema_version=SCHEMA_VERSION + 1), note="x")
    result = run("merge", "a.csv", "new.csv", "-o", "c.csv")
    assert result.exit_code == 2
    assert result.output.splitlines() == [
        f"error: new.csv is of another schema: its rows are of schema {SCHEMA_VERSION + 1}",
        f"  its header: note,{','.join(COLUMNS)}",
        f"  schema {SCHEMA_VERSION}:   {','.join(COLUMNS)}",
    ]
    assert files(tmp_path) == {"a.csv", "new.csv"}


@pytest.mark.filterwarnings("default")
def test_torn_and_bad_rows_are_reported_and_left_out(run: Run) -> None:
    a = written(Path("a.csv"), trial(0), trial(1, weight=-1.0))
    with a.open("a") as file:
        file.write("3,r,torn")
    result = run("merge", "a.csv", "-o", "c.csv")
    assert result.output == (
        "warning: a.csv: skipped 1 torn line(s): 4\n"
        "warning: a.csv: left out 1 bad row(s), the first in line 3: weight is -1.0, expected a"
        " number above 0\n"
        "c.csv: 1 row of 1 log\n"
    )
    assert rows("c.csv") == [trial(0)]


def test_a_log_that_is_there_is_replaced_on_demand_only(run: Run) -> None:
    written(Path("a.csv"), trial(0))
    before = written(Path("c.csv"), trial(1)).read_bytes()
    result = run("merge", "a.csv", "-o", "c.csv")
    assert (result.exit_code, result.output) == (
        2,
        "error: c.csv exists: --force replaces it; to merge into it, name it among the logs\n",
    )
    assert Path("c.csv").read_bytes() == before
    assert run("merge", "a.csv", "-o", "c.csv", "--force").exit_code == 0
    assert rows("c.csv") == [trial(0)]


def test_a_log_is_merged_into_one_of_them_whatever_its_name_there(run: Run) -> None:
    written(Path("a.csv"), trial(1))
    written(Path("b.csv"), trial(0, timestamp="2020-01-01T00:00:00+00:00"))
    Path("link.csv").symlink_to("a.csv")
    assert run("merge", "./a.csv", "b.csv", "-o", "link.csv").exit_code == 0
    assert Path("link.csv").is_symlink()
    assert [t.trial for t in rows("a.csv")] == [0, 1]


def test_what_is_merged_into_keeps_who_may_read_it(tmp_path: Path) -> None:
    a = written(tmp_path / "a.csv", trial(0))
    a.chmod(0o640)
    merge([a], a)
    assert stat.S_IMODE(a.stat().st_mode) == 0o640
    append(tmp_path / "plain.csv", trial(0))
    merge([a], tmp_path / "new.csv")
    modes = {(tmp_path / name).stat().st_mode for name in ("plain.csv", "new.csv")}
    assert len(modes) == 1


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    a = written(tmp_path / "a.csv", trial(0))
    with pytest.raises(LogError, match=r"cannot write .*a\.csv/c\.csv: "):
        merge([a], a / "c.csv")
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(LogError, match=r"cannot write .*dir\.csv: Is a directory"):
        merge([a], tmp_path / "dir.csv", force=True)
    assert files(tmp_path) == {"a.csv", "dir.csv"}


def test_the_command_refuses_a_directory_that_is_not_there_and_no_log_at_all(run: Run) -> None:
    written(Path("a.csv"), trial(0))
    assert "there is no directory no" in run("merge", "a.csv", "-o", "no/c.csv").output
    assert "Missing argument 'LOG...'" in run("merge", "-o", "c.csv").output
    assert "Missing option '-o'" in run("merge", "a.csv").output
    result = run("merge", "a.csv", "b.csv", "-o", "c.csv")
    assert result.output == "error: cannot read the tuning log b.csv: No such file or directory\n"


def test_a_write_that_fails_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = written(tmp_path / "a.csv", trial(0), trial(0))
    before = a.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(LogError, match=r"cannot write .*a\.csv: No space left on device"):
        merge([a], a)
    assert a.read_bytes() == before
    assert files(tmp_path) == {"a.csv"}


def test_who_merges_waits_for_writers(
    log: Path, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bucketize.lock.PATIENCE_S", 0.1)
    monkeypatch.setattr(sys.modules[append.__module__], "LOCK_TIMEOUT_S", 0.3)
    a = written(log.parent / "a.csv", trial(0))
    with (
        pytest.warns(LogWarning, match=f"waiting for the lock .* which process {held}"),
        pytest.raises(LogError, match=rf"cannot write .*log\.csv: waited 0\.3 s .* {held} holds"),
    ):
        merge([a], log)
    link = log.parent / "link.csv"
    link.symlink_to(log.name)
    with pytest.warns(LogWarning, match="waiting"), pytest.raises(LogError, match="waited"):
        merge([a], link, force=True)
    assert not log.exists()


LOGS = st.lists(
    st.builds(
        trial,
        st.integers(0, 2),
        timestamp=st.sampled_from([FIRST, SECOND, "2026-01-02T01:00:00+01:00", THIRD[:-6]]),
        model=st.sampled_from(["mlp", 'said "no",', "\0", "é"]),
        latency_median_s=st.none() | st.sampled_from([1e-4, 0.1, 1.0]),
        schema_version=st.integers(1, SCHEMA_VERSION),
        bucket=st.sampled_from(["", "N=[2,4)", "N=2..3"]),
        function=st.sampled_from(["main", "main[N=2..4]"]),
    ),
    max_size=5,
)
COLUMN = st.sampled_from([{}, {"note": ""}, {"note": "a"}, {"watts": "1", "note": "b"}])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laws")


def merged(folder: Path, *logs: Path) -> Path:
    """The merge of logs, in a new file."""
    out = folder / f"{len(list(folder.iterdir()))}.csv"
    merge(logs, out)
    return out


@given(logs=st.lists(st.tuples(LOGS, COLUMN), min_size=3, max_size=3))
def test_laws_of_merging(folder: Path, logs: Sequence[tuple[list[Trial], dict[str, str]]]) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    a, b, c = (written(folder / f"{x}.csv", *logs[x][0], **logs[x][1]) for x in range(3))
    whole = merged(folder, a, b, c)
    lines = whole.read_bytes().splitlines(keepends=True)
    assert merged(folder, whole).read_bytes() == whole.read_bytes()
    assert merged(folder, whole, b, whole).read_bytes() == whole.read_bytes()
    for order in (
        merged(folder, merged(folder, a, b), c),
        merged(folder, a, merged(folder, b, c)),
    ):
        assert order.read_bytes() == whole.read_bytes()
    turned = merged(folder, c, b, a).read_bytes().splitlines(keepends=True)
    assert (turned[0], sorted(turned)) == (lines[0], sorted(lines))
    read = rows(whole)
    assert all(x <= y for x, y in itertools.pairwise(moment(t.timestamp) for t in read))
    one_by_one = {replace(t, schema_version=SCHEMA_VERSION) for x in (a, b, c) for t in rows(x)}
    assert set(read) == one_by_one
    assert len(set(lines)) == len(lines)
    first = dict.fromkeys(replace(t, schema_version=SCHEMA_VERSION) for t in rows(a))
    assert rows(merged(folder, a)) == sorted(first, key=lambda t: moment(t.timestamp))
