"""The answers to NIST SP 800-226 in a real Chromium: nothing is loaded, nothing is cut off, at any width."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from tests.releases import RECEIPT, document

from curvedp.reports.filings import evaluation, nist_page

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [1200, 390])
def test_every_answer_is_on_the_page(chromium: webdriver.Chrome, tmp_path: Path, width: int) -> None:
    made = document(receipt=RECEIPT)
    (tmp_path / "nist.html").write_text(nist_page(made), encoding="utf-8")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.get((tmp_path / "nist.html").as_uri())
    assert chromium.get_log("browser") == []
    assert chromium.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    layers = evaluation(made)
    shown = [question.text for question in chromium.find_elements(By.TAG_NAME, "h3")]
    assert shown == [answer.question for layer in layers for answer in layer.answers]
    asked = chromium.find_elements(By.CSS_SELECTOR, ".asked")
    assert len(asked) == sum(layer.open for layer in layers)
    assert all(box.size["height"] > 60 for box in asked)  # room to write on paper
    for link in chromium.find_elements(By.CSS_SELECTOR, "#layers a"):
        name = (link.get_attribute("href") or "").rpartition("#")[2]
        assert chromium.find_element(By.ID, name).is_displayed()
