"""Mistakes a new user makes: one clear line that says what to do, exit code 2, nothing charged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from curvedp.release.ledger import Ledger

Run = Callable[..., Result]


def fit_arguments(folder: Path, **changes: object) -> list[object]:
    options: dict[str, object] = {
        "--schema": folder / "schema.toml",
        "--epsilon": 1,
        "--delta": 1e-6,
        "--ledger": folder / "budget.db",
        "--out": folder / "model.json",
    }
    data = changes.pop("data", folder / "data.csv")
    options |= {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    return ["fit", data, *(item for name, value in options.items() for item in (name, value))]


def refused(result: Result, pattern: str) -> None:
    """Exit code 2, silence on stdout, and one line on stderr that matches."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, lines
    assert lines[0].startswith("Error: ")
    assert re.search(pattern, lines[0]), lines[0]
    assert "Traceback" not in result.stderr


def edit_schema(folder: Path, old: str, new: str) -> None:
    path = folder / "schema.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "pattern"),
    [
        ("bounds = [16, 80]\n", "", r"'age'.*bounds.*write bounds = \[low, high\]"),
        ("[16, 80]", "[80, 16]", r"'age'.*reversed.*write \[16, 80\]"),
        ('levels = ["private", "public"]', "", r"'sector'.*levels are not filled in"),
        ('kind = "ignored"', 'kind = "numbr"', r"'note'.*unknown kind 'numbr'"),
        ("[0, 100]", "[0, inf]", r"'wage'.*bounds"),
        ("bounds = [16", "bounds = (16", r"not valid TOML.*line 8.*correct it"),
        ('adjacency = "replace"', 'adjacency = "none"', r"adjacency must be"),
        ('target = "wage"', "", r"no target was chosen"),
    ],
    ids=[
        "no-bounds",
        "reversed",
        "no-levels",
        "unknown-kind",
        "infinite",
        "not-toml",
        "adjacency",
        "no-target",
    ],
)
def test_a_schema_with_a_mistake(run: Run, folder: Path, old: str, new: str, pattern: str) -> None:
    edit_schema(folder, old, new)
    refused(run(*fit_arguments(folder)), pattern)
    assert Ledger(folder / "budget.db").state().charges == 0
    assert not (folder / "model.json").exists()


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"target": "wges"}, r"'wges' is not a column.*did you mean 'wage'"),
        ({"target": "note"}, r"'note' is ignored"),
        ({"data": "missing.csv"}, r"cannot read missing.csv.*check the path"),
        ({"schema": "missing.toml"}, r"cannot read the schema missing.toml"),
        ({"epsilon": 10}, r"costs .*\(10, 1e-06\) and \(3, 1e-05\) remains"),
        ({"epsilon": -1}, r"epsilon must be .*, got -1"),
        ({"epsilon": "one"}, r"'--epsilon'.*see: .*fit --help"),
        ({"delta": 2}, r"delta must"),
        ({"mechanism": "magic"}, r"'--mechanism'.*'auto', 'recentered'.*see: .*fit --help"),
        ({"mechanism": "amp"}, r"'--mechanism'.*'amp' is not one of"),
        ({"accounting": "paper"}, r"mechanism recentered has no accounting: it is a choice of qop, lop"),
        ({"radius": 2}, r"mechanism recentered has no radius"),
        ({"model": "logistic"}, r"'wage' is a number: pass a model among linear"),
        ({"alpha": 1}, r"the model linear has no --alpha: leave it out, or choose the model ridge or"),
        ({"seed": 1}, r"seeded .* not private.*leave --seed or the ledger out"),
        ({"seed": -1}, r"'--seed'.*see: .*fit --help"),
        ({"alpha": "text", "model": "ridge"}, r"'--alpha'.*see: .*fit --help"),
        ({"alpha": "nan", "model": "ridge"}, r"finite|number"),
        ({"alpha": "-1", "model": "ridge"}, r"≥ 0|negative|at least 0"),
        ({"out": "no/such/folder/model.json"}, r"name a file in a folder that exists"),
        ({"ledger": "missing.db"}, r"no ledger at missing.db: create one"),
        ({"rows": 0}, r"rows must lie between 1 and"),
        ({"rows": 10**400}, r"rows must lie between 1 and"),
        ({"mechanism": "lop"}, r"bounded gradients.*: choose the mechanism lop_clip or qop"),
        ({"delimiter": ";;"}, r"delimiter must be one character"),
        ({"epsilon": "nan"}, r"epsilon must be"),
        ({"delta": "-0.1"}, r"delta must"),
    ],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_a_fit_with_a_mistake(run: Run, folder: Path, changes: dict[str, object], pattern: str) -> None:
    refused(run(*fit_arguments(folder, **changes)), pattern)
    assert Ledger(folder / "budget.db").state().charges == 0
    assert not (folder / "model.json").exists()


