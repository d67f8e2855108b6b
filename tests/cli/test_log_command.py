"""`bucketize log`: logs from anywhere become one, lose what no longer counts, and are counted."""

from __future__ import annotations

import csv
import itertools
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from test_log import WRITER, held, log, trial

from bucketize.analysis.frame import best_trials
from bucketize.cli.group import main
from bucketize.errors import LogError
from bucketize.log.cell import encoded, moment
from bucketize.log.environment import here
from bucketize.log.log import LogWarning, append, rows, select, table
from bucketize.log.maintain import Prunable, merge, prune
from bucketize.log.trial import ADDED, COLUMNS, SCHEMA_VERSION, Trial
from bucketize.log.verdict import geometric_mean

__all__ = ["held", "log"]  # fixtures

GRID = Path(__file__).parents[2] / "tuning_logs" / "emeraldrapids-attention.csv"
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


@pytest.mark.parametrize("command", ["merge", "prune", "stats"])
def test_every_subcommand_has_help_with_examples(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Examples:\n    bucketize log {command} " in result.output


# Merging


def test_rows_of_all_logs_in_order_of_time(run: Run, tmp_path: Path) -> None:
    early, between, late = (trial(i, timestamp=t) for i, t in enumerate((FIRST, SECOND, THIRD)))
    written(Path("a.csv"), early, late)
    written(Path("b.csv"), between)
    result = run("merge", "a.csv", "b.csv", "-o", "c.csv")
    assert result.output == "c.csv: 3 rows of 2 logs\n"
    assert rows("c.csv") == [early, between, late]
    assert files(tmp_path) == {"a.csv", "b.csv", "c.csv"}


def test_rows_of_a_log_keep_their_order_though_a_clock_was_set_back(tmp_path: Path) -> None:
    """What was confirmed last comes last."""
    early, between, late = (trial(i, timestamp=t) for i, t in enumerate((FIRST, SECOND, THIRD)))
    a, b = written(tmp_path / "a.csv", late, early), written(tmp_path / "b.csv", between)
    for logs in ([a, b], [b, a]):
        merge(logs, tmp_path / "all.csv", force=True)
        assert rows(tmp_path / "all.csv") == [between, late, early]


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
    whole = written(tmp_path / "a.csv", trial(0, speed=""), trial(1, speed=""))
    old = tmp_path / "old.csv"
    lines = csv.reader(whole.read_text().splitlines())
    with old.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(line[: -len(ADDED)] for line in lines)
    assert merge([old, whole], tmp_path / "all.csv").repeated == 2
    assert rows(tmp_path / "all.csv") == [trial(0, speed=""), trial(1, speed="")]


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


def test_a_device_stays_one(run: Run) -> None:
    written(Path("a.csv"), trial(0))
    os.mkfifo("pipe")
    result = run("merge", "a.csv", "-o", "pipe", "--force")
    assert result.exit_code == 2
    assert "cannot write pipe: it is a device or a pipe, no file" in result.stderr
    assert Path("pipe").is_fifo()
    assert not [*Path().glob("pipe.*")]


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


def in_order(moments: Iterable[datetime]) -> bool:
    return all(x <= y for x, y in itertools.pairwise(moments))


@given(logs=st.lists(st.tuples(LOGS, COLUMN), min_size=3, max_size=3))
def test_laws_of_merging(folder: Path, logs: Sequence[tuple[list[Trial], dict[str, str]]]) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    a, b, c = (written(folder / f"{x}.csv", *logs[x][0], **logs[x][1]) for x in range(3))
    whole = merged(folder, a, b, c)
    lines = whole.read_bytes().splitlines(keepends=True)
    assert merged(folder, whole).read_bytes() == whole.read_bytes()
    assert merged(folder, whole, b, whole).read_bytes() == whole.read_bytes()
    for order in (merged(folder, merged(folder, a, b), c), merged(folder, a, merged(folder, b, c))):
        assert order.read_bytes() == whole.read_bytes()
    turned = merged(folder, c, b, a).read_bytes().splitlines(keepends=True)
    assert (turned[0], sorted(turned)) == (lines[0], sorted(lines))
    read = rows(whole)
    times = [moment(t.timestamp) for t in read]
    if all(in_order(moment(t.timestamp) for t in rows(log)) for log in (a, b, c)):
        assert in_order(times)
    one_by_one = {replace(t, schema_version=SCHEMA_VERSION) for x in (a, b, c) for t in rows(x)}
    assert set(read) == one_by_one
    assert len(set(lines)) == len(lines)
    first = dict.fromkeys(replace(t, schema_version=SCHEMA_VERSION) for t in rows(a))
    assert rows(merged(folder, a)) == list(first)


# Pruning


OLD = {"numba_version": "0.1"}
OTHER = {"host_cpu": "znver9", "host_cores": 96}
SINCE_SECOND = (datetime.now(UTC) - moment(SECOND)) / timedelta(days=1)
REASON = f"numba_version 0.1 (here {here().numba_version})"


def test_rows_of_other_versions_are_dropped_and_the_old_log_stays_beside(
    run: Run, tmp_path: Path
) -> None:
    log = written(Path("a.csv"), trial(0, **OLD), trial(1), trial(2, **OLD), trial(3, shape="1"))
    before = log.read_bytes()
    result = run("prune", "a.csv")
    assert result.output == (
        f"a.csv: dropped 2 of 4 rows; the old log is a.csv.bak\nrows  because\n   2  {REASON}\n"
    )
    assert rows("a.csv") == [trial(1), trial(3, shape="1")]
    assert Path("a.csv.bak").read_bytes() == before
    assert files(tmp_path) == {"a.csv", "a.csv.bak"}
    file = Path("a.csv").stat().st_ino
    assert run("prune", "a.csv").output == "a.csv: 2 rows, nothing to drop\n"
    assert Path("a.csv").stat().st_ino == file, "written though nothing changed"
    assert Path("a.csv.bak").read_bytes() == before


def test_versions_that_write_no_machine_code_and_other_hosts_stay(tmp_path: Path) -> None:
    trials = [trial(0, python_version="3.11.99"), trial(1, numpy_version="9"), trial(2, **OTHER)]
    trials = [replace(t, shape=str(t.trial)) for t in trials]
    assert prune(written(tmp_path / "a.csv", *trials)).dropped == {}


def test_the_old_log_is_for_the_same_eyes(tmp_path: Path) -> None:
    log = written(tmp_path / "a.csv", trial(0, **OLD))
    log.chmod(0o600)
    backup = prune(log).backup
    assert backup == tmp_path / "a.csv.bak"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (log, backup)] == [0o600, 0o600]


