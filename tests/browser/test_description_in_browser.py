"""The page of a description in a real Chromium, at the width of a desk and of a phone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from curvedp.analyses.explore import Description, describe
from curvedp.analyses.explore.describe import describe_page
from curvedp.data import Categorical, Numeric, Schema

pytestmark = pytest.mark.browser

LEVELS = [f"level <{i}> & more" for i in range(11)]


@pytest.fixture(scope="module")
def description() -> Description:
    random = np.random.default_rng(5)
    x = random.normal(0, 1, (20_000, 8)) @ np.triu(np.ones((8, 8)))
    table: dict[str, object] = {f"a_rather_long_name_{j}": x[:, j] for j in range(8)}
    table["kind"] = random.choice(LEVELS, 20_000)
    columns = [*(Numeric(f"a_rather_long_name_{j}", -12, 12) for j in range(8)), Categorical("kind", LEVELS)]
    return describe(table, Schema(columns), epsilon=1.0)


@pytest.mark.parametrize("width", [1200, 390])
def test_small_multiples_and_heat_map(
    chromium: webdriver.Chrome, description: Description, tmp_path: Path, width: int
) -> None:
    (tmp_path / "page.html").write_text(describe_page(description, "data.csv"), encoding="utf-8")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.get((tmp_path / "page.html").as_uri())
    assert chromium.get_log("browser") == []
    assert chromium.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")

    cards = chromium.find_elements(By.CSS_SELECTOR, "article.card")
    assert [card.get_attribute("data-name") for card in cards] == [c.name for c in description.columns]
    assert len({card.location["x"] for card in cards}) == (3 if width == 1200 else 1)
    for card, column in zip(cards, description.numeric, strict=False):
        bars = card.find_elements(By.CSS_SELECTOR, "rect.count")
        assert len(bars) == len(column.histogram)
        tallest = max(range(len(bars)), key=lambda i: column.histogram[i].count.value)
        assert max(range(len(bars)), key=lambda i: float(bars[i].get_attribute("height") or 0)) == tallest
        assert card.find_element(By.CSS_SELECTOR, "svg.multiple").size["width"] > 180
    assert "and 3 more levels" in cards[-1].text and "& more" in cards[-1].text

    cells = chromium.find_elements(By.CSS_SELECTOR, "#correlations tbody td")
    assert len(cells) == 64
    shown = [cell.text.replace("−", "-") for cell in cells]
    for text, value in zip(shown, description.correlations.values.ravel(), strict=True):
        assert text == "·" if np.isnan(value) else abs(float(text) - value) <= 0.00501
    found = chromium.find_elements(By.CSS_SELECTOR, "table.describe td.value")
    exact = [e.value for column in description for e in column.statistics.values()]
    assert [float(cell.get_attribute("data-value") or "nan") for cell in found] == exact


@pytest.mark.parametrize("width", [1200, 390])
def test_charts_by_group_have_an_error_bar_for_each_number(
    chromium: webdriver.Chrome, tmp_path: Path, width: int
) -> None:
    random, n = np.random.default_rng(6), 6_000
    table = {
        "region": random.choice(["a<b", "c&d", "rare"], n, p=[0.6, 0.398, 0.002]),
        "wage": random.gamma(3, 10, n),
        "union": random.choice(["no", "yes"], n),
        "who": random.integers(0, 3_000, n),
    }
    levels = Categorical("region", ["a<b", "c&d", "rare"]), Categorical("union", ["no", "yes"])
    schema = Schema([*levels, Numeric("wage", 0, 120)], unit="who")
    found = describe(table, schema, by=["region"], rows_up_to=4, epsilon=2.0)
    (tmp_path / "page.html").write_text(describe_page(found, "data.csv"), encoding="utf-8")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.get((tmp_path / "page.html").as_uri())
    assert chromium.get_log("browser") == []
    assert chromium.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    for counted, groups in found.tables.items():
        shown = [g for g in groups.values() if g.levels[0] != "(missing or other)"]
        chart = chromium.find_element(By.CSS_SELECTOR, f'[data-statistic="mean"][data-counted="{counted}"]')
        assert [e.text for e in chart.find_elements(By.CSS_SELECTOR, ".name")] == [
            g.levels[0].replace("(all)", "all") for g in shown
        ]
        told = [g["wage"]["mean"] for g in shown if g["wage"]["mean"].resolved]
        low, high = min(e.low for e in told), max(e.high for e in told)
        bars = chart.find_elements(By.CSS_SELECTOR, "line.noise")
        assert len(bars) == len(told) < len(shown)  # the rare region is suppressed
        for bar, number in zip(bars, told, strict=True):
            ends = [float((bar.get_attribute(end) or "").rstrip("%")) for end in ("x1", "x2")]
            wanted = [100 * (value - low) / (high - low) for value in (number.low, number.high)]
            assert np.allclose(ends, wanted, atol=0.01)
        assert "suppressed" in chart.text
    assert len(chromium.find_elements(By.CSS_SELECTOR, "table.by-group")) == 3
