"""Many requests at once: in order, as alone, and none lost with another."""

from __future__ import annotations

import io
import json
import pickle
import threading
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx_model import parse

import bucketize
from bucketize.cli.group import main
from bucketize.errors import ArgumentError, BucketizeError, BucketizeWarning, RequestsError
from bucketize.executable import Executable
from bucketize.many.together import Together
from bucketize.op import Array

pytestmark = pytest.mark.usefixtures("few_registers")

ENCODER = (
    "(int64[B, S] ids, int64[B, S] mask, float[4] scale) => (y, first) <float one = {1}, "
    "float low = {-10000}, int64 i0 = {0}, int64[1] a1 = {1}> "
    "{ table = Constant<value = float[6, 4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, "
    "1, 2, 3, 4, 5, 6}>() e = Gather(table, ids) x = LayerNormalization(e, scale) "
    "f = Cast<to = 1>(mask) h = Sub(one, f) v = Mul(h, low) u = Unsqueeze(v, a1) "
    "t = Transpose<perm = [0, 2, 1]>(x) s = MatMul(x, t) z = Add(s, u) p = Softmax<axis = 2>(z) "
    "y = MatMul(p, x) first = Gather<axis = 1>(y, i0) }"
)
SCALE = np.array([1, 2, -1, 0.5], np.float32)


@pytest.fixture(scope="module")
def plain() -> Executable:
    return bucketize.compile(bucketize.from_onnx(parse(ENCODER)))


@pytest.fixture(scope="module")
def exe() -> Executable:
    return bucketize.compile(bucketize.ragged(bucketize.from_onnx(parse(ENCODER))))


def request_of(rng: np.random.Generator, length: int, rows: int = 1, seen: int | None = None):
    mask = np.arange(length) < np.full((rows, 1), length if seen is None else seen)
    ids = rng.integers(0, 6, (rows, length))
    return {"ids": ids, "mask": mask.astype(np.int64), "scale": SCALE}


def check(got: list[Array], want: list[Array], mask: Array) -> None:
    seen = mask != 0
    np.testing.assert_allclose(got[0][seen], want[0][seen], atol=1e-5)
    np.testing.assert_allclose(got[1], want[1], atol=1e-5)
    assert not got[0][~seen].any()


