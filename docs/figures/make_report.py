"""Draws docs/figures/report.png: the report that `curvedp demo` writes, in Chromium, from the top.

python docs/figures/make_report.py
"""

import shutil
import tempfile
from pathlib import Path

from selenium import webdriver

from curvedp.cli.workflow import run
from curvedp.privacy.budget import Budget

WIDTH, HEIGHT = 960, 1200

options = webdriver.ChromeOptions()
options.binary_location = shutil.which("chromium") or ""
for flag in (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
):
    options.add_argument(flag)
with tempfile.TemporaryDirectory() as folder:
    run(Path(folder) / "demo", Budget(1.0, 1e-6))
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver") or "")
    with webdriver.Chrome(options=options, service=service) as driver:
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get((Path(folder) / "demo" / "report.html").as_uri())
        driver.save_screenshot(str(Path(__file__).parent / "report.png"))
