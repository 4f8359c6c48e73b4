"""A small table on disk with its schema, and the command line as a function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from curvedp.cli import app

SCHEMA = """\
record = "one row is one person"
adjacency = "replace"
target = "wage"

[[column]]
name = "age"
kind = "numeric"
bounds = [16, 80]

[[column]]
name = "sector"
kind = "categorical"
levels = ["private", "public"]

[[column]]
name = "note"
kind = "ignored"

[[column]]
name = "wage"
kind = "numeric"
bounds = [0, 100]
"""


@pytest.fixture
def run() -> Callable[..., Result]:
    """`curvedp` with arguments; stdout and stderr apart."""

    def invoke(*arguments: object) -> Result:
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(a) for a in arguments])

    return invoke


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """data.csv (2,000 generated people), schema.toml, and a ledger of ε = 3."""
    from curvedp.release.ledger import Ledger

    random = np.random.default_rng(7)
    lines = ["age,sector,note,wage"]
    for _ in range(2_000):
        age, public = random.uniform(16, 80), random.random() < 0.4
        wage = np.clip(20 + 0.6 * age - 8 * public + random.normal(0, 6), 0, 100)
        lines.append(f"{age:.1f},{'public' if public else 'private'},secret,{wage:.2f}")
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    Ledger.create(tmp_path / "budget.db", epsilon=3.0, delta=1e-5, filter="basic")
    return tmp_path
