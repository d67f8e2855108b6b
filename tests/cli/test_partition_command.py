"""`bucketize partition`, and `-d auto`: what they say and write."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

Run = Callable[..., Result]
MLP = ("zoo:mlp", "--dim", "N=1..64")


def test_a_line_for_each_number_of_clones(run: Run) -> None:
    head, one, *_, take = run("partition", *MLP, "--target", "x86-64-v4").stdout.splitlines()
    names = "clones time above the oracle worst kernels compile weights buckets"
    assert head.split() == names.split()
    assert one.split()[:2] == ["1", "1.000"]
    assert one.endswith("N=1..64")
    assert take.startswith("Take: 1 clone is enough, ")


def test_for_scripts_and_as_a_file(run: Run) -> None:
    facts = json.loads(run("partition", *MLP, "-o", "b.yaml", "--json").stdout)
    assert facts["buckets"] == [{"N": [1, 65]}]
    assert facts["clones"] == facts["frontier"][0]["clones"] == 1
    assert 0 < facts["oracle"] <= facts["seconds"]
    assert run("show", *MLP, "-d", "b.yaml").exit_code == 0


def test_it_weighs_sizes_by_a_traffic(run: Run) -> None:
    Path("t.csv").write_text("N,requests\n1,9\n64,1\n")
    few = json.loads(run("partition", *MLP, "--traffic", "t.csv", "--json").stdout)
    Path("t.csv").write_text("N,requests\n1,1\n64,9\n")
    many = json.loads(run("partition", *MLP, "--traffic", "t.csv", "--json").stdout)
    assert few["seconds"] < many["seconds"]
    result = run("partition", *MLP, "--traffic", "zoo:traffic/prompts")
    assert (result.exit_code, result.stderr.startswith("error: ")) == (2, True)


def test_the_command_that_bounds_a_symbol_is_given(run: Run) -> None:
    Path("my requests.csv").write_text("S\n7\n")
    typed = ["partition", "zoo:bert-mini", "--dim", "B=1..", "--traffic", "my requests.csv"]
    result = run(*typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr.splitlines()[-1]
        == f"  as in: {shlex.join(['bucketize', *typed])} --dim B=1..1"
    )


def test_auto_says_why(run: Run) -> None:
    result = run("show", *MLP, "-d", "auto:target=x86-64-v4")
    assert result.stderr.startswith("auto:target=x86-64-v4: 1 clone is enough, ")
    assert "main[N=1..64]" in result.stdout


def test_what_cannot_be_cut_is_told(run: Run) -> None:
    result = run("partition", "zoo:mlp", "--dim", "N=3..3")
    assert (result.exit_code, result.stderr) == (
        2,
        "error: no axis is dynamic: there is nothing to partition\n",
    )


def test_clones_are_merged(run: Run) -> None:
    result = run("merge", *MLP, "-d", "log", "-o", "few.yaml", "--target", "x86-64-v4")
    assert result.stdout.splitlines()[-1].startswith("1 clone serves as 6 did, 0.0% ")
    assert run("show", *MLP, "-d", "few.yaml").exit_code == 0
    facts = json.loads(run("merge", *MLP, "-d", "log", "--json").stdout)
    assert (facts["clones"], facts["before"]["clones"]) == (1, 6)
    result = run("merge", *MLP)
    assert result.stderr.startswith("error: there is nothing to merge without clones: give -d, ")


def test_a_picture_is_drawn(run: Run) -> None:
    assert run("partition", *MLP, "--plot", "cuts.png").exit_code == 0
    assert Path("cuts.png").read_bytes().startswith(b"\x89PNG")
