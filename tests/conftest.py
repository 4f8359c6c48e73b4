"""What all tests share: noise that a test draws again, commands read once, and one headless Chromium."""

from __future__ import annotations

import random
import secrets
import shutil
from collections.abc import Generator, Iterator
from functools import cache
from typing import TYPE_CHECKING

import pytest
import typer.testing

if TYPE_CHECKING:
    from selenium import webdriver

ENTROPY = random.Random()  # in the place of the operating system's: what failed once, fails again


@pytest.fixture(scope="session", autouse=True)
def one_source_of_entropy() -> Iterator[None]:
    """Private noise has no seed; in the process of a test its entropy follows from the test's name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "randbits", ENTROPY.getrandbits)
        patch.setattr(secrets, "token_bytes", ENTROPY.randbytes)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    ENTROPY.seed(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """What several tests share is drawn from its own name, whichever of them comes first."""
    if fixturedef.scope == "function":
        return (yield)
    of_the_test = ENTROPY.getstate()
    ENTROPY.seed(f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]")
    try:
        return (yield)
    finally:
        ENTROPY.setstate(of_the_test)


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
