"""A library of ours as C sees it, called through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bucketize
from bucketize.executable import Executable

ADDRESS = ctypes.c_void_p


def addresses(arrays: Sequence[np.ndarray]) -> Any:
    """An array of C of the places of arrays."""
    return (ADDRESS * len(arrays))(*(a.ctypes.data for a in arrays))


class CLibrary:
    """The functions of a library, by their short names."""

    def __init__(self, path: Path) -> None:
        self.dll, self.prefix = ctypes.CDLL(str(path)), f"bucketize_{path.stem}_"
        for name in ("error", "input", "output"):
            self[name].restype = ctypes.c_char_p

    def __getitem__(self, name: str) -> Any:
        return getattr(self.dll, self.prefix + name)


class CModel:
    """A context, which gives its memory back at the end."""

    def __init__(self, path: Path) -> None:
        self.library, self.context = CLibrary(path), ADDRESS()
        assert self.library["open"](ctypes.byref(self.context)) == 0

    def __enter__(self) -> CModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.library["close"](self.context)

    @property
    def error(self) -> str:
        """What the last call says."""
        told: bytes = self.library["error"](self.context)
        return told.decode()

    def run(self, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray], **other: Any) -> int:
        """The answer of a call; `other` arguments are put in place of what the arrays are."""
        shapes = [np.array(a.shape, np.int64) for a in arrays]
        lengths = np.array([a.nbytes for a in results], np.int64)
        its = {
            "inputs": addresses(arrays),
            "shapes": addresses(shapes),
            "outputs": addresses(results),
            "lengths": ADDRESS(lengths.ctypes.data),
            **other,
        }
        answer: int = self.library["run"](self.context, *its.values())
        return answer

    def shapes(self, inputs: Sequence[np.ndarray], ranks: Sequence[int]) -> list[tuple[int, ...]]:
        """The shapes of results."""
        shapes = [np.array(a.shape, np.int64) for a in inputs]
        results = [np.full(rank, -1, np.int64) for rank in ranks]
        answer = self.library["shape"](self.context, addresses(shapes), addresses(results))
        assert answer == 0, self.error
        return [tuple(r.tolist()) for r in results]


def same_as(exe: Executable, path: Path, calls: Sequence[Sequence[np.ndarray]]) -> None:
    """Assert that a library gives bit for bit what an executable does."""
    with CModel(path) as model:
        for inputs in calls:
            arrays = [np.asarray(a, order="C") for a in inputs]
            want = exe.run(*arrays)
            assert model.shapes(arrays, [w.ndim for w in want]) == [w.shape for w in want]
            outputs = [np.full(w.shape, 1, w.dtype) for w in want]
            assert model.run(arrays, outputs) == 0, model.error
            for got, wanted in zip(outputs, want, strict=True):
                assert got.tobytes() == wanted.tobytes()


def saved_library(mod: bucketize.Module, path: Path) -> Executable:
    """The executable of a module, which was written as a library."""
    exe = bucketize.compile(mod)
    exe.save_library(path)
    return exe