def test_without_a_backup_only_the_log_is_there(run: Run, tmp_path: Path) -> None:
    written(Path("a.csv"), trial(0, **OLD))
    result = run("prune", "a.csv", "--no-backup")
    assert result.output.startswith("a.csv: dropped 1 of 1 row\n")
    assert files(tmp_path) == {"a.csv"}
    assert rows("a.csv") == []


def test_a_dry_run_says_what_it_would_drop_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    before = written(Path("a.csv"), trial(0, **OLD), trial(1)).read_bytes()
    for option in ("-n", "--dry-run"):
        result = run("prune", "a.csv", option)
        assert result.output.startswith("a.csv: would drop 1 of 2 rows\nrows  because\n   1  numba")
    assert Path("a.csv").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert json.loads(run("prune", "a.csv", "-n", "--json").output) == {
        "log": "a.csv", "kept": 1, "dropped": {REASON: 1}, "backup": None,
    }  # fmt: skip
    assert json.loads(run("prune", "a.csv", "--json").output)["backup"] == "a.csv.bak"


CHANGES: Sequence[dict[str, object]] = (
    {"workload": "v"}, {"template": "t"}, {"schedule_hash": "s"}, {"shape": "2"}, {"threads": 2},
    {"host_cpu": "znver9"}, {"host_cores": 96}, {"target_triple": "t"}, {"target_features": "f"},
    {"graph_bytes": 1e9},
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_of_repeated_measurements_the_last_stays(tmp_path: Path, change: dict[str, object]) -> None:
    repeats = [trial(i, model=f"m{i}", latency_median_s=i or None) for i in range(3)]
    log = written(tmp_path / "a.csv", trial(9, **change), *repeats)
    assert prune(log).dropped == {"repeated": 2}
    assert rows(log) == [trial(9, **change), repeats[-1]]


def test_rows_that_confirm_are_evidence_and_replace_none(tmp_path: Path) -> None:
    sources = ["confirm", "skopt", "confirm", "confirm"]
    trials = [trial(i, source=source) for i, source in enumerate(sources)]
    log = written(tmp_path / "a.csv", *trials, trial(8, source="confirm", **OLD))
    assert prune(log).dropped == {REASON: 1}
    assert rows(log) == trials


def test_torn_and_bad_rows_are_dropped_and_no_warning_is_made(run: Run) -> None:
    log = written(Path("a.csv"), trial(0), trial(1, weight=-1.0), trial(2, weight=-2.0))
    with log.open("a") as file:
        file.write("3,r,torn\n\n3,r")
    result = run("prune", "a.csv")
    assert result.output == (
        "a.csv: dropped 5 of 6 rows; the old log is a.csv.bak\n"
        "rows  because\n   3  torn\n   2  bad weight\n"
    )
    assert rows("a.csv") == [trial(0)]


def test_a_torn_header_is_all_that_a_log_loses(tmp_path: Path) -> None:
    log = tmp_path / "a.csv"
    log.write_text("schema_version,run")
    assert prune(log).dropped == {"torn": 1}
    assert rows(log) == []


def test_lines_that_stay_are_not_touched(tmp_path: Path) -> None:
    """Neither unknown columns nor the schema they were written in."""
    stays = trial(0, schema_version=2, function="main[N=2..4]", bucket="N=[2,4)")
    log = written(tmp_path / "a.csv", stays, trial(1, **OLD), note="mine")
    log.write_bytes(log.read_bytes().replace(b",1.0,", b",1.00,").replace(b"mine", b'"a\rb"'))
    header, first, _, end = log.read_bytes().split(b"\n")
    assert prune(log).dropped == {REASON: 1}
    assert log.read_bytes() == b"\n".join([header, first, end])


def test_failures_stay_unless_told_otherwise(run: Run) -> None:
    failed = {"status": "failed", "error_kind": "crash", "latency_median_s": None}
    trials = [trial(0), trial(1, **failed), trial(2, shape="1", **failed)]
    written(Path("a.csv"), *trials)
    written(Path("b.csv"), *trials)
    assert "1  repeated" in run("prune", "a.csv", "--keep-failed").output
    assert rows("a.csv") == trials[1:]
    assert "2  failed" in run("prune", "b.csv", "--drop-failed").output
    assert rows("b.csv") == trials[:1], "a failure that is dropped replaces no other measurement"


def test_only_what_is_older_is_dropped(tmp_path: Path) -> None:
    ages = (datetime.now(UTC) - timedelta(days=days) for days in (9, 11))
    new, old = (trial(i, timestamp=t.isoformat(), **OLD) for i, t in enumerate(ages))
    log = written(tmp_path / "a.csv", new, old)
    with log.open("a") as file:
        file.write("torn")
    assert prune(log, Prunable(older_days=1e12)).dropped == {}
    assert prune(log, Prunable(older_days=10)).dropped == {REASON: 1}
    with pytest.warns(LogWarning, match="torn"):  # nobody knows how old
        assert rows(log) == [new]


def test_only_rows_of_a_host_or_a_model_are_dropped(run: Run) -> None:
    trials = [
        trial(0, model="mlp", **OLD),
        trial(1, model="bert", **OLD),
        trial(2, model="bert", **OTHER, **OLD),
    ]
    written(Path("a.csv"), *trials)
    assert "2  numba" in run("prune", "a.csv", "-n", "--model", "bert").output
    assert "1  numba" in run("prune", "a.csv", "-n", "--host", "znver9").output
    assert "nothing" in run("prune", "a.csv", "-n", "--host", "znver9", "--model", "mlp").output
    run("prune", "a.csv", "--model", "bert", "--host", "znver9")
    assert rows("a.csv") == trials[:2]


def test_a_measurement_with_other_versions_replaces_none(tmp_path: Path) -> None:
    log = written(tmp_path / "a.csv", trial(0, timestamp=FIRST), trial(1, timestamp=THIRD, **OLD))
    assert prune(log, Prunable(older_days=SINCE_SECOND)).dropped == {}


def test_what_is_out_of_scope_is_repeated_but_not_dropped(tmp_path: Path) -> None:
    a, b, c = (trial(i, model=model) for i, model in enumerate(("mlp", "bert", "mlp")))
    log = written(tmp_path / "a.csv", a, b, c)
    prune(log, Prunable(model="bert"))
    assert rows(log) == [a, c]


@pytest.mark.parametrize("kind", ["host", "model"])
def test_a_name_that_no_row_has_is_an_error(run: Run, tmp_path: Path, kind: str) -> None:
    changes = {"model": "znver3", "host_cpu": "znver3", **OLD}
    written(Path("a.csv"), trial(0, **changes))
    result = run("prune", "a.csv", f"--{kind}", "znver4")
    assert (result.exit_code, result.output) == (
        2,
        f"error: no {kind} named 'znver4'; known: znver3; did you mean 'znver3'?\n  in a.csv\n",
    )
    assert files(tmp_path) == {"a.csv"}


def test_errors_of_pruning(run: Run, tmp_path: Path) -> None:
    result = run("prune", "no.csv")
    assert result.output == "error: cannot read the tuning log no.csv: No such file or directory\n"
    assert list(tmp_path.iterdir()) == [], "a lock beside a log that is not there"
    written(Path("new.csv"), trial(0, schema_version=SCHEMA_VERSION + 1))
    assert f"schema {SCHEMA_VERSION}:" in run("prune", "new.csv").output
    assert "-1.0 is not in the range" in run("prune", "new.csv", "--older", "-1").output
    assert "Missing argument 'LOG'" in run("prune").output


def test_a_prune_that_cannot_write_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path / "a.csv", trial(0), trial(0))
    before = log.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LogError, match=r"cannot write .*a\.csv: No space left on device"):
        prune(log)
    assert log.read_bytes() == before
    assert files(tmp_path) == {"a.csv"}


