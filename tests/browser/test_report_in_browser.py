"""The report in a real Chromium, opened from disk: no console errors, and the numbers are the model's."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from curvedp.cli.workflow import build, release_report, verdict
from curvedp.data import Categorical, Numeric, Schema
from curvedp.data.files import Stated
from curvedp.planning import widths
from curvedp.privacy.budget import Budget
from curvedp.release.ledger import Ledger
from curvedp_studies.forecasts import forecast, plan_page

pytestmark = pytest.mark.browser

SCHEMA = Schema(
    (Numeric("age", 16, 80), Categorical("sector", ("a&b", "c<d")), Numeric("wage", 0, 100)), "wage"
)


def open_page(driver: webdriver.Chrome, path: Path) -> None:
    """Open from disk; nothing on the console, nothing requested but the page itself."""
    driver.get(path.as_uri())
    assert driver.get_log("browser") == []
    requests = [
        entry["message"] for entry in driver.get_log("performance") if "requestWillBeSent" in entry["message"]
    ]
    assert all('"url":"file:' in message or '"url":"data:' in message for message in requests)
    assert driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


def unfold(driver: webdriver.Chrome) -> None:
    """Open what is folded."""
    driver.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")


def at_width(driver: webdriver.Chrome, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def cut(driver: webdriver.Chrome, width: int) -> list[str]:
    """What reaches beyond the screen, or beyond a box that hides or scrolls it.

    A telephone zooms out until everything fits, so that `innerWidth` is no measure.
    """
    found: list[str] = driver.execute_script(
        """
        const cut = [];
        for (const e of document.querySelectorAll('main *')) {
          const box = e.getBoundingClientRect();
          const clipped = ['hidden', 'auto', 'scroll'].includes(getComputedStyle(e).overflowX);
          const outside = box.right > arguments[0] + 1 || box.left < -1;
          if (box.width > 0 && outside) cut.push(e.outerHTML.slice(0, 80));
          if (clipped && e.scrollWidth > e.clientWidth + 1) cut.push(e.outerHTML.slice(0, 80));
        }
        return cut;
        """,
        width,
    )
    return found


def exact(element: WebElement) -> float:
    return float(element.get_attribute("data-value") or "nan")


def test_the_numbers_of_a_release(chromium: webdriver.Chrome, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    table = {
        "age": random.uniform(16, 80, 3000).tolist(),
        "sector": random.choice(["a&b", "c<d"], 3000).tolist(),
        "wage": random.uniform(0, 100, 3000).tolist(),
    }
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3.0, delta=1e-5)
    budget = Budget(1.0, 1e-6)
    model = build(SCHEMA, budget).set_params(ledger=tmp_path / "budget.db").fit(table)
    judgement = verdict(SCHEMA, budget, 3000)
    page = release_report(model, ledger.state(), judgement)
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    open_page(chromium, tmp_path / "report.html")

    assert exact(chromium.find_element(By.ID, "epsilon")) == model.privacy_.epsilon
    assert exact(chromium.find_element(By.ID, "delta")) == model.privacy_.delta
    assert chromium.find_element(By.ID, "mechanism").text == model.privacy_.mechanism
    assert judgement.sentence in chromium.find_element(By.ID, "verdict").text
    assert "Releases charged so far: 1." in chromium.find_element(By.ID, "ledger").text
    unfold(chromium)
    rows = chromium.find_elements(By.CSS_SELECTOR, "#coefficients tbody tr")
    names = [row.find_element(By.TAG_NAME, "td").text for row in rows]
    assert names == [*SCHEMA.feature_names, "(intercept)"]
    cells = [row.find_element(By.CSS_SELECTOR, "td.value") for row in rows]
    assert [exact(cell) for cell in cells] == [*model.coef_.tolist(), model.intercept_]
    shown = [float(cell.text.replace("−", "-").replace(",", "")) for cell in cells if "×" not in cell.text]
    np.testing.assert_allclose(shown, [exact(c) for c in cells if "×" not in c.text], rtol=1e-3)
    for row in chromium.find_elements(By.CSS_SELECTOR, "#parameters tbody tr"):
        name = row.get_attribute("data-name") or ""
        value = row.find_element(By.CSS_SELECTOR, "td.number").get_attribute("data-value")
        assert value == str(model.privacy_.parameters[name])
    curve = chromium.find_element(By.CSS_SELECTOR, "svg.chart polyline")
    assert curve.size["width"] > 200 and curve.size["height"] > 100


def test_the_numbers_of_a_plan(chromium: webdriver.Chrome, tmp_path: Path) -> None:
    table = forecast(5000, 3, Budget(1.0, 1e-6), candidates=[("auto", "auto")], epsilons=(0.5, 1.0, 2.0))
    wide = widths(5000, 3, Budget(1.0, 1e-6))
    (tmp_path / "plan.html").write_text(plan_page([wide], [table]), encoding="utf-8")
    open_page(chromium, tmp_path / "plan.html")
    assert chromium.find_element(By.ID, "title").text == "5,000 rows, 3 features, regression"
    row = chromium.find_element(By.CSS_SELECTOR, "#widths tbody tr")
    assert row.text.startswith(f"a number {wide.intervals[0].half_width:.2g} ")
    row = chromium.find_element(By.CSS_SELECTOR, "#mechanisms tbody tr")
    assert f"{table.rows[0].score:.3f}" in row.text
    assert len(chromium.find_elements(By.CSS_SELECTOR, "svg.chart polyline")) == 2


def test_no_column_of_a_plan_is_cut(chromium: webdriver.Chrome, tmp_path: Path) -> None:
    kinds = [("auto", "auto"), ("statistics", "auto"), ("qop", "directional"), ("qop", "spectral")]
    table = forecast(5000, 3, Budget(1.0, 1e-6), candidates=kinds, epsilons=(0.5, 1.0))
    page = plan_page([widths(5000, 3, Budget(1.0, 1e-6))], [table])
    (tmp_path / "plan.html").write_text(page, encoding="utf-8")
    at_width(chromium, 1200)
    open_page(chromium, tmp_path / "plan.html")
    assert cut(chromium, 1200) == []


@pytest.mark.parametrize("width", [1200, 390])
def test_the_figure_of_intervals(chromium: webdriver.Chrome, tmp_path: Path, width: int) -> None:
    random = np.random.default_rng(3)
    age, sector = random.uniform(16, 80, 6000), random.choice(["a&b", "c<d"], 6000)
    wage = np.clip(20 + 0.5 * age + 5 * (sector == "a&b") + random.normal(0, 8, 6000), 0, 100)
    model = (
        build(SCHEMA, Budget(2.0, 1e-6))
        .set_params(random_state=0)
        .fit({"age": age, "sector": sector, "wage": wage})
    )
    (tmp_path / "report.html").write_text(release_report(model), encoding="utf-8")
    at_width(chromium, width)
    open_page(chromium, tmp_path / "report.html")

    rows = chromium.find_elements(By.CSS_SELECTOR, "figure.intervals .row[data-name]")
    assert [row.get_attribute("data-name") for row in rows] == ["age", "sector=a&b", "sector=c<d"]
    zero = rows[0].find_element(By.CSS_SELECTOR, ".zero").rect["x"]
    for row, (low, high) in zip(rows, model.conf_int().tolist(), strict=True):
        assert row.find_element(By.CSS_SELECTOR, "svg").size["width"] > 250
        bar = row.find_element(By.CSS_SELECTOR, ".whisker").rect
        assert (bar["x"] > zero) == (low > 0) and (bar["x"] + bar["width"] > zero) == (high > 0)
        dot = row.find_element(By.CSS_SELECTOR, ".dot").rect
        assert bar["x"] < dot["x"] + dot["width"] / 2 < bar["x"] + bar["width"]
        assert row.find_element(By.CSS_SELECTOR, ".words").size["height"] < 30  # on one line


LONG = "a-name-without-any-space-that-is-longer-than-a-telephone-is-wide"
WIDE = Schema(
    [
        *(Numeric(f"{LONG}_{i}" if i == 0 else f"x{i}", 0, 1, source="codebook " * 9) for i in range(40)),
        Categorical("town", tuple(f"town {i}" for i in range(40))),
        Numeric("wage", 0, 123_456_789),
    ],
    target="wage",
    release=Stated("the register", audience=LONG, rows=3000),
)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of a release with many columns, charged to a ledger; ε and δ are far too large."""
    folder = tmp_path_factory.mktemp("wide")
    random = np.random.default_rng(5)
    table = {c.name: random.uniform(0, 1, 3000) for c in WIDE.columns if isinstance(c, Numeric)}
    table["wage"] = random.uniform(0, 1e8, 3000)
    table["town"] = random.choice([f"town {i}" for i in range(40)], 3000)
    Ledger.create(folder / "budget.db", epsilon=60, delta=0.5)
    ledger = Ledger(folder / "budget.db", by="Statistics office", purpose="x" * 150)
    model = build(WIDE, Budget(50.0, 0.1)).set_params(ledger=ledger).fit(table)
    (folder / "report.html").write_text(release_report(model, ledger.state()), encoding="utf-8")
    return folder / "report.html"


