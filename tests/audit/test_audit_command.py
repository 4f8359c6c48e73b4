"""`curvedp audit` as a process: stopped by Ctrl-C and by the clock, and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

CURVEDP = str(Path(sys.executable).with_name("curvedp"))
QOP = ("audit", "--mechanism", "qop", "--features", "3", "--fits", "200000000", "--seed", "1")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CURVEDP, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False
    )


def interrupted(*arguments: object, kept: Path) -> tuple[int, str]:
    """The exit code and what was said once Ctrl-C came, some time after the first state was written."""
    command = [CURVEDP, *map(str, arguments)]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True) as process:
        for _ in range(2400):
            if kept.exists() or process.poll() is not None:
                break
            time.sleep(0.05)
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    return process.returncode, said


def test_ctrl_c_keeps_the_counts_and_says_so(tmp_path):
    path = tmp_path / "counts"
    code, said = interrupted(*QOP, "--resume", path, "--time-limit", 600, kept=path)
    assert code == 130 and said.count("\n") == 1 and "Traceback" not in said
    assert said.startswith("Stopped: counts of ")
    assert said.endswith(f" fits are kept in {path}; run the same command again to go on.\n")
    fits = int(said.split()[3].replace(",", ""))
    began = time.monotonic()
    again = run(*QOP, "--resume", path, "--time-limit", 0, "--json")
    assert time.monotonic() - began < 60
    told = json.loads(again.stdout)
    assert again.returncode == 3 and told["fits"] >= fits > 0 and not told["complete"]
    assert told["verdict"] == "inconclusive"
