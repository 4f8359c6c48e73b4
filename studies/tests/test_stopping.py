"""Ctrl-C, for real: a signal to a command that runs, or to its whole group as a terminal sends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

# The commands as they are, over studies of eight parts, of which the first four are quick.
SLOW = """
import sys, time
from dataclasses import dataclass
from pathlib import Path
import typer
from curvedp.cli.console import Commands
from curvedp_studies import commands, peers, resume
from curvedp_studies.coverage import study

@dataclass(frozen=True)
class Number:
    point: int

def compute(task):
    time.sleep(0.01 if task < 4 else 60)
    return [Number(task)]

def slow(folder, progress, workers):
    numbers = folder / "numbers.csv"
    resume.complete(numbers, Number, range(8), lambda t: [t], compute, progress=progress, workers=workers)

peers.compare = lambda data, datasets, mechanisms, epsilons, seeds, out, progress, *, workers, **_: slow(
    out, progress, workers
)
study.study = lambda folder, data, populations, cells, runs, progress, *, workers: slow(
    folder, progress, workers
)
app = typer.Typer(cls=Commands, pretty_exceptions_enable=False)
for command in (commands.compare, commands.coverage):
    app.command()(command)
app()
"""


def interrupted(command: list[str], ready: Callable[[], bool], everybody: bool) -> tuple[int, str, float]:
    """The exit code, what was said on stderr, and how long it took to end, once it was `ready`."""
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True) as process:
        for _ in range(1200):
            if ready() or process.poll() is not None:
                break
            time.sleep(0.05)
        sent = time.monotonic()
        (os.killpg if everybody else os.kill)(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    return process.returncode, said, time.monotonic() - sent


def lines(table: Path) -> int:
    return len(table.read_text().splitlines()) if table.exists() else 0


@pytest.mark.parametrize(
    ("command", "workers", "everybody"),
    [
        pytest.param("compare", 2, False, marks=pytest.mark.full),
        ("coverage", 2, True),
        pytest.param("compare", 1, True, marks=pytest.mark.full),
    ],
)
def test_a_study_that_is_stopped_says_what_it_kept(tmp_path, command, workers, everybody):
    folder = tmp_path / "results"
    options = ["--folder", str(folder), "--workers", str(workers)]
    options += ["--data", str(tmp_path)] if command == "compare" else []
    table = folder / "numbers.csv"
    code, said, seconds = interrupted(
        [sys.executable, "-c", SLOW, command, *options], lambda: lines(table) > 4, everybody
    )
    assert code == 130 and seconds < 20
    assert said == f"Stopped: 4 of 8 parts are kept in {folder}; run the same command again to go on.\n"
    assert sorted(table.read_text().split()) == ["0", "1", "2", "3", "point"]


@pytest.mark.full
def test_the_paper_is_stopped_and_goes_on(tmp_path):
    script = str(Path(sys.executable).with_name("curvedp"))
    table = tmp_path / "figure1.csv"
    command = [script, "reproduce", "figure1", "--folder", str(tmp_path)]
    code, said, _ = interrupted(command, lambda: lines(table) > 5, everybody=True)
    kept = lines(table)
    assert code == 130 and said.startswith("Stopped: ") and said.count("\n") == 1 and kept > 5
    assert f"parts are kept in {tmp_path}; run the same command again to go on." in said
    code, said, _ = interrupted(command, lambda: lines(table) > kept + 5, everybody=True)
    assert code in (0, 130) and "Traceback" not in said and lines(table) > kept
