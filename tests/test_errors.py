"""What an error says, wherever it is read: printed, logged, in a traceback, on the command line."""

import pickle
import traceback
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from onnx_model import parse

import bucketize
from bucketize.cli.group import main
from bucketize.errors import BucketizeError, TypeRelError
from bucketize.serve.queue import BusyError

ILL_TYPED = "(float[N, 2] x, float[3] z) => (y) { [sum] y = Add(x, z) }"
WRONG = "extents differ: 2 and 3"
WHERE = ["in add(float32[N, 2], float32[3])", "from ONNX node 'sum' (Add)"]


def caught() -> TypeRelError:
    with pytest.raises(TypeRelError) as e:
        bucketize.from_onnx(parse(ILL_TYPED))
    return e.value


def test_an_error_says_what_is_wrong_and_then_where() -> None:
    error = caught()
    assert str(error).splitlines() == [WRONG, *("  " + note for note in WHERE)]
    assert (error.message, list(error.notes)) == (WRONG, WHERE)


def test_a_traceback_shows_each_note_once() -> None:
    shown = "".join(traceback.format_exception(caught()))
    assert [shown.count(line) for line in WHERE] == [1, 1]


def test_the_command_line_prints_each_note_once(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(parse(ILL_TYPED), path)
    result = CliRunner().invoke(main, ["show", str(path)])
    lines = [f"error: {WRONG}", *("  " + note for note in WHERE)]
    assert (result.exit_code, result.stderr.splitlines()) == (2, lines)


def test_notes_reach_another_process_and_no_other_error() -> None:
    error = pickle.loads(pickle.dumps(caught()))
    assert (type(error), str(error)) == (TypeRelError, str(caught()))
    assert BucketizeError("another").notes == ()


def test_a_refusal_keeps_when_to_ask_again() -> None:
    error = BusyError("later", 2.5)
    error.add_note("of a replica")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.retry_s) == (str(error), 2.5)
