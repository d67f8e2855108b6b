"""The page in a browser: Chromium without a window."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reported import HOSTILE, bare, whole

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium to look at the page with"),
    pytest.mark.filterwarnings("ignore::bucketize.errors.BusyWarning"),
]
DRAWN_MS = 60_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "page.html"
    whole().write(path)
    return path


class Opened:
    """A page that is drawn, and all that its console said."""

    def __init__(self, browser: Any, file: Path, width: int = 1280, **how: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(viewport={"width": width, "height": 800}, **how)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-drawn]", timeout=DRAWN_MS)


@pytest.fixture(scope="module")
def opened(browser: Any, file: Path) -> Iterator[Opened]:
    its = Opened(browser, file)
    yield its
    its.context.close()


def test_the_page_is_drawn_without_a_word(opened: Opened, file: Path) -> None:
    """Neither errors nor warnings, and no request but for the file; each chart has something."""
    assert opened.said == []
    assert opened.asked == [file.as_uri()]
    page = opened.page
    charts = page.locator(".chart")
    assert charts.count() == int(page.evaluate("document.documentElement.dataset.drawn"))
    assert charts.count() > 8
    assert page.locator(".chart:not(:has(svg path))").count() == 0
    assert page.locator("h1").inner_text() == HOSTILE


def test_all_sections_are_there_and_nothing_is_cut(opened: Opened) -> None:
    page = opened.page
    names = page.eval_on_selector_all("nav a", "all => all.map((a) => a.hash.slice(1))")
    assert len(names) == 13
    for name in names:
        assert page.locator(f"section#{name} h2").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_pictures_lie_below_their_titles_and_at_the_edge(opened: Opened) -> None:
    figures = opened.page.evaluate(
        """[...document.querySelectorAll("figure")].map((figure) => {
            const [title, chart] = [...figure.children].map((c) => c.getBoundingClientRect());
            return [title.bottom <= chart.top, title.left === chart.left];
        })"""
    )
    assert figures == [[True, True]] * opened.page.locator("figure").count()


def test_a_kernel_is_opened_by_keyboard(opened: Opened) -> None:
    """From the list of the kernels to the schedule, and on to the text."""
    page = opened.page
    kernel = page.locator("details.kernel").first
    kernel.locator("summary").focus()
    assert not kernel.locator("dl").is_visible()
    page.keyboard.press("Enter")
    assert kernel.locator("dd", has_text="mr=").is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.closest('details.text[open]')")
    assert page.locator("details.text[open] pre").first.is_visible()


def test_names_of_the_graph_stand_before_its_lines(opened: Opened) -> None:
    name = opened.page.locator("#kernels .chart .mark-text text").first
    shown = name.evaluate("n => [getComputedStyle(n).paintOrder, getComputedStyle(n).stroke]")
    assert shown == ["stroke", "rgb(255, 255, 255)"]


def test_a_kernel_of_the_graph_leads_to_its_entry(opened: Opened) -> None:
    page = opened.page
    page.evaluate("location.hash = ''")
    page.locator("#kernels .chart .mark-symbol.role-mark path").nth(1).click()
    page.wait_for_function("location.hash === '#kernel-1-2'")
    assert page.locator("#kernel-1-2 dl").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(browser: Any, file: Path, scheme: str) -> None:
    """axe-core finds nothing: contrast, names, order of headings, tables, what takes the focus."""
    from axe_playwright_python.sync_playwright import Axe

    its = Opened(browser, file, color_scheme=scheme, reduced_motion="reduce")
    its.page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    found = Axe().run(its.page)
    assert found.violations_count == 0, found.generate_report()
    its.context.close()


def test_it_fits_on_a_phone(browser: Any, file: Path) -> None:
    its = Opened(browser, file, width=360)
    assert its.page.evaluate("document.documentElement.scrollWidth") == 360
    assert its.said == []
    its.context.close()


def test_print_has_all_and_nothing_scrolls(opened: Opened) -> None:
    page = opened.page
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.locator("section#memory h2").is_visible()
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.scroll')).overflowY") == "visible"
    )
    page.locator(".chart svg").first.evaluate("svg => svg.setAttribute('height', 3000)")
    assert page.locator(".chart svg").first.bounding_box()["height"] < 1017  # that of a page
    assert len(page.pdf(format="A4")) > 20_000
    page.emulate_media(media="screen")


def test_a_bare_page_is_drawn_as_well(browser: Any, tmp_path: Path) -> None:
    bare().write(tmp_path / "bare.html")
    its = Opened(browser, tmp_path / "bare.html")
    assert its.said == []
    assert its.page.locator(".wanted").count() == 7
    its.context.close()