def test_what_is_appended_while_a_log_is_replaced_is_not_lost(log: Path) -> None:
    append(log, trial(0, source="confirm"))
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(log), "40", name]) for name in "ab"
    ]
    while any(writer.poll() is None for writer in writers):
        append(log, trial(0, **OLD))
        assert prune(log, backup=False).dropped == {REASON: 1}
        merge([log], log)
    assert [writer.wait() for writer in writers] == [0, 0]
    for name in "ab":
        assert [t.trial for t in rows(log) if t.run_id == name] == list(range(40))


MEASURED = st.lists(
    st.builds(
        trial,
        st.integers(0, 99),
        model=st.sampled_from(["mlp", "bert"]),
        host_cpu=st.sampled_from([here().host_cpu, "znver9"]),
        numba_version=st.sampled_from([here().numba_version, "0.1"]),
        timestamp=st.sampled_from([FIRST, SECOND]),
        schedule_hash=st.sampled_from("st"),
        shape=st.sampled_from("12"),
        threads=st.integers(1, 2),
        source=st.sampled_from(["skopt", "confirm"]),
        latency_median_s=st.none() | st.floats(0.5, 2.0),
    ),
    max_size=12,
)
SCOPES = [Prunable(), Prunable(model="bert"), Prunable(older_days=SINCE_SECOND + 0.5)]


