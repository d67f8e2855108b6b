"""README and docs: every block of code runs, and prints what stands under it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blocks import PAGES, ROOT, Page
from markdown_it import MarkdownIt

APART = ROOT / "docs" / "extending.md"  # it adds ops for good: tests/test_extending.py runs it
RUN = ("python", "console")
READ = ("text", "yaml", "c")
REASON = re.compile(r'(start|next) (".+"|if\(quick, reason=".+"\))|end')


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [p for p in PAGES if p != APART], ids=name)
def test_the_blocks_of_a_page(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("docs", "examples", "tuning_logs"):  # what pages name of the repository
        (tmp_path / folder).symlink_to(ROOT / folder)
    Page(path, quick=not request.config.getoption("--every-case")).run()


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_each_block_says_what_it_is_or_why_it_is_not_run(path: Path) -> None:
    """So that none is passed by, and that of those to read is decided, here."""
    text = path.read_text()
    blocks = [t for t in MarkdownIt().parse(text) if t.type in ("fence", "code_block")]
    for block in blocks:
        assert block.type == "fence", f"indented: {block.content}"
        assert block.info.startswith("{") or block.info in (*RUN, *READ), block.content
    for reason in re.findall(r"<!-- skip: (.*) -->", text):
        assert REASON.fullmatch(reason), reason


def page(folder: Path, text: str, *, quick: bool = True) -> Page:
    (folder / "page.md").write_text(text)
    return Page(folder / "page.md", quick)


PRINTS = "```python\nprint(6 * 7)\n```\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (PRINTS, "no block shows what is printed: 42"),
        (PRINTS + PRINTS, "no block shows what is printed: 42"),
        (PRINTS + "```text\n43\n```", "Expected:\n    43\nGot:\n    42"),
        ("```python\nx = 42\n```\n\n```text\n42\n```", "Expected:\n    42\nGot nothing"),
        ("```python\n1 / 0\n```", "division by zero"),
        ("```console\n$ bucketize zoo\nresnet18\n```", "bucketize zoo\nExpected"),
        ("```console\n$ bucketize rum\n```", "No such command 'rum'"),
        ("```console\n$ echo so; false\n```", "echo so; false\nso"),
        ("```console\nbucketize zoo\n```", "begins with"),
        ('<!-- skip: next if(quick, reason="-") -->\n```python\n1 / 0\n```', "division by zero"),
    ],
)
def test_what_is_wrong_in_a_block_is_found(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(Exception, match=re.escape(fault)):  # of many kinds: the block's own
        page(tmp_path, text, quick=False).run()


def test_what_is_right_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"""
{PRINTS}
```text
4...
```

```console
$ sleep 60 &
$ echo one \\
    two > file
$ cat file
one   two
$ bucketize zoo     # the models
mlp ...
```

<!-- skip: next if(quick, reason="it is not run") -->
```python
1 / 0
```

```python
import pathlib

assert pathlib.Path("file").read_text() == "one two\\n"
```
"""
    shown = page(tmp_path, text)
    shown.run()
    (beside,) = shown.beside
    assert beside.returncode is not None
