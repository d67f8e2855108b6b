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
        self["result"].restype = ADDRESS

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

    def shapes(
        self, inputs: Sequence[np.ndarray] | None, ranks: Sequence[int]
    ) -> list[tuple[int, ...]]:
        """The shapes of results; without inputs, of the last run."""
        shapes = [np.array(a.shape, np.int64) for a in inputs or ()]
        results = [np.full(rank, -7, np.int64) for rank in ranks]
        given = None if inputs is None else addresses(shapes)
        answer = self.library["shape"](self.context, given, addresses(results))
        assert answer == 0, self.error
        return [tuple(r.tolist()) for r in results]

    def kept(self, inputs: Sequence[np.ndarray], like: Sequence[np.ndarray]) -> list[bytes]:
        """The results of a call that leaves them in the context; `like` these."""
        none = (ADDRESS * len(like))()
        assert self.run(inputs, like, outputs=none) == 0, self.error
        places = [self.library["result"](self.context, ctypes.c_int64(k)) for k in range(len(like))]
        sizes = [w.itemsize * int(np.prod(s)) for w, s in zip(like, self.ended(like), strict=True)]
        return [ctypes.string_at(p, n) if n else b"" for p, n in zip(places, sizes, strict=True)]

    def ended(self, like: Sequence[np.ndarray]) -> list[tuple[int, ...]]:
        """The shapes of the last run's results, of as many axes as `like` have."""
        return self.shapes(None, [w.ndim for w in like])


def same_as(exe: Executable, path: Path, calls: Sequence[Sequence[np.ndarray]]) -> None:
    """Assert that a library gives bit for bit what an executable does.

    Shapes that it tells before a run are those of the results; -1 is what it cannot tell.
    """
    with CModel(path) as model:
        for inputs in calls:
            arrays = [np.asarray(a, order="C") for a in inputs]
            want = exe.run(*arrays)
            wanted = [w.tobytes() for w in want]
            for w, shape in zip(want, model.shapes(arrays, [w.ndim for w in want]), strict=True):
                assert all(a in (-1, b) for a, b in zip(shape, w.shape, strict=True))
            outputs = [np.full(w.shape, 1, w.dtype) for w in want]
            assert model.run(arrays, outputs) == 0, model.error
            assert model.ended(want) == [w.shape for w in want]
            assert [o.tobytes() for o in outputs] == wanted
            assert model.kept(arrays, want) == wanted


def saved_library(mod: bucketize.Module, path: Path) -> Executable:
    """The executable of a module, which was written as a library."""
    exe = bucketize.compile(mod)
    exe.save_library(path)
    return exe