@pytest.mark.parametrize("folded", [True, False], ids=["folded", "unfolded"])
@pytest.mark.parametrize("width", [1200, 768, 390, 320])
def test_nothing_is_cut_at_any_width(
    chromium: webdriver.Chrome, wide: Path, width: int, folded: bool
) -> None:
    at_width(chromium, width)
    open_page(chromium, wide)
    if not folded:
        unfold(chromium)
    assert cut(chromium, width) == []
    headings = [heading.text for heading in chromium.find_elements(By.TAG_NAME, "h2")]
    assert headings[:4] == [
        "What is promised",
        "Before you rely on it",
        "The budget it came out of",
        "What is not covered",
    ]
    assert headings[-2:] == ["What was released", "For whoever approves it"]
    assert len(chromium.find_elements(By.CSS_SELECTOR, "figure.intervals .row[data-name]")) == 30


def test_a_broken_promise_is_red(chromium: webdriver.Chrome, wide: Path) -> None:
    at_width(chromium, 1200)
    open_page(chromium, wide)
    promise = chromium.find_element(By.CSS_SELECTOR, "#promise .box")
    assert "nearly the same" not in promise.text and "5.19 × 10²¹" in promise.text
    for element in (promise, chromium.find_element(By.ID, "epsilon"), chromium.find_element(By.ID, "delta")):
        red, green, blue = map(int, re.findall(r"\d+", element.value_of_css_property("color"))[:3])
        assert red > 150 and red > 2 * green and red > 2 * blue
    levels = [
        e.get_attribute("data-level") for e in chromium.find_elements(By.CSS_SELECTOR, "#warnings .box")
    ]
    assert levels[:2] == ["red", "red"] and set(levels[2:]) == {"amber"}