def measured_on(log: Path, host_cpu: str) -> list[Trial]:
    return select(rows(log), environment=replace(here(), host_cpu=host_cpu))


def selected(log: Path, host_cpu: str) -> dict[tuple[object, ...], Trial]:
    """What `tune` knows of a log on a host: of repeated measurements the last."""
    trials = measured_on(log, host_cpu)
    return {(t.workload, t.template, t.schedule_hash, t.shape, t.threads): t for t in trials}


def relative(log: Path, host_cpu: str) -> list[float]:
    """How fast is what `compile` chooses on a host, for each number of threads; 0 for nothing."""
    trials = measured_on(log, host_cpu)
    choices = [best_trials(t for t in trials if t.threads == n) for n in (1, 2)]
    return [geometric_mean(choice) if choice else 0.0 for choice in choices]


@pytest.mark.filterwarnings("ignore::bucketize.log.log.LogWarning")
@pytest.mark.parametrize("scope", SCOPES, ids=["all", "model", "older"])
@given(trials=MEASURED)
def test_pruning_keeps_what_a_reader_selects(
    folder: Path, scope: Prunable, trials: list[Trial]
) -> None:
    log = written(folder / "a.csv", *trials, trial(model="bert"))
    hosts = here().host_cpu, "znver9"
    before = [selected(log, host) for host in hosts]
    chosen = [relative(log, host) for host in hosts]
    pruned = prune(log, scope)
    kept = rows(log)
    assert pruned.kept == len(kept) == len(trials) + 1 - sum(pruned.dropped.values())
    assert [selected(log, host) for host in hosts] == before
    assert [relative(log, host) for host in hosts] == [pytest.approx(x) for x in chosen]
    assert all(t in kept for t in trials if t.source == "confirm" and t.numba_version != "0.1")
    assert prune(log, scope).dropped == {}


