"""Sphinx: the site that `make docs` builds of these pages."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes

from bucketize.release import release as last_tag

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

DEV = "dev"
site_version = os.environ.get("BUCKETIZE_SITE_VERSION", DEV)  # of versions.py
is_release = site_version != DEV

project = "bucketize"
release = version = site_version if is_release else last_tag()
html_title = f"bucketize {release}" if is_release else f"bucketize {release}+"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
    "pictures",  # of this folder
]
highlight_language = "none"  # of blocks that name none
default_role = "code"  # single backticks, as docstrings and help texts have them
smartquotes = False  # it makes a dash of the two of an option

myst_heading_anchors = 3  # those that GitHub makes: links to them are checked

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
add_module_names = False
python_maximum_signature_line_length = 80
napoleon_numpy_docstring = False

copybutton_exclude = ".linenos, .go"  # what a command prints
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"

linkcheck_anchors = False  # pages that scripts make have them only in a browser

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_end": ["version-switcher", "theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "footer_start": [],
    "footer_end": [],
    "switcher": {
        "json_url": "../versions.json",  # of all versions, beside their folders
        "version_match": site_version,
    },
    "check_switcher": False,  # it is written when all versions are there
}

# Files of the repository that are pages of the site, too, by another place.
PAGES = {
    "examples/library/README.md": "/how-to/languages.md",
    "tuning_logs/README.md": "/reference/log.md",
}

# Markup of Sphinx that not everybody can read: columns without a name, lists without a term.
NAMELESS = '<th class="head[^"]*"><p></p></th>'
ALL_NAMELESS = re.compile(rf"<thead>\s*<tr[^>]*>(?:{NAMELESS}\s*)+</tr>\s*</thead>")
PARAMETERS = re.compile(r'<dl>\s*((?:<dd><em class="sig-param">.*?</dd>\s*)+)</dl>', re.DOTALL)


def linked_here(app: Any, page: str, source: list[str]) -> None:
    """Have links to those files lead to their pages."""
    del app, page
    for file, there in PAGES.items():
        source[0] = source[0].replace(f"](../{file}", f"]({there}")


def examples_as_code(app: Any, ctx: Any, lines: list[str]) -> None:
    """Have the examples of a command's help stand as they are typed."""
    del app, ctx
    head = ["Examples:", "", ".. code-block:: text", ""]
    made = [head if line == "| Examples:" else [line.replace("|  ", "   ")] for line in lines]
    lines[:] = [line for part in made for line in part]


def dashed(app: Any, page: nodes.document) -> None:
    """Put a dash between a parameter and what it is, which Sphinx leaves to `smartquotes`."""
    del app
    for text in page.findall(nodes.Text):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def readable(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Leave out what a column or a list has not: its name, its terms."""
    del app, page, template, tree
    body = ALL_NAMELESS.sub("", context.get("body", ""))
    body = re.sub(NAMELESS, "<td></td>", body)
    context["body"] = PARAMETERS.sub(lambda list_: divided(list_[1]), body)


def divided(parameters: str) -> str:
    """The parameters of a signature, one on a line."""
    lines = parameters.replace("<dd>", "<div>").replace("</dd>", "</div>")
    return f'<div class="sig-params">{lines}</div>'


def is_fault(record: logging.LogRecord) -> bool:
    """Whether a warning is one: a place in a toctree for pages to come is none."""
    return getattr(record, "subtype", None) != "empty_glob"  # without a type: not suppressed by it


def setup(app: Any) -> None:
    """What Sphinx calls first."""
    app.connect("source-read", linked_here)
    app.connect("sphinx-click-process-description", examples_as_code)
    app.connect("doctree-read", dashed)
    app.connect("html-page-context", readable)
    logging.getLogger("sphinx.sphinx.directives.other").addFilter(is_fault)
