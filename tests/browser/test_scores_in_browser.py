"""The page of private scores in a real Chromium, opened from disk: no console errors, released numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from curvedp import PrivateLogisticRegression, PrivateRidge
from curvedp.analyses.scores import private_scores
from curvedp.analyses.scores.door import scores_page
from curvedp.data import Categorical, Numeric, Schema

pytestmark = pytest.mark.browser

FEATURES = (Numeric("age", 16, 80), Categorical("sector", ("a&b", "c<d")))


def table(n: int = 4000) -> dict[str, list[object]]:
    random = np.random.default_rng(3)
    age = random.uniform(16, 80, n)
    margin = 0.08 * (age - 48)
    return {
        "age": age.tolist(),
        "sector": random.choice(["a&b", "c<d"], n).tolist(),
        "wage": np.clip(age + random.normal(0, 10, n), 0, 100).tolist(),
        "hired": np.where(random.random(n) < 1 / (1 + np.exp(-margin)), "yes", "no").tolist(),
        "grade": np.digitize(margin + random.normal(0, 1, n), [-1, 1]).tolist(),
    }


MODELS = {
    "wage": (PrivateRidge, Numeric("wage", 0, 100), 2),
    "hired": (PrivateLogisticRegression, Categorical("hired", ("no", "yes")), 3),
    "grade": (PrivateLogisticRegression, Categorical("grade", ("0", "1", "2")), 3),
}


@pytest.mark.parametrize("target", MODELS)
def test_the_numbers_of_scores(target: str, chromium: webdriver.Chrome, tmp_path: Path) -> None:
    made, column, charts = MODELS[target]
    model = made(schema=Schema((*FEATURES, column), target=target), epsilon=3.0).fit(table())
    scores = private_scores(model, table(), epsilon=3.0, delta=1e-6, by="sector")
    path = tmp_path / "score.html"
    path.write_text(scores_page(scores, target, "one row is one person"), encoding="utf-8")
    chromium.get(path.as_uri())
    assert chromium.get_log("browser") == []
    requests = [e["message"] for e in chromium.get_log("performance") if "requestWillBeSent" in e["message"]]
    assert all('"url":"file:' in message or '"url":"data:' in message for message in requests)
    assert chromium.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")

    def exact(selector: str) -> float:
        found = chromium.find_element(By.CSS_SELECTOR, selector).get_attribute("data-value")
        return float(found or "nan")

    assert exact("#epsilon") == 3.0 and exact("#count") == scores.overall.count.value
    for row in chromium.find_elements(By.CSS_SELECTOR, "#scores tbody tr"):
        name = row.get_attribute("data-name") or ""
        value = row.find_element(By.CSS_SELECTOR, "td.value").get_attribute("data-value")
        assert float(value or "nan") == scores[name].value
    drawn = chromium.find_elements(By.CSS_SELECTOR, "svg.chart")
    assert len(drawn) == charts
    assert all(svg.find_elements(By.TAG_NAME, "polyline")[0].size["width"] > 100 for svg in drawn)
    levels = chromium.find_elements(By.CSS_SELECTOR, "#levels table:first-of-type tbody tr")
    assert [row.get_attribute("data-level") for row in levels[:2]] == ["a&b", "c<d"]
