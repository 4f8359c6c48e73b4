"""What all tests share: commands whose signatures are read once, and one headless Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import pytest
import typer.testing

if TYPE_CHECKING:
    from selenium import webdriver


@pytest.fixture(scope="session", autouse=True)
def one_tree_of_commands() -> Iterator[None]:
    """A `CliRunner` would read the signatures of all commands, 40 ms, for each run of one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        yield


@pytest.fixture(scope="session")
def one_chromium() -> Iterator[webdriver.Chrome]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver") or "")
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture
def chromium(one_chromium: webdriver.Chrome) -> webdriver.Chrome:
    """The browser with an empty page, its usual size and empty logs."""
    one_chromium.get("about:blank")
    one_chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    for log in ("browser", "performance"):
        one_chromium.get_log(log)
    return one_chromium