def test_results_of_a_call_of_one_request_are_not_copied(
    exe: Executable, plain: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, made = np.random.default_rng(1), list[int]()
    rooms = Together._rooms

    def seen(self: Together, outs: list[Array], inputs: list[Array]) -> list[Array]:
        made.append(inputs[0].shape[1])
        return rooms(self, outs, inputs)

    monkeypatch.setattr(Together, "_rooms", seen)
    requests = [request_of(rng, 5), request_of(rng, 6, seen=4), request_of(rng, 7, rows=2)]
    results = exe.run_many(requests, tokens=1)
    for request, got in zip(requests, results, strict=True):
        check(got, plain.run(**request), request["mask"])
    assert made == [6, 7]


def test_results_are_those_of_each_alone(exe: Executable, plain: Executable) -> None:
    rng = np.random.default_rng(0)
    requests = [request_of(rng, n, 1 + n % 3, max(1, n - n % 4)) for n in (5, 1, 9, 9, 30, 2)]
    for tokens in (1, 7, 512):
        for request, got in zip(requests, exe.run_many(requests, tokens=tokens), strict=True):
            check(got, plain.run(**request), request["mask"])


def test_rows_share_calls_of_so_many_tokens(exe: Executable) -> None:
    rng = np.random.default_rng(0)
    requests = [request_of(rng, n) for n in (5, 5, 20, 3, 3)]
    plan = exe.plan_many(requests, tokens=10)
    assert [call.tokens for call in plan.calls] == [10, 20, 6]
    assert str(plan).splitlines()[0] == "2 rows of 2 requests, packed: 10 tokens"
    assert exe.run_many([]) == []


def test_requests_are_counted() -> None:
    exe = bucketize.compile(bucketize.ragged(bucketize.from_onnx(parse(ENCODER))), lazy=True)
    rng = np.random.default_rng(0)
    odd = request_of(rng, 4)
    odd["mask"] = np.array([[0, 1, 1, 1]])
    exe.run_many([request_of(rng, 3), request_of(rng, 3), request_of(rng, 5, 2), odd])
    exe.run(**request_of(rng, 3))
    assert exe.traffic is not None
    assert exe.traffic.histogram("S") == {3: 3, 4: 1, 5: 1}
    told = {bucket.clone: bucket for bucket in exe.report().buckets}
    assert {clone: of.requests for clone, of in told.items()} == {"main": 2, "main[ragged]": 3}
    assert all(of.mean_s for of in told.values())


def test_results_belong_to_their_requests(exe: Executable) -> None:
    rng = np.random.default_rng(0)
    one, other = exe.run_many([request_of(rng, 3), request_of(rng, 3)])
    other[0][...] = 7
    assert not (one[0] == 7).any()


def test_inputs_that_rows_have_in_common_are_those_of_a_call(exe: Executable, plain) -> None:
    rng = np.random.default_rng(0)
    requests = [request_of(rng, 4), {**request_of(rng, 4), "scale": 2 * SCALE}, request_of(rng, 2)]
    assert [call.requests for call in exe.plan_many(requests).calls] == [(0, 2), (1,)]
    for request, got in zip(requests, exe.run_many(requests), strict=True):
        check(got, plain.run(**request), request["mask"])


def test_what_cannot_be_packed_is_run_as_it_is(exe: Executable, plain: Executable) -> None:
    rng = np.random.default_rng(0)
    odd, hidden = request_of(rng, 4), request_of(rng, 4)
    odd["mask"], hidden["mask"] = np.array([[0, 1, 1, 1]]), np.array([[0, 0, 0, 0]])
    plan = exe.plan_many([odd, hidden, request_of(rng, 4)])
    assert [str(call) for call in plan.calls] == [
        "request 0 as it is: its mask is not 1 up to where tokens are hidden, and 0 from there on",
        "request 1 as it is: a row has no token that is seen",
        "1 row of 1 request, packed: 4 tokens",
    ]
    want = plain.run(**odd)[0] * odd["mask"][..., None]
    np.testing.assert_allclose(exe.run_many([odd])[0][0], want, atol=1e-5)
    assert str(plain.plan_many([odd]).calls[0]) == (
        "request 0 as it is: nothing of its shape shares a call"
    )
    np.testing.assert_array_equal(plain.run_many([odd])[0][0], plain.run(**odd)[0])


def test_a_request_that_fails_loses_no_other(exe: Executable, plain: Executable) -> None:
    rng = np.random.default_rng(0)
    requests = [request_of(rng, 4) for _ in range(6)]
    requests[1]["ids"] = requests[1]["ids"].astype(np.float32)
    requests[2]["ids"][0, 2] = 77
    del requests[4]["mask"]
    with pytest.raises(RequestsError) as e:
        exe.run_many(requests)
    assert str(e.value).startswith("3 of 6 requests failed: request 1: input 'ids': expected int64")
    assert [isinstance(r, BucketizeError) for r in e.value.results] == [
        False,
        True,
        True,
        False,
        True,
        False,
    ]
    assert "in request 2" in str(e.value.results[2])
    for i in (0, 3, 5):
        check(e.value.results[i], plain.run(**requests[i]), requests[i]["mask"])
    copy = pickle.loads(pickle.dumps(e.value))
    assert (str(copy), len(copy.results)) == (str(e.value), 6)
    four = [{"ids": 1}] * 4
    with pytest.raises(RequestsError, match=r"4 of 4 .*request 2: .*; \.\.\.$"):
        exe.run_many(four)


def test_a_call_that_fails_where_no_request_does_is_told(
    exe: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise BucketizeError("packed wrongly")

    rng = np.random.default_rng(0)
    requests = [request_of(rng, 3), request_of(rng, 5)]
    monkeypatch.setattr("bucketize.many.packed.Packed.arguments", broken)
    told = "a call of 2 requests failed, none of which fails alone: packed wrongly"
    with pytest.warns(BucketizeWarning, match=told):
        results = exe.run_many(requests)
    for request, got in zip(requests, results, strict=True):
        np.testing.assert_array_equal(got[0], exe.run(**request)[0])


def test_what_is_no_request(exe: Executable) -> None:
    with pytest.raises(
        RequestsError, match="request 0: a request is a mapping of arrays by input, got list"
    ):
        exe.run_many([[1, 2]])  # type: ignore[list-item]
    for ask in (exe.run_many, exe.plan_many):
        with pytest.raises(ArgumentError, match="expected a list of requests, got a mapping"):
            ask({"ids": np.ones((1, 3))})  # type: ignore[arg-type]
    for tokens in (0, True, 2.5):
        with pytest.raises(ArgumentError, match="tokens: expected a number from 1"):
            exe.run_many([], tokens=tokens)  # type: ignore[arg-type]


def test_threads_may_call_at_once(exe: Executable, plain: Executable) -> None:
    rng = np.random.default_rng(0)
    lists = [[request_of(rng, int(n)) for n in rng.integers(1, 30, 20)] for _ in range(4)]
    results: dict[int, list[list[Array]]] = {}

    def serve(i: int) -> None:
        for _ in range(5):
            results[i] = exe.run_many(lists[i], tokens=40)

    threads = [threading.Thread(target=serve, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, requests in enumerate(lists):
        for request, got in zip(requests, results[i], strict=True):
            check(got, plain.run(**request), request["mask"])


# --- on the command line --------------------------------------------------------------------------


def run(*args: str | Path):
    return CliRunner().invoke(main, ["run", *map(str, args)])


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("net") / "encoder.onnx"
    onnx.save(parse(ENCODER), path)
    return path


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    rng, arrays = np.random.default_rng(0), {}
    for i, length in enumerate((3, 9, 5)):
        arrays |= {f"{i}/{name}": array for name, array in request_of(rng, length).items()}
    np.savez(tmp_path / "requests.npz", **arrays)
    return tmp_path / "requests.npz"


def test_run_many_from_an_archive(net: Path, requests: Path, tmp_path: Path) -> None:
    done = run(net, "--ragged", "--many", requests, "-o", tmp_path / "out.npz", "--repeat", "1")
    assert (done.exit_code, done.stdout.split()[:3]) == (0, ["requests", "calls", "seconds"])
    with np.load(tmp_path / "out.npz") as out:
        assert {n: out[n].shape for n in out.files} == {
            f"{i}/{result}": shape
            for i, n in enumerate((3, 9, 5))
            for result, shape in (("y", (1, n, 4)), ("first", (1, 4)))
        }
    told = run(net, "--ragged", "--many", requests, "--json", "--repeat", "1")
    assert '"3 rows of 3 requests, packed: 17 tokens"' in told.stdout


def test_run_many_within_bytes(net: Path, requests: Path) -> None:
    told = run(
        *(net, "--ragged", "--many", requests), *("--explain", "--repeat", "1", "--bytes", 10**9)
    )
    assert "3 rows of 3 requests, packed: 17 tokens" in told.stdout
    none = run(net, "--many", requests, "--repeat", "1", "--bytes", "100")
    assert (none.exit_code, "bytes, and a call may take 100" in none.stderr) == (1, True)
    alone = run(net, "--at", "B=1,S=2", "--bytes", "1000")
    assert "there is no --many: --bytes is a limit of many requests" in alone.stderr


def test_what_pays_is_packed_unasked(tmp_path: Path) -> None:
    ids = {str(i): np.ones((1, length), np.int64) for i, length in enumerate((3, 9, 5))}
    arrays = {f"{i}/{n}": a for i, a in ids.items() for n in ("input_ids", "attention_mask")}
    np.savez(tmp_path / "requests.npz", **arrays)
    told = run("zoo:bert-mini", "--many", tmp_path / "requests.npz", "--explain", "--repeat", "1")
    assert "3 rows of 3 requests, packed: 17 tokens" in told.stdout


def test_run_many_from_a_folder(net: Path, requests: Path, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    with np.load(requests) as archive:
        for i in range(2):
            np.savez(
                folder / f"{i}.npz",
                **{
                    name.partition("/")[2]: archive[name]
                    for name in archive.files
                    if name[0] == str(i)
                },
            )
    done = run(net, "--ragged", "--many", folder, "--repeat", "1")
    assert (done.exit_code, done.stdout.split()[5:7]) == (0, ["2", "1"])


def test_results_are_called_as_their_requests(net: Path, tmp_path: Path) -> None:
    rng, folder = np.random.default_rng(0), tmp_path / "all"
    folder.mkdir()
    for name, length in (("10", 3), ("2", 4), ("a", 5)):
        np.savez(folder / f"{name}.npz", **request_of(rng, length))
    arrays = {f"{i}/{n}": a for i in (7, 5) for n, a in request_of(rng, i).items()}
    np.savez(tmp_path / "r.npz", **arrays)
    for requests, lengths in ((folder, {"2": 4, "10": 3, "a": 5}), ("r.npz", {"5": 5, "7": 7})):
        out = tmp_path / "out.npz"
        done = run(net, "--ragged", "--many", tmp_path / requests, "-o", out, "--repeat", "1")
        assert done.exit_code == 0
        with np.load(out) as results:
            rows = {n.partition("/")[0]: results[n].shape[1] for n in results.files if "y" in n}
        assert list(rows.items()) == list(lengths.items())
    np.savez(tmp_path / "wrong.npz", **arrays, **{"9/ids": np.array([[1]])})
    done = run(net, "--many", tmp_path / "wrong.npz", "--repeat", "1")
    assert (done.exit_code, "request 9: " in done.stderr) == (1, True)


def test_what_is_wrong_with_requests(net: Path, requests: Path, tmp_path: Path) -> None:
    empty, text, other = tmp_path / "empty", tmp_path / "text.npz", tmp_path / "other.npz"
    empty.mkdir()
    text.write_text("no archive")
    np.savez(other, input_ids=np.ones(3))
    np.save(tmp_path / "one.npy", np.ones(3))
    header = b"\x93NUMPY\1\0\x10\0{'descr': [[[[[ "
    for name, its in (("header", header), ("large", header_of((10**12, 784)))):
        with ZipFile(tmp_path / f"{name}.npz", "w") as archive:
            archive.writestr("0/ids.npy", its)
    np.savez_compressed(tmp_path / "packed.npz", **{"0/ids": np.arange(999)})
    whole = bytearray((tmp_path / "packed.npz").read_bytes())
    whole[80:90] = bytes(10)
    (tmp_path / "packed.npz").write_bytes(whole)
    for path, fault in (
        *((tmp_path / name, "holds no arrays in .npz format") for name in DAMAGED),
        (empty, "has no .npz file"),
        (text, "holds no arrays in .npz format"),
        (other, "an array is called 'input_ids', not NUMBER/INPUT"),
    ):
        done = run(net, "--many", path)
        assert (done.exit_code, fault in done.stderr) == (2, True)
    for more, fault in (
        (["--at", "B=1,S=2"], "--many has its inputs in a file: --at is for one request"),
        (["--check"], "--many has its inputs in a file: --check is for one request"),
        (["--ragged", "-d", "log"], "--ragged is for all lengths at once: leave out -d"),
        (["--mask", "mask"], "--mask is for --ragged, which is not given"),
    ):
        done = run(net, "--many", requests, *more)
        assert (done.exit_code, fault in done.stderr) == (2, True)


DAMAGED = ("one.npy", "header.npz", "large.npz", "packed.npz")


def header_of(shape: tuple[int, ...]) -> bytes:
    """The head of a file of floats."""
    file = io.BytesIO()
    head = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, head)
    return file.getvalue()


def test_a_request_that_fails_is_told_at_the_end(net: Path, tmp_path: Path) -> None:
    ids = np.array([[1, 2, 3]])
    both = {f"{i}/mask": np.ones_like(ids) for i in range(2)}
    both |= {f"{i}/scale": SCALE for i in range(2)}
    np.savez(tmp_path / "r.npz", **both, **{"0/ids": ids, "1/ids": ids + 10**6})
    done = run(
        net, "--ragged", "--many", tmp_path / "r.npz", "--repeat", "1", "-o", tmp_path / "o.npz"
    )
    assert (done.exit_code, "request 1: " in done.stderr) == (1, True)
    with np.load(tmp_path / "o.npz") as out:
        assert out.files == ["0/y", "0/first"]


def test_show_says_whether_a_model_can_be_packed() -> None:
    def shown(*args: str):
        return CliRunner().invoke(main, ["show", *args])

    assert shown("zoo:bert-mini", "--explain-ragged").stdout.startswith(
        "ragged: <function main[ragged]"
    )
    told = shown("zoo:resnet18", "--explain-ragged").stdout
    assert told == "not ragged: no input is called a mask, or has tokens behind its batch\n"
    told = shown("zoo:bert-mini", "--explain-ragged", "--mask", "input_ids").stdout
    assert told.startswith("not ragged: softmax: 'input_ids' does not hide tokens")
    wrong = shown("zoo:bert-mini", "--mask", "input_ids")
    assert "--mask is for --explain-ragged, which is not given" in wrong.stderr
    told = shown("zoo:resnet18", "--explain-ragged", "--json").stdout
    why = "no input is called a mask, or has tokens behind its batch"
    assert json.loads(told) == {"ragged": False, "because": why}
    refused = {"-d": ["log"], "--section": ["before"], "--function": ["main"], "--no-fallback": []}
    for flag in ("--explain-ragged", "--explain-dynamic"):
        for option, value in refused.items():
            wrong = shown("zoo:mlp", flag, option, *value)
            name = {"-d": "--dispatcher", "--no-fallback": "--fallback"}.get(option, option)
            told = f"{flag} is of MODEL as it is: {name} is of what is dispatched"
            assert told in " ".join(wrong.stderr.split())


@pytest.mark.parametrize("lengths", [(3, 5, 8), (3,)])
def test_what_nobody_foresaw_is_of_its_request_alone(
    exe: Executable, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = exe._serving.run

    def fails(name: str, inputs: list[Array], *how: Any) -> list[Array]:
        if inputs[0].size in (3, sum(lengths)):
            raise KeyError("what is not there")
        return run(name, inputs, *how)

    rng = np.random.default_rng(0)
    monkeypatch.setattr(exe._serving, "run", fails)
    with pytest.raises(RequestsError, match=f"1 of {len(lengths)} .*request 0: KeyError: 'wh"):
        exe.run_many([request_of(rng, length) for length in lengths])


def test_what_cannot_be_dealt_out_is_of_those_that_shared_the_call(
    exe: Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise IndexError("no such row")

    rng = np.random.default_rng(0)
    monkeypatch.setattr("bucketize.many.packed.Packed.deal", broken)
    requests = [request_of(rng, 3), request_of(rng, 5), {"ids": 1}]
    with pytest.raises(RequestsError) as e:
        exe.run_many(requests)
    assert [type(r).__name__ for r in e.value.results[:2]] == ["IndexError", "IndexError"]