def test_a_print_has_everything(chromium: webdriver.Chrome, wide: Path) -> None:
    """On paper nothing is folded, nothing is cut, and colours are those of light paper."""
    at_width(chromium, 718)  # A4 between its margins
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    try:
        open_page(chromium, wide)
        assert cut(chromium, 718) == []
        assert chromium.find_element(By.TAG_NAME, "body").value_of_css_property("background-color") in (
            "rgba(255, 255, 255, 1)",
            "rgb(255, 255, 255)",
        )
        last = chromium.find_elements(By.CSS_SELECTOR, "#coefficients tbody tr")[-1]
        assert last.size["height"] > 10 and last.size["width"] > 300
        shown = chromium.execute_script(
            "return arguments[0].checkVisibility({contentVisibilityAuto: true})", last
        )
        assert shown
        pdf = base64.b64decode(chromium.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
        assert pdf.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 3
    finally:
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.parametrize("width", [1200, 400])
def test_the_page_of_whoever_approves_it_is_whole(
    chromium: webdriver.Chrome, tmp_path: Path, width: int
) -> None:
    random = np.random.default_rng(3)
    table = {
        "age": random.uniform(16, 80, 3000).tolist(),
        "sector": random.choice(["a&b", "c<d"], 3000).tolist(),
        "wage": random.uniform(0, 100, 3000).tolist(),
    }
    Ledger.create(tmp_path / "budget.db", epsilon=3.0, delta=1e-5)
    model = build(SCHEMA, Budget(1.0, 1e-6)).set_params(ledger=tmp_path / "budget.db").fit(table)
    page = release_report(model, Ledger(tmp_path / "budget.db").state())
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    at_width(chromium, width)
    open_page(chromium, tmp_path / "report.html")
    assert cut(chromium, width) == []
    rows = chromium.find_elements(By.CSS_SELECTOR, "#criteria tbody tr")
    assert [row.get_attribute("data-name") for row in rows] == ["singling out", "linkability", "inference"]
    for cell in chromium.find_elements(By.CSS_SELECTOR, "#criteria tbody td > span"):
        assert cell.size["width"] > 0.4 * min(width, 500) / (1 if width < 500 else 2), cell.text
    assert len(chromium.find_elements(By.CSS_SELECTOR, "#framework dt")) == 4
    assert chromium.find_element(By.ID, "owed").is_displayed()
