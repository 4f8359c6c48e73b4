"""Progress within a fit: rounds of at most a public number, for people at a terminal alone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import Result

from curvedp import PrivateRidge
from curvedp.analyses.search import PrivateSearch
from curvedp.cli import console
from curvedp.errors import advance, heard
from curvedp.mechanisms import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp_studies.mechanisms.baselines import NoisyGradient

X = np.random.default_rng(5).uniform(-1, 1, (300, 2))
MADE = {"bounds": (-1, 1), "target_bounds": (-1, 1), "random_state": 0}


def test_nobody_hears_unless_asked() -> None:
    advance(64)
    told: list[int] = []
    with heard(told.append):
        advance(3)
        with heard(None):
            advance(4)
        advance(5)
    advance(6)
    assert told == [3, 5]


@pytest.mark.parametrize(
    ("mechanism", "rows", "rounds", "most"),
    [
        (Recentered(), 1, 64, 64),
        (Recentered(), 20, Rule().quick_rounds, 64),  # the released κ says that fewer will do
        (NoisyGradient(rounds=7), 1, 7, 7),
    ],
)
def test_every_round_is_told_with_the_public_maximum(
    mechanism: object, rows: int, rounds: int, most: int
) -> None:
    told: list[int] = []
    table = np.tile(X, (rows, 1))
    with heard(told.append):
        PrivateRidge(**MADE, mechanism=mechanism).fit(table, table[:, 0])
    assert told == [most] * rounds


def test_how_many_trials_a_search_makes_is_not_told() -> None:
    """Their number never leaves (T-1), and who counts rounds counts trials."""
    told: list[int] = []
    ridge = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1))
    search = PrivateSearch(ridge, {"alpha": [1.0, 2.0]}, strategy="trials", trials=4.0, random_state=3)
    with heard(told.append):
        search.fit(X, X[:, 0])
    assert search.best_index_ is not None and told == []
    with heard(told.append):
        PrivateSearch(ridge, {"alpha": [1.0, 2.0]}, strategy="refits", random_state=3).fit(X, X[:, 0])
    assert set(told) == {64}


def at_a_terminal(folder: Path, *more: str) -> str:
    """What a fit shows whose stderr is a terminal."""
    leader, follower = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "curvedp", "fit", "data.csv", "--schema", "schema.toml", "--epsilon", "1"]
        + ["--delta", "1e-6", "--out", "m.json", "--force", *more],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=follower,
        env={**os.environ, "COLUMNS": "100", "TERM": "xterm"},
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:  # nobody holds the other end any more
            break
        if not part:
            break
        shown += part
    os.close(leader)
    assert done.wait() == 0
    return shown.decode()


def test_a_terminal_shows_rounds(folder: Path) -> None:
    shown = at_a_terminal(folder)
    assert "fitting privately" in shown and "round, of at most" in shown and "/64" in shown


@pytest.mark.parametrize(("option", "seen"), [("--json", False), ("--quiet", False), ("--force", True)])
def test_who_wants_to_see_nothing_sees_no_rounds(
    run: Callable[..., Result], folder: Path, monkeypatch: pytest.MonkeyPatch, option: str, seen: bool
) -> None:
    """In this process, with a console that takes itself for a terminal."""
    terminal = Console(file=StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(console, "err", terminal)
    budget = ("--epsilon", 1, "--delta", 1e-6, "--out", folder / "m.json")
    result = run("fit", folder / "data.csv", "--schema", folder / "schema.toml", *budget, option)
    assert result.exit_code == 0, result.stderr
    shown = terminal.file.getvalue()
    assert "round, of at most" in shown if seen else shown == ""
