"""The built site, as text and in a real Chromium: links, formulas, menus, widths, nothing from the network.

`make docs` builds it; where there is none, these tests do.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
SHOWN = [
    *("index", "start", "howto/index", "howto/bounds", "howto/persons", "howto/epsilon", "howto/quality"),
    *("howto/office", "howto/from-sklearn", "howto/from-r", "howto/cleaning"),
    *("howto/intervals", "howto/kinds", "howto/big-data", "howto/approve", "explanation/index"),
    *("explanation/guarantee", "explanation/mechanism", "reference/index", "reference/modelfile"),
    *("reference/api/PrivateLinearRegression", "reference/api/core", "evidence/index", "evidence/speed"),
    *("auto_gallery/index", "cli", "schema", "theory", "threat-model", "proofs"),
    *(f"auto_gallery/{path.stem}" for path in sorted((ROOT / "docs" / "gallery").glob("plot_*.py"))),
    *("comparison", "inference", "audit", "rule", "field", "formulas", "combinations", "reproduction"),
    *("discrete-gaussian", "nist", "habits", "scale", "weights", "quantiles"),
]
PHONE, DESKTOP = 390, 1280


@pytest.fixture(scope="session")
def site() -> Path:
    """The built site; one is made where there is none."""
    if not (SITE / "index.html").exists():
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", str(SITE)]
        subprocess.run(command, check=True, cwd=ROOT)
    return SITE


class Page(HTMLParser):
    """What a page links to, what it loads, which anchors it has, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.text: list[str] = []
        self._skipped = 0
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.anchors |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload", "modulepreload"):
            self.loads.append(found["href"])
        elif tag in ("script", "img", "iframe", "source", "video") and "src" in found:
            self.loads.append(found["src"])
        self._skipped += tag in ("script", "style", "pre", "code")

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= tag in ("script", "style", "pre", "code")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.text.append(data)


@cache
def parsed(path: Path) -> Page:
    return Page(path)


def pages(site: Path) -> list[Path]:
    return [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]


def test_there_are_pages(site: Path) -> None:
    assert len(pages(site)) > 60
    assert not [name for name in SHOWN if not (site / f"{name}.html").exists()]


def test_every_link_and_anchor_resolves(site: Path) -> None:
    broken = []
    for path in pages(site):
        for link in parsed(path).links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(url.fragment) if target.suffix == ".html" else ""
            if not target.exists() or (anchor and anchor not in parsed(target).anchors):
                broken.append((path.name, link))
    assert not broken


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in pages(site):
        for load in parsed(path).loads:
            url = urlsplit(load)
            assert url.scheme in ("", "data") and not url.netloc, (path.name, load)
            if not url.scheme:
                assert (path.parent / unquote(url.path)).exists(), (path.name, load)
    for style in (site / "_static").rglob("*.css"):
        if "mathjax" not in style.parts:
            text = style.read_text("utf-8", errors="replace")
            assert "url(http" not in text and "url(//" not in text and "@import url" not in text, style.name


def test_no_formula_is_left_as_text(site: Path) -> None:
    for path in pages(site):
        text = "".join(parsed(path).text)
        assert "$$" not in text, path.name
        outside = re.sub(r"\\\(.*?\\\)|\\\[.*?\\\]", "", text, flags=re.DOTALL)
        assert not re.search(r"\\(frac|sum|varepsilon|Pr|mathsf)\b", outside), path.name


