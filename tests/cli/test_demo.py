"""The demo, end to end on its real table, twice."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from curvedp.cli import workflow
from curvedp.release import modelfile
from curvedp.release.ledger import Ledger


def test_the_demo_runs_again_without_network(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("the demo must not open a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    folder = tmp_path / "curvedp-demo"
    (tmp_path / "curvedp-demo").mkdir()
    (folder / "mine.txt").write_text("stays")
    first = run("demo", "--folder", folder, "--json")
    assert first.exit_code == 0, first.stderr
    story = json.loads(first.stdout)
    assert 0.45 < story["nonprivate_r2"] < 0.52
    assert abs(story["constant_r2"]) < 0.01
    assert story["nonprivate_r2"] - 0.05 < story["private_r2"]
    ledger = {path.name for path in folder.glob("budget.db*")}
    assert "budget.db" in ledger
    assert {path.name for path in folder.iterdir()} == {*workflow.FILES, "mine.txt", *ledger}
    document = modelfile.load(folder / "model.json")
    assert document.schema == workflow.SCHEMA and document.guarantee.private is True
    assert (document.guarantee.epsilon, document.guarantee.delta) == (1.0, 1e-6)
    assert repr(float(document.coefficients[0, 0])) in (folder / "report.html").read_text()

    refused = run("demo", "--folder", folder)
    assert refused.exit_code == 2 and "--force to replace it" in refused.stderr
    assert modelfile.load(folder / "model.json").coefficients.tolist() == document.coefficients.tolist()

    second = run("demo", "--folder", folder, "--force")
    assert second.exit_code == 0, second.stderr
    assert "not covered by the guarantee" in second.stdout and "curvedp fit" in second.stdout
    assert "a score is released, too: R² = 0." in " ".join(second.stdout.split())
    assert [charge.epsilon for charge in Ledger(folder / "budget.db").history()] == [1.0, 0.5]
    assert modelfile.load(folder / "model.json").coefficients.tolist() != document.coefficients.tolist()


def test_the_demo_never_replaces_a_ledger_that_is_not_its_own(
    run: Callable[..., Result], tmp_path: Path
) -> None:
    Ledger.create(tmp_path / "budget.db", epsilon=1.0, delta=1e-6)
    result = run("demo", "--folder", tmp_path, "--force")
    assert result.exit_code == 2 and "is not a demo's budget" in result.stderr
    assert Ledger(tmp_path / "budget.db").state().epsilon == 1.0
    assert not (tmp_path / "train.csv").exists()
