"""README and docs: every block of code runs and prints what it says, every link leads somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from blocks import Page
from markdown_it import MarkdownIt

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(
            p
            for f in ("docs", "examples", "runtime", "tuning_logs")
            for p in (ROOT / f).rglob("*.md")
        ),
    ]
)
APART = ROOT / "docs" / "extending.md"  # it adds ops for good: tests/test_extending.py runs it


RUN = ("python", "console")
READ = ("text", "yaml", "c")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [p for p in PAGES if p != APART], ids=name)
def test_the_blocks_of_a_page(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("tuning_logs", "docs", "examples"):  # what pages name of the repository
        (tmp_path / name).symlink_to(ROOT / name)
    for reason in Page(path, quick=not request.config.getoption("--every-case")).run():
        print(reason)


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_each_block_is_fenced_and_says_what_it_is(path: Path) -> None:
    """So that none is passed by, and that of those to read is decided, here."""
    blocks = [t for t in MarkdownIt().parse(path.read_text()) if t.type in ("fence", "code_block")]
    for block in blocks:
        assert block.type == "fence", f"indented: {block.content}"
        assert block.info.startswith("{") or block.info in (*RUN, *READ), block.content
