"""What is kept beside the kernels: made once, believed only if it is whole and ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketize.machine.directory import VARIABLE, kept, kept_files

CONTENT = b"what took seconds"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


class Maker:
    """Makes the content, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> bytes:
        self.times += 1
        return CONTENT


def test_what_was_made_is_found_again(folder: Path) -> None:
    make = Maker()
    assert [kept("this", make), kept("this", make)] == [CONTENT] * 2
    assert make.times == 1
    assert [path.parent for path in kept_files()] == [folder]
    kept("that", make)
    assert make.times == len(kept_files()) == 2


@pytest.mark.parametrize("left", [b"", CONTENT, bytes(32) + CONTENT])
def test_what_is_torn_is_made_again(folder: Path, left: bytes) -> None:
    make = Maker()
    kept("this", make)
    whole = kept_files()[0].read_bytes()
    kept_files()[0].write_bytes(left)
    assert kept("this", make) == CONTENT
    assert make.times == 2
    assert kept_files()[0].read_bytes() == whole


def test_what_others_could_write_is_not_believed(folder: Path) -> None:
    make = Maker()
    kept("this", make)
    kept_files()[0].chmod(0o666)
    assert kept("this", make) == CONTENT
    assert make.times == 2


def test_where_nothing_can_be_kept_it_is_made_each_time(folder: Path) -> None:
    folder.write_text("no directory")
    make = Maker()
    assert [kept("this", make), kept("this", make)] == [CONTENT] * 2
    assert make.times == 2
