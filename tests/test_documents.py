"""README and docs: every block of code runs, and prints what stands under it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from blocks import BY_DIST, DIST, NEITHER, PAGES, PARSED, ROOT, RUN, Page, installs, kinds
from command_lines import is_install, is_of_ci, names
from markdown_it import MarkdownIt

APART = ROOT / "docs" / "extending.md"  # it adds ops for good: tests/test_extending.py runs it
BY_THE_CLOCK = ".*other work slows|.*trials is confirmed|.* have no verdict"
CODE = ("python", "console")
READ = ("text", "yaml", "c")
COMMAND = re.compile(r"bucketize [a-z]([^\n]*\S)?")
REASON = re.compile(r'(start|next) ".+"|end')


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.filterwarnings(f"default:{BY_THE_CLOCK}")
@pytest.mark.parametrize("path", [p for p in PAGES if p != APART], ids=name)
def test_the_blocks_of_a_page(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("docs", "examples", "tuning_logs"):  # what pages name of the repository
        (tmp_path / folder).symlink_to(ROOT / folder)
    Page(path).run()


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_each_block_says_what_it_is_or_why_it_is_not_run(path: Path) -> None:
    """So that none is passed by, and that of those to read is decided, here."""
    text = path.read_text()
    blocks = [t for t in MarkdownIt().parse(text) if t.type in ("fence", "code_block")]
    for block in blocks:
        assert block.type == "fence", f"indented: {block.content}"
        assert block.info.startswith("{") or block.info in (*CODE, *READ), block.content
    for reason in re.findall(r"<!-- skip: (.*) -->", text):
        assert REASON.fullmatch(reason), reason


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_each_block_is_run(path: Path) -> None:
    """All but one of a cluster and one of optimum, which are parsed."""
    is_parsed = path in (ROOT / "docs" / "scaling.md", ROOT / "docs" / "onnxruntime.md")
    its = Counter(kinds(path).values())
    assert its.keys() <= {RUN, BY_DIST, PARSED}
    assert its[PARSED] == is_parsed


def test_make_dist_runs_what_it_is_said_to_run() -> None:
    """Each `pip install`, and the one page that has blocks which nothing else runs."""
    make = (ROOT / "Makefile").read_text()
    for words in ("install build/dist/venv", "install --extras build/dist/venv"):
        assert f"tests/blocks.py {words}\n" in make
    pages = {name(path) for path in PAGES if DIST in path.read_text()}
    assert pages == set(re.findall(r"tests/blocks.py run \S*?([a-z]+/[\w/]+\.md)", make))
    assert is_of_ci("make dist  # the wheels")
    assert not is_of_ci("make demo")


@pytest.mark.parametrize("path", [p for p in PAGES if p.stem != "CHANGELOG"], ids=name)
def test_commands_in_sentences_and_tables_have_their_options(path: Path) -> None:
    for token in MarkdownIt().enable("table").parse(path.read_text()):
        for span in token.children or []:
            if span.type == "code_inline" and COMMAND.fullmatch(span.content):
                names(span.content)


def page(folder: Path, text: str) -> Page:
    (folder / "page.md").write_text(text)
    return Page(folder / "page.md")


SKIP = '<!-- skip: next "it is not run" -->\n'
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
        ("<!-- substitute: 7 -> 8 -->\n", "nothing to substitute: <!-- substitute: 7 -> 8 -->"),
        ("```console\n$ pip install '.[none]'\n```", ".[none]"),
        (f"{SKIP}```console\n$ bucketize top --nap 3 log.csv\n```", "No such option '--nap'"),
        ("```console\n$ make demmo\n```", "demmo"),
        (f"{SKIP}```console\n$ kubectl apply -f none.yaml\n```", "no file none.yaml"),
        (f"{SKIP}```console\n$ make demmo\n```", "demmo"),
        (f"{SKIP}```console\n$ make demo FOR=me\n```", "FOR is no variable"),
        (f"{SKIP}```python\n1 +\n```", "invalid syntax"),
        ("<!-- substitute: 80 -> a free port -->\n```console\n$ true 80 &\n```", "nothing answers"),
    ],
)
def test_what_is_wrong_in_a_block_is_found(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(Exception, match=re.escape(fault)):  # of many kinds: the block's own
        page(tmp_path, text).run()


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

<!-- skip: next "it is not run" -->
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


def test_what_is_in_the_background_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = """
<!-- substitute: 8000 -> a free port -->
<!-- substitute: # until it is stopped -> & -->
```console
$ python -m http.server --bind 127.0.0.1 8000  # until it is stopped
$ curl --silent --fail localhost:8000/page.md
...its own text...
```

its own text
"""
    page(tmp_path, text).run()


def test_spans_of_sentences_name_what_there_is() -> None:
    names("bucketize log merge --output all.csv")
    names("bucketize compile --weight-bytes")
    for wrong in ("bucketize rum MODEL", "bucketize log merges", "bucketize run --wieght"):
        with pytest.raises(AssertionError, match="no such"):
            names(wrong)


def test_kinds_of_blocks(tmp_path: Path) -> None:
    text = f"""
{PRINTS}
{SKIP}{PRINTS}
{SKIP}```console
$ helm install
```

```console
$ pip install .
```

{DIST}
{PRINTS}
<!-- invisible-code-block: python
1 / 0
-->
"""
    told = kinds(page(tmp_path, text).path)
    assert list(told.values()) == [RUN, PARSED, NEITHER, BY_DIST, BY_DIST]


def test_what_make_dist_runs_is_run_by_it(tmp_path: Path) -> None:
    text = f"{DIST}\n{PRINTS}\n```text\n43\n```"
    page(tmp_path, text).run()
    with pytest.raises(AssertionError, match="Got:\n    42"):
        Page(tmp_path / "page.md", is_whole=True).run()


def test_those_that_ask_for_least_are_installed_first() -> None:
    every = installs()
    assert every[0] == "pip install ./runtime"
    assert [*map(is_install, every)] == [True] * len(every)
    assert every == sorted(every, key=lambda command: len(command.split()))
