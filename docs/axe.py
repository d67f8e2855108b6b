"""Whether everybody can read a site: axe-core looks at its pages as a browser shows them.

In both schemes of colours and at two widths, at 360 pixels at all but contrast, which takes long.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]
SCHEMES = ("light", "dark")
WIDTHS = {1280: {}, 360: {"color-contrast": {"enabled": False}}}


def check(site: Path) -> None:
    """Exit with what is wrong; without a browser, say that no page was looked at."""
    if CHROMIUM is None:
        print("there is no chromium: axe-core looked at no page")
        return
    pages = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    with ProcessPoolExecutor(len(SCHEMES)) as pool:  # a browser each
        found = [line for lines in pool.map(partial(faults_of, pages), SCHEMES) for line in lines]
    if found:
        sys.exit("\n".join(found))
    print(f"axe-core finds nothing on {len(pages)} pages")


def faults_of(pages: Sequence[Path], scheme: str) -> list[str]:
    """A line for each fault of pages, in one scheme."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(color_scheme=scheme, reduced_motion="reduce")
        return [
            f"{path}, {scheme}, {width} pixels: {fault}"
            for path in pages
            for width in WIDTHS
            for fault in faults(page, path, width)
        ]


def faults(page: Any, path: Path, width: int) -> Iterator[str]:
    """What axe-core says of a page at a width."""
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(path.as_uri())
    told = Axe().run(page, options={"resultTypes": ["violations"], "rules": WIDTHS[width]})
    for violation in told.response["violations"]:
        for node in violation["nodes"]:
            yield f"{violation['id']}: {violation['help']}: {node['html']}"
