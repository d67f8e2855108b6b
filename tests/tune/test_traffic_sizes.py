"""`tune(traffic=)`: clones are judged at quantiles of their requests, weighed by their seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bucketize
from bucketize import zoo
from bucketize.dispatch.tree import dispatch
from bucketize.errors import TuneError
from bucketize.inspect.predict import predicted
from bucketize.ir import Module
from bucketize.traffic.value import Traffic
from bucketize.tune.options import Options
from bucketize.tune.task import subjects_of
from dispatchers import exact_dispatcher, per_symbol


def module() -> Module:
    mlp = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)})
    return dispatch(mlp, lambda _: [{"N": (1, 9)}, {"N": (9, 33)}, {"N": (33, 65)}])


def traffic(counts: dict[int, int]) -> Traffic:
    return Traffic(("N",), np.array([*counts])[:, None], np.array([*counts.values()]))


def test_each_clone_is_judged_at_quantiles_of_its_requests() -> None:
    met = traffic({**dict.fromkeys(range(1, 9), 1), 2: 20, 10: 7, 30: 3})
    subjects = {s.bucket: s for s in subjects_of(module(), met)}
    assert list(subjects) == ["N=1..8", "N=9..32"]  # nobody asks for more
    low, high = subjects.values()
    assert [sizes["N"] for sizes, _ in low.judged] == [2, 4]
    assert [sizes["N"] for sizes, _ in high.judged] == [10, 30]
    for subject, requests in ((low, [18, 9]), (high, [7, 3])):
        for (sizes, weight), n in zip(subject.judged, requests, strict=True):
            seconds = predicted(subject.program, sizes, subject.function).seconds
            assert weight == pytest.approx(n * seconds)


def test_requests_that_no_clone_serves_are_refused() -> None:
    some = dispatch(
        bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (1, 64)}),
        lambda _: [{"N": (1, 9)}],
        fallback=False,
    )
    with pytest.raises(TuneError, match=r"^no bucket of main\[N=1\.\.8\] holds any of the sizes"):
        subjects_of(some, traffic({9: 1}))
    with pytest.raises(TuneError, match=r"lack N of main\[N=1\.\.8\]$"):
        subjects_of(some, Traffic(("S",), np.array([[1]]), np.array([1])))


def test_requests_between_multiples_are_refused() -> None:
    mod = bucketize.from_onnx(zoo.build("mlp"), bounds={"N": (8, 64, 8)})
    for each in (mod, dispatch(mod, per_symbol({"N": exact_dispatcher}), fallback=False)):
        with pytest.raises(TuneError, match=r"^no bucket of main.* holds any of the sizes"):
            subjects_of(each, traffic({12: 1}))


def test_sizes_are_told_once(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match=r"^sizes and traffic both say where schedules are judged"):
        Options(log=tmp_path / "t.csv", sizes="middle", traffic=traffic({1: 1}))


def test_symbols_of_one_size_need_not_be_in_the_traffic() -> None:
    for low in (1, 4):
        mod = bucketize.from_onnx(zoo.build("bert-mini"), bounds={"B": (low, low), "S": (8, 64)})
        met = Traffic(("S",), np.array([[8], [40]]), np.array([1, 2]))
        for each in (mod, dispatch(mod, lambda _: [{"S": (8, 33)}, {"S": (33, 65)}])):
            judged = [sizes for s in subjects_of(each, met) for sizes, _ in s.judged]
            assert judged == [{"S": 8}, {"S": 40}]