@given(trials=MEASURED)
def test_a_whole_prune_leaves_no_row_that_cannot_count(folder: Path, trials: list[Trial]) -> None:
    log = written(folder / "a.csv", *trials)
    prune(log)
    left = [t for t in rows(log) if t.source != "confirm"]
    assert all(t.numba_version != "0.1" for t in rows(log))
    keys = [(t.schedule_hash, t.shape, t.threads, t.host_cpu) for t in left]
    assert len(set(keys)) == len(keys)


# Counting


LATER = "2026-01-03T01:00:00+02:00"  # than the second, before the third


@pytest.fixture
def counted(run: Run) -> Path:  # in the empty directory of `run`
    log = written(
        Path("a.csv"),
        trial(0, compile_s=2.0, repeats=10, latency_median_s=0.5, timestamp=SECOND),
        trial(1, shape="1", compile_s=1.5, function="main[N=1]", model="bert", threads=2),
        trial(
            2, schedule_hash="s", template="t", source="skopt", bucket="", timestamp=LATER, **OTHER
        ),
        trial(3, status="failed", error_kind="crash", latency_median_s=None, workload="v", **OLD),
        trial(4, timestamp="2020-01-01T02:00:00+09:00", template="t", numba_version="0.2"),
        trial(5, weight=-1.0),
    )
    with log.open("a") as file:
        file.write("3,r,torn\n")
    return log


