"""The page: what is in it, without a browser."""

from __future__ import annotations

import builtins
import json
import re
import sys
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from reported import HOSTILE, bare, module, whole

import bucketize
from bucketize.cli.group import main
from bucketize.errors import BucketizeError
from bucketize.report.graph import laid_out
from bucketize.report.page import drawn, library
from bucketize.report.section import Head, Picture, Sheet, megabytes, milliseconds
from bucketize.report.sections import sections
from bucketize.report.words import summary

pytestmark = pytest.mark.filterwarnings("ignore::bucketize.errors.BusyWarning")


class Page(HTMLParser):
    """The cells of each table by its caption, ids, links, and texts outside of scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.tags: Counter[str] = Counter()
        self.caption, self.inside = "", ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        its = dict(attrs)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.sources += [value for name, value in attrs if name == "src" and value]
        self.links += [value for name, value in attrs if name == "href" and value]
        if tag in ("caption", "td", "th"):
            self.inside = tag
        if tag == "caption":
            self.caption = ""
        elif tag == "tr":
            self.tables.setdefault(self.caption, []).append([])
        elif tag in ("td", "th"):
            self.tables[self.caption][-1].append("")
        assert "onerror" not in its

    def handle_endtag(self, tag: str) -> None:
        if tag == self.inside:
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "caption":
            self.caption += data
        elif self.inside:
            self.tables[self.caption][-1][-1] += data


@cache
def html() -> str:
    return whole().html()


@cache
def page() -> Page:
    """The whole page, without Vega's megabyte."""
    return Page(html().replace(library(), ""))


