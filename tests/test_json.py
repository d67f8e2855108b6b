"""JSON for any reader: no `NaN`, no `Infinity`, which are words of Python's alone."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bucketize.machine.calibration import Calibration, read
from bucketize.machine.speed import TYPICAL
from bucketize.table import json_text


def strict(text: str) -> Any:
    """What JSON of the standard says; an error where it is not that."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


@dataclass
class Error:
    relative: float


def test_what_is_no_number_is_null() -> None:
    told = {"a": [math.nan, 1.5, (math.inf, -math.inf)], "b": {"c": np.float64("nan"), "d": None}}
    want = {"a": [None, 1.5, [None, None]], "b": {"c": None, "d": None}}
    assert strict(json_text(told)) == strict(json_text(told, indent=2)) == want
    assert strict(json_text([True, 7, "NaN"])) == [True, 7, "NaN"]
    assert strict(json_text([Error(math.inf)], default=asdict)) == [{"relative": None}]


def test_a_calibration_with_a_null_is_refused() -> None:
    """It is written as JSON, and whoever reads it is told, not given a guess."""
    broken = Calibration("a machine", replace(TYPICAL, ghz=math.nan), TYPICAL, "AMD", 2, 0.05, "")
    text = json_text(asdict(broken))
    assert strict(text)["alone"]["ghz"] is None
    with pytest.raises(ValueError, match="ghz is None"):
        read(text)


PLAIN = {  # what writes JSON by itself: no numbers that might not be finite, or what looks at them
    "bucketize/table.py": "here",
    "bucketize/kernel/build.py": "text, to a process of ours",
    "bucketize/kernel/builder.py": "text, to the process that started it",
    "bucketize/kernel/schedule.py": "text",
    "bucketize/log/trial.py": "schedules: integers and words",
    "bucketize/measure/process.py": "to a process of ours",
    "bucketize/measure/worker.py": "to the process that started it: an error may be infinite",
    "bucketize/onnx/export/module.py": "bounds: integers",
    "bucketize/report/charts.py": "text",
    "bucketize/save/container.py": "a program: text and integers",
    "bucketize/serve/embeddings.py": "vectors, which it looks at",
    "bucketize/serve/protocol.py": "tensors, which it looks at",
    "bucketize/text/reader.py": "text",
}


def test_all_others_write_json_by_this() -> None:
    root = Path(__file__).parent.parent
    writers = {
        str(path.relative_to(root))
        for path in root.glob("bucketize/**/*.py")
        if re.search(r"\bjson\.dumps?\(|\.to_json\(", path.read_text())
    }
    assert writers == PLAIN.keys()