def test_stats_count_the_rows_of_several_logs(run: Run, counted: Path) -> None:
    written(Path("b.csv"), trial(0, timestamp=THIRD))
    told = json.loads(run("stats", "a.csv", "b.csv", "--json").output)
    cpu, cores, numba = here().host_cpu, here().host_cores, here().numba_version
    host = f"{cpu}, {cores} {'core' if cores == 1 else 'cores'}"
    others = f"bucketize {here().bucketize_version}", f"llvmlite {here().llvmlite_version}"
    assert told == {
        "logs": ["a.csv", "b.csv"],
        "rows": 6,
        "workloads": 2,
        "schedules": 3,
        "compile_s": 3.5,
        "timing_s": 5.0,
        "first": "2020-01-01T02:00:00+09:00",
        "last": THIRD,
        "source": {"default": 5, "skopt": 1},
        "status": {"ok": 5, "failed: crash": 1},
        "model": {"mlp": 5, "bert": 1},
        "function": {"main": 5, "main[N=1]": 1},
        "bucket": {"N=1;H=32..63": 5, "": 1},
        "host": {f"{host}, 1 thread": 4, f"{host}, 2 threads": 1, "znver9, 96 cores, 1 thread": 1},
        "versions": {
            f"{others[0]}, numba {numba}, {others[1]}": 4,
            f"{others[0]}, numba 0.1, {others[1]}": 1,
            f"{others[0]}, numba 0.2, {others[1]}": 1,
        },
        "left_out": {
            f"host_cpu znver9 (here {cpu})": 1,
            f"numba_version 0.1 (here {numba})": 1,
            f"numba_version 0.2 (here {numba})": 1,
            "bad weight": 1,
            "torn": 1,
        },
    }


def test_stats_are_one_table_for_people(run: Run, counted: Path) -> None:
    facts, _, table = run("stats", "a.csv").output.partition("\n\n")
    assert facts.splitlines() == [
        "5 rows of 1 log, 2020-01-01T02:00:00+09:00 to 2026-01-03T01:00:00+02:00",
        "2 workloads, 3 schedules; 3.5 s of compiling, 5.0 s of timing",
    ]
    lines = table.splitlines()
    assert lines[:3] == [
        f"column    {'value':{lines[0].index('rows') - 12}}  rows",
        f"source    {'default':{lines[0].index('rows') - 12}}     4",
        f"source    {'skopt':{lines[0].index('rows') - 12}}     1",
    ]
    assert [line.split() for line in lines if line.startswith("bucket")] == [
        ["bucket", "N=1;H=32..63", "4"],
        ["bucket", "-", "1"],
    ]
    assert lines[-1].split() == ["left", "out", "bad", "weight", "1"]


def test_every_row_is_counted_once_in_every_way(run: Run) -> None:
    told = json.loads(run("stats", str(GRID), "--json").output)
    assert told["rows"] == len(rows(GRID)) > 400
    ways = "source", "status", "model", "function", "bucket", "host", "versions"
    assert [sum(told[way].values()) for way in ways] == [told["rows"]] * len(ways)
    assert told["schedules"] == len({t.schedule for t in rows(GRID)})
    assert told["compile_s"] == pytest.approx(sum(t.compile_s or 0 for t in rows(GRID)))
    times = [t.repeats * (t.latency_median_s or 0) for t in rows(GRID)]
    assert told["timing_s"] == pytest.approx(sum(times))


def test_stats_of_no_rows(run: Run) -> None:
    written(Path("a.csv"))
    assert run("stats", "a.csv").output == (
        "0 rows of 1 log\n0 workloads, 0 schedules; 0.0 s of compiling, 0.0 s of timing\n"
    )
    told = json.loads(run("stats", "a.csv", "--json").output)
    assert (told["first"], told["source"], told["left_out"]) == (None, {}, {})


def test_seconds_that_are_no_number_are_none_that_were_spent(run: Run) -> None:
    written(Path("a.csv"), trial(0, compile_s=float("nan")), trial(1, compile_s=1.0))
    assert json.loads(run("stats", "a.csv", "--json").output)["compile_s"] == 1.0


def test_errors_of_stats(run: Run) -> None:
    result = run("stats", "no.csv")
    assert (result.exit_code, result.output) == (
        2,
        "error: cannot read the tuning log no.csv: No such file or directory\n",
    )
    assert "Missing argument 'LOG...'" in run("stats").output
    written(Path("new.csv"), trial(0, schema_version=SCHEMA_VERSION + 1))
    assert "new.csv is of another schema" in run("stats", "new.csv").output