def data_of(html: str) -> dict[str, pd.DataFrame]:
    """The frames that a page holds."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return {
        name: pd.DataFrame(f)
        for name, f in json.loads(found[1], parse_constant=pytest.fail)["frames"].items()
    }


def test_charts_are_drawn_of_the_frames() -> None:
    held = data_of(html())
    for name, frame in drawn(whole()).items():
        numbers = frame.select_dtypes("number")
        assert len(held[name]) == len(frame), name
        assert held[name][list(numbers)].astype(float).equals(numbers.astype(float)), name


def test_tables_are_made_of_the_frames() -> None:
    sheets = [
        sheet
        for section in sections(whole())
        for part in section.parts
        if (sheet := part if isinstance(part, Sheet) else part.sheet)
    ]
    assert len(sheets) > 12
    for sheet in sheets:
        head, *rows = page().tables[sheet.caption]
        assert head == [h.title for h in sheet.heads]
        assert rows == [[cell.text for cell in row] for row in sheet.rows]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("seconds", 0.00123, "1.23 ms"),
        ("seconds", 0.0011, "1.10 ms"),
        ("seconds", 2e-7, "0.200 µs"),
        ("seconds", 123.4, "123 s"),
        ("bytes", 3 << 20, "3.0 MiB"),
        ("bytes", 2048, "2.0 KiB"),
        ("percent", 0.125, "12.5%"),
        ("count", 12345, "12,345"),
        ("number", 1234.5, "1,234"),
        ("number", float("nan"), "-"),
        ("count", pd.NA, "-"),
        ("schedule", '{"mr": 6}', "mr=6"),
        ("yes", False, ""),
    ],
)
def test_how_values_are_shown(kind: str, value: Any, text: str) -> None:
    assert Head("x", "x", kind).cell(value).text == text


def test_units() -> None:
    assert milliseconds(1.0) == "1.00 s"
    assert megabytes(0) == "0.0 KiB"


def test_ids_are_unique_and_links_lead_to_them() -> None:
    assert [i for i, n in Counter(page().ids).items() if n > 1] == []
    assert {link[1:] for link in page().links if link != "#"} <= set(page().ids)


def test_names_of_strangers_are_text() -> None:
    assert page().tags["img"] == 0
    assert HOSTILE not in html()
    assert "49" not in re.findall(r"<h1>(.*?)</h1>", html())[0]
    assert "&lt;/script&gt;&lt;img" in html()


def test_nothing_is_fetched() -> None:
    assert page().sources == []
    assert {link[0] for link in page().links} == {"#"}
    assert "default-src 'none'" in html()


def test_sections_without_data_say_how_to_have_them() -> None:
    wanted = {s.name: s.wanted for s in sections(bare()) if s.wanted}
    lacking = {"decisions", "traffic", "frontier", "against", "search", "failures"}
    assert wanted.keys() - {"implementations"} == lacking  # of which a machine may have several
    assert "--traffic" in wanted["traffic"]
    assert "--partition" in wanted["frontier"]
    assert "--log trials.csv" in wanted["search"]
    text = bare().html()
    assert all(how in text for how in wanted.values() if "'" not in how)
    assert not [s for s in sections(whole()) if s.wanted and s.name != "implementations"]


def test_the_first_words_say_what_it_is_and_what_to_do() -> None:
    first = summary(bare())
    assert first.paragraphs[0] == (
        "mlp takes data: float32[N, 784] and gives output: float32[N, 10]. Its sizes change from "
        "call to call: N from 1 to 64."
    )
    assert first.paragraphs[1].startswith("It was compiled as one program for all sizes, of ")
    assert first.paragraphs[2].startswith("At N=8 a call took ")
    commands = [step.command for step in first.steps]
    assert "bucketize compile MODEL -o model.bkt" in commands
    assert any(command.startswith("bucketize tune MODEL") for command in commands)
    whole_steps = [step.text for step in summary(whole()).steps]
    assert "Leave out -d: one clone is expected to be as good as these 6." in whole_steps


def test_the_page_is_small() -> None:
    assert len(html()) < 1_200_000


def test_graphs_go_downwards() -> None:
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)]
    places = laid_out(5, edges)
    assert all(places[a][1] < places[b][1] for a, b in edges)
    assert len(set(places)) == 5  # the fifth, that nothing leads to, too


def test_a_page_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(BucketizeError, match=r"cannot write .*nowhere"):
        bare().write(tmp_path / "nowhere" / "page.html")


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "altair":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **options)

    for name in [n for n in sys.modules if n.startswith(("bucketize.report.", "altair"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BucketizeError, match=r"needs altair: pip install 'bucketize\[report\]'"):
        bare().html()


def run(*words: str) -> Any:
    return CliRunner().invoke(main, ["report", *words])


def test_the_command_writes_a_page(tmp_path: Path) -> None:
    page = tmp_path / "mlp.html"
    requests = tmp_path / "requests.csv"
    requests.write_text("N,requests\n1,5\n3,7\n")
    how = ["--dim", "N=1..4", "-d", "log", "--traffic", str(requests), "--partition"]
    done = run("zoo:mlp", *how, "--engine", "onnxruntime", "-o", str(page))
    assert done.exit_code == 0, done.output
    assert re.search(rf"wrote {page}, [12]\.\d MB", done.output)
    text = page.read_text()
    assert "<h1>mlp</h1>" in text
    assert "At N=3 it takes " in text
    assert {s.name for s in sections(bare())} <= set(Page(text.replace(library(), "")).ids)


def test_the_command_compares_with_a_saved_program(tmp_path: Path) -> None:
    page, saved = tmp_path / "mlp.html", tmp_path / "mlp.bkt"
    bucketize.compile(module(), lazy=True).save(saved)
    done = run(str(saved), "--against", str(saved), "--trusted", "--at", "N=2", "-o", str(page))
    assert done.exit_code == 0, done.output
    assert "Beside the other" in page.read_text()


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    saved = tmp_path / "mlp.bkt"
    bucketize.compile(module(), lazy=True).save(saved)
    for words, message in (
        (["zoo:mlp", "--engine", "onnxruntime", "--against", str(saved)], "give one"),
        ([str(saved), "--engine", "onnxruntime"], "onnxruntime reads a model"),
        ([str(saved), "--partition", "--trusted"], "--partition asks models of a model"),
        ([str(saved), "-d", "log"], "was decided when it was compiled"),
        (["zoo:mlp", "--trusted"], "no saved program is given"),
    ):
        done = run(*words, "-o", str(tmp_path / "x.html"))
        assert done.exit_code == 2
        assert message in done.output


def test_times_that_are_not_of_a_call_say_so() -> None:
    """Of kernels alone, and with weights as far away as choices assume."""
    text = {section.name: section.text for section in sections(whole())}
    assert "without what a call takes beyond them" in text["frontier"]
    for name in ("frontier", "implementations"):
        assert (
            not text[name] or "Weights are taken to come from beyond the near caches" in text[name]
        )


def test_next_to_nothing_is_not_drawn_large() -> None:
    """The axis of what is lost goes up to a hundredth at least, and times that agree have none."""
    pictures = {p.title: p for s in sections(whole()) for p in s.parts if isinstance(p, Picture)}
    (scale,) = re.findall(
        r'"scale": {"domain": (\[.*?\])}',
        pictures["What is lost over N"].chart.to_json(indent=None),
    )
    assert json.loads(scale)[1] >= 0.01
    seconds = whole().frames["frontier"]["seconds"]
    assert ("Time over compiling [s]" in pictures) == (seconds.max() > 1.001 * seconds.min())


def test_the_library_is_bundled_once_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled: list[str] = []

    def bundle(_: str, version: str) -> str:
        bundled.append(version)
        return "the script"

    monkeypatch.setattr("vl_convert.javascript_bundle", bundle)
    monkeypatch.setenv("BUCKETIZE_CACHE", str(tmp_path / "cache"))
    process = library.__wrapped__  # which remembers nothing
    assert process() == process() == "the script"
    assert len(bundled) == 1
    monkeypatch.setattr(sys.modules[library.__module__], "version", lambda _: "0")
    assert (process(), len(bundled)) == ("the script", 2)
