"""docs/onnxruntime.md names what of onnxruntime there is not."""

from __future__ import annotations

import re
from pathlib import Path

import onnxruntime

import bucketize

PAGE = (Path(__file__).parents[2] / "docs" / "onnxruntime.md").read_text()
NAMES = ("InferenceSession", "SessionOptions", "RunOptions", "IOBinding", "OrtValue")


def public(library: object, name: str) -> set[str]:
    its = getattr(library, name)
    values = [its, its()] if name.endswith("Options") else [its]
    return {attribute for value in values for attribute in dir(value) if attribute[0] != "_"}


def test_the_page_names_what_there_is_not() -> None:
    named = set(
        re.findall(r"`(\w+)`", PAGE[PAGE.index("**Not there**") : PAGE.index("are errors")])
    )
    named -= {"register_custom_ops_library", "add_initializer", "get_modelmeta", "IOBinding"}
    ours = {attribute for name in NAMES for attribute in public(bucketize, name)} | {
        *dir(bucketize)
    }
    assert not named & ours
    (version,) = re.findall(r"onnxruntime (\d+\.\d+),", PAGE)
    if onnxruntime.__version__.startswith(f"{version}."):
        missing = [public(onnxruntime, n) - public(bucketize, n) for n in NAMES]
        names = {name for name in dir(onnxruntime) if name[0] != "_"}
        missing.append(names - {*dir(bucketize), "contextlib", "datasets"})  # if imported
        assert set().union(*missing) == named
