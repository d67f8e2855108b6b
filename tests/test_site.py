"""The site of docs/: links that hold without it, names that its reference has, its pictures.

`make docs` builds it, and checks the links among its pages.
"""

from __future__ import annotations

import importlib
import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pandas as pd
import pytest
from blocks import PAGES, ROOT
from markdown_it import MarkdownIt
from markdown_it.token import Token

import bucketize
import dispatchers
from bucketize import analysis

DOCS = ROOT / "docs"
API = "".join((DOCS / "reference" / f"{name}.md").read_text() for name in ("python", "dispatchers"))


def tokens(path: Path) -> Iterator[Token]:
    for token in MarkdownIt().enable("table").parse(path.read_text()):
        yield token
        yield from token.children or []


def anchors(path: Path) -> set[str]:
    """Of the headings, as GitHub and MyST make them."""
    every = list(tokens(path))
    titles = (t for h, t in itertools.pairwise(every) if h.type == "heading_open")
    return {re.sub(r"[^\w\- ]", "", t.content.lower()).replace(" ", "-") for t in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    links = [str(t.attrs[a]) for t in tokens(path) for a in ("href", "src") if a in t.attrs]
    for link in links:
        file, _, anchor = link.partition("#")
        if "://" in file:
            continue
        target = path.parent / file if file else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_reference_has_every_public_name() -> None:
    documented = set(re.findall(r"^\.\. auto\w+:: ([\w.]+)$", API, re.MULTILINE))
    public = {f"bucketize.{name}" for name in bucketize.__all__}
    public |= {f"dispatchers.{name}" for name in dispatchers.__all__}
    assert public - {"bucketize.analysis"} <= documented
    errors = {e.__name__ for e in every_error(bucketize.BucketizeError)}
    assert {f"bucketize.errors.{name}" for name in errors} <= documented


def every_error(kind: type[Exception]) -> Iterator[type[Exception]]:
    for each in kind.__subclasses__():
        if each.__module__ == "bucketize.errors":
            yield each
        yield from every_error(each)


def test_the_page_of_analysis_has_every_public_name() -> None:
    """What is not imported with the package, `automodule` passes by: it is named."""
    page = (DOCS / "reference" / "analysis.md").read_text()
    late = set(analysis.__all__) - set(vars(analysis))
    assert all(f":: bucketize.analysis.{name}\n" in page for name in late)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A module of docs/, by its name."""
    monkeypatch.syspath_prepend(DOCS)
    return importlib.import_module


def test_all_versions_are_listed_and_the_newest_release_is_home(
    module: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    link = module("versions").link

    def home() -> str:
        (found,) = re.findall("url=(.*?)/", (tmp_path / "index.html").read_text())
        return found

    for version in ("dev", "0.9.0", "0.10.0"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "objects.inv").touch()
        link(tmp_path, "/")
        assert home() == ("dev" if version == "dev" else version)
    assert link(tmp_path, "https://there/docs/") == ["dev", "0.10.0", "0.9.0"]
    told = json.loads((tmp_path / "versions.json").read_text())
    assert told[1] == {"version": "0.10.0", "url": "https://there/docs/0.10.0/"}


def test_a_commit_with_a_tag_is_a_release(
    module: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was installed: an environment is not made anew for a tag or a commit."""
    versions = module("versions")
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    told = []
    for commands in ("init -q;commit", "tag v1.2.0;tag figures", "commit"):
        for command in commands.split(";"):
            words = ["-qm", "-", "--allow-empty"] if command == "commit" else []
            git = ["git", "-c", "user.name=-", "-c", "user.email=-", *command.split(), *words]
            subprocess.run(git, cwd=tmp_path, check=True)
        told.append(versions.tag())
    assert told == ["", "1.2.0", ""]


def test_the_pictures_are_drawn(module: Callable[[str], ModuleType], tmp_path: Path) -> None:
    pictures = module("pictures")
    pictures.draw(tmp_path / "out")
    drawn = {path.stem for path in (tmp_path / "out").glob("*.svg")}
    assert drawn == set(pictures.PICTURES) == {p.stem for p in (DOCS / "frames").glob("*.csv")}
    for path in (tmp_path / "out").iterdir():
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    shown = {
        s for p in DOCS.rglob("*.md") for s in re.findall(r"pictures/(\w+).svg", p.read_text())
    }
    assert shown == drawn


def test_the_picture_of_engines_shows_the_figures_of_the_pages() -> None:
    text = (ROOT / "README.md").read_text() + (DOCS / "figures.md").read_text()
    told = " ".join(text.replace("*", "").split())
    frame = pd.read_csv(DOCS / "frames" / "engines.csv", dtype=str)
    assert len(frame) == 23
    missing = [r for r in frame.itertuples() if f"{r.mean} ({r.worst}" not in told]
    assert not missing


def test_a_page_that_not_everybody_can_read_is_a_fault(
    module: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    axe = module("axe")
    if axe.CHROMIUM is None:
        pytest.skip("there is no chromium to look at the page with")
    page = tmp_path / "page.html"
    style = "@media (prefers-color-scheme: dark) { body { background: #000; color: #222 } }"
    page.write_text(
        f'<!doctype html><html lang="en"><title>a page</title><style>{style}</style>'
        '<main><h1>title</h1><img src="a.png"></main></html>'
    )
    told = axe.faults_of([page], "dark")
    assert [line.split(": ")[1] for line in told] == ["color-contrast", "image-alt", "image-alt"]
    assert told[0].startswith(f"{page}, dark, 1280 pixels: color-contrast: ")
    assert told[0].endswith(": <h1>title</h1>")


SILENT = "Max retries exceeded (Caused by NameResolutionError(...))"


@pytest.mark.parametrize(
    ("links", "said", "code"),
    [
        ([("broken", SILENT), ("broken", SILENT)], "no network: none of 2 links", 2),
        ([("working", ""), ("redirected", "to b")], "2 of 2 links to elsewhere answer", 0),
        ([("broken", "404"), ("working", "")], "a.md:3: https://b/0: 404\n1 of 2 links", 1),
        ([("broken", SILENT), ("working", "")], "0 are broken, 1 cannot be reached", 1),
        ([("local", ""), ("unchecked", "")], "0 of 0 links", 0),
    ],
)
def test_links_to_elsewhere_are_told_from_a_network_that_is_not_there(
    module: Callable[[str], ModuleType], links: list[tuple[str, str]], said: str, code: int
) -> None:
    rows = [
        {"filename": "a.md", "lineno": 3, "uri": f"https://b/{i}", "status": status, "info": info}
        for i, (status, info) in enumerate(links)
    ]
    text, exit_code = module("links").told(rows)
    assert said in text
    assert exit_code == code