def test_a_string_column_declared_as_a_number_is_not_reported(run: Run, folder: Path) -> None:
    """Whether cells parse depends on the data, so the public rule applies and nothing is said."""
    edit_schema(
        folder, 'kind = "categorical"\nlevels = ["private", "public"]', 'kind = "numeric"\nbounds = [0, 1]'
    )
    result = run(*fit_arguments(folder))
    assert result.exit_code == 0, result.stderr
    assert "private" not in json.dumps(json.loads((folder / "model.json").read_text())["schema"])


def test_a_column_missing_from_the_table(run: Run, folder: Path) -> None:
    (folder / "data.csv").write_text("age,note,wage\n20,x,3\n")
    refused(run(*fit_arguments(folder)), r"no column 'sector', which the schema declares")
    assert Ledger(folder / "budget.db").state().charges == 0


def test_an_existing_model_is_not_overwritten(run: Run, folder: Path) -> None:
    (folder / "model.json").write_text("precious")
    refused(run(*fit_arguments(folder)), r"exists already: pass another --out, or --force")
    assert (folder / "model.json").read_text() == "precious"
    assert Ledger(folder / "budget.db").state().charges == 0


@pytest.mark.parametrize("content", [b"", b"not a database at all, only words" * 50], ids=["empty", "text"])
def test_an_unreadable_ledger(run: Run, folder: Path, content: bytes) -> None:
    (folder / "budget.db").write_bytes(content)
    refused(run(*fit_arguments(folder)), r"budget.db is (empty|damaged)")
    refused(run("ledger", "show", folder / "budget.db"), r"budget.db is (empty|damaged)")
    assert not (folder / "model.json").exists()


def test_a_ledger_of_the_other_adjacency(run: Run, folder: Path) -> None:
    other = folder / "other.db"
    Ledger.create(other, epsilon=3.0, delta=1e-5, adjacency="add_remove")
    refused(run(*fit_arguments(folder, ledger=other)), r"counts add_remove neighbours")
    assert Ledger(other).state().charges == 0


def test_a_second_budget_in_the_same_file(run: Run, folder: Path) -> None:
    result = run("ledger", "create", folder / "budget.db", "--epsilon", 9, "--delta", 1e-5)
    refused(result, r"exists already and a budget is never overwritten")


def test_model_files_that_cannot_be_used(run: Run, folder: Path) -> None:
    model = folder / "model.json"
    refused(run("predict", model, folder / "data.csv"), r"cannot read .*model.json.*check the path")
    model.write_text('{"format": "curvedp-model", "format_version": 99, "curvedp_version": "9.0"}')
    refused(run("predict", model, folder / "data.csv"), r"newer curvedp \(9.0, format 99\): upgrade")
    model.write_text("{")
    refused(run("predict", model, folder / "data.csv"), r"not JSON")


def test_wrong_commands(run: Run) -> None:
    refused(run("fitt"), r"No such command 'fitt'")
    refused(run("plan", "--rows", 10), r"Missing option '--delta'.*--help")
    refused(run("plan", "--rows", 10, "--delta", 1e-6), r"pass --epsilon .* or --score")
    refused(run("plan", "--rows", 10, "--epsilon", 1, "--delta", 1e-6), r"pass --features, or --schema")
    refused(run("plan", "--rows", 0, "--features", 3, "--epsilon", 1, "--delta", 1e-6), r"rows must lie")
    for features in (0, -1, 10**9):
        arguments = ("--rows", 10, "--features", features, "--epsilon", 1, "--delta", 1e-6)
        refused(run("plan", *arguments), r"features must lie between 1 and")
    refused(run("schema", "missing.csv"), r"cannot read missing.csv")