def open_page(driver: webdriver.Chrome, path: Path, width: int) -> None:
    """Open from disk at this width; formulas are set, and nothing was asked of the network."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(path.as_uri())
    if 'class="math notranslate' in path.read_text("utf-8"):
        done = "return window.MathJax && MathJax.startup ? MathJax.startup.promise.then(() => true) : false"
        WebDriverWait(driver, 20).until(lambda d: d.execute_script(done))
    messages = [entry["message"] for entry in driver.get_log("performance")]
    requests = [message for message in messages if "Network.requestWillBeSent" in message]
    assert all('"url":"file:' in message or '"url":"data:' in message for message in requests)
    loud = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert not loud, (path.name, loud)


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize("name", SHOWN)
def test_a_page_fits_its_window(site: Path, chromium: webdriver.Chrome, name: str, width: int) -> None:
    open_page(chromium, site / f"{name}.html", width)
    assert chromium.execute_script("return document.documentElement.scrollWidth") <= width
    cut = chromium.execute_script(
        """
        const limit = arguments[0];
        const scrolls = e => e && (["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX)
                                   || scrolls(e.parentElement));
        return [...document.querySelectorAll(":is(p, table, img, pre, dl)")].filter(e => e.closest("article"))
          .filter(e => e.getBoundingClientRect().right > limit + 1 && !scrolls(e))
          .map(e => e.outerHTML.slice(0, 120));
        """,
        width,
    )
    assert not cut
    assert chromium.find_element(By.TAG_NAME, "h1").is_displayed()
    pictures = "return [...document.querySelectorAll('article img')].filter(e => e.loading != 'lazy')"
    sizes = chromium.execute_script(pictures + ".map(e => e.naturalWidth)")
    assert all(size > 0 for size in sizes), "a picture is missing"


@pytest.mark.parametrize("name", ["explanation/guarantee", "explanation/mechanism", "howto/epsilon"])
def test_formulas_are_set_without_errors(site: Path, chromium: webdriver.Chrome, name: str) -> None:
    path = site / f"{name}.html"
    open_page(chromium, path, DESKTOP)
    wanted = path.read_text("utf-8").count('class="math notranslate')
    found = chromium.find_elements(By.CSS_SELECTOR, "mjx-container")
    assert len(found) == wanted > 0
    assert not chromium.find_elements(By.CSS_SELECTOR, "mjx-merror, [data-mjx-error]")
    assert all(formula.size["width"] > 0 and formula.size["height"] > 5 for formula in found)
    fonts = (
        "return document.fonts.ready.then(() => [...document.fonts].filter(f => f.status == 'loaded').length)"
    )
    assert chromium.execute_script(fonts) > 0  # MathJax's fonts come with the site


def test_the_menu_of_a_desktop(site: Path, chromium: webdriver.Chrome) -> None:
    open_page(chromium, site / "index.html", DESKTOP)
    bar = chromium.find_elements(By.CSS_SELECTOR, ".bd-header .navbar-nav a.nav-link")
    names = [link.text for link in bar if link.is_displayed()]
    assert names[:6] == ["Start", "How-to", "Explanation", "Reference", "Gallery", "Evidence"]
    next(link for link in bar if link.text == "Reference").click()
    assert chromium.find_element(By.TAG_NAME, "h1").text.startswith("Reference")
    side = [link.text for link in chromium.find_elements(By.CSS_SELECTOR, ".bd-sidebar-primary a")]
    assert "The command line" in side and "PrivateLinearRegression" in side


def test_the_menu_of_a_phone(site: Path, chromium: webdriver.Chrome) -> None:
    open_page(chromium, site / "howto/bounds.html", PHONE)
    button = chromium.find_element(By.CSS_SELECTOR, ".bd-header button.primary-toggle")
    assert button.is_displayed()
    button.click()
    WebDriverWait(chromium, 5).until(
        lambda d: any(e.is_displayed() for e in d.find_elements(By.LINK_TEXT, "Explanation"))
    )
    link = next(e for e in chromium.find_elements(By.LINK_TEXT, "Explanation") if e.is_displayed())
    chromium.execute_script("arguments[0].click()", link)
    assert chromium.find_element(By.TAG_NAME, "h1").text.startswith("Explanation")


def test_the_search_finds_a_word(site: Path, chromium: webdriver.Chrome) -> None:
    open_page(chromium, site / "index.html", DESKTOP)
    chromium.get((site / "search.html").as_uri() + "?q=ledger")
    results = WebDriverWait(chromium, 20).until(
        lambda d: d.find_elements(By.CSS_SELECTOR, "#search-results li a")
    )
    assert any("edger" in result.text for result in results)


def test_every_command_is_on_the_page(site: Path) -> None:
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    try:
        import commands
    finally:
        sys.path.pop(0)
    text = (site / "cli.html").read_text("utf-8")
    found = commands.tree()
    assert len(found) > 15
    for name, command in found.items():
        assert f'id="command-{name.replace(" ", "-")}"' in text, name
        for option in commands.parts(command)[1]:
            assert option.opts[0] in text, (name, option.opts)
