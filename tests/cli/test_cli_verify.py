"""`curvedp verify`: a file against the charge that released it, and `report --ledger`, which asks first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from curvedp.release.ledger import Ledger

Run = Callable[..., Result]


@pytest.fixture
def released(run: Run, folder: Path) -> Path:
    charged = ("--ledger", folder / "budget.db")
    result = run(
        *("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1, "--delta", 1e-6),
        *("--out", folder / "model.json", "--report", folder / "report.html", *charged),
    )
    assert result.exit_code == 0, result.output
    return folder


def said(result: Result) -> str:
    return " ".join((result.stdout + result.stderr).split())


def test_it_answers_in_one_line_and_says_what_an_officer_needs(run: Run, released: Path) -> None:
    result = run("verify", released / "model.json", "--ledger", released / "budget.db")
    assert result.exit_code == 0, result.output
    first, promise, ledger, head, *warnings = result.stdout.splitlines()
    assert first.endswith("model.json: this is what charge 1 released")
    assert promise.startswith("Promise: ε = 1, δ = 1e-06 for one row (replace); recentered, (P-9)")
    state = Ledger(released / "budget.db").state()
    assert ledger.startswith(
        f"Ledger {state.ledger}: every entry, sum and page verified; charges: 1; spent ε = 1 of"
    )
    assert head == f"Head to keep elsewhere: {state.digest}"
    assert any("Nobody stated where" in line for line in warnings)
    assert run("verify", released / "model.json", "--ledger", released / "budget.db", "--quiet").output == ""


EDITS = {
    "guarantee.epsilon": ('"epsilon": 1.0', '"epsilon": 0.1'),
    "guarantee.mechanism": (
        '"mechanism": "recentered",\n    "accounting"',
        '"mechanism": "output",\n    "accounting"',
    ),
    "record.time": ('"time": "20', '"time": "19'),
    "record.receipt.charge": ('"charge": 1', '"charge": 7'),
    "record.receipt.head": ('"head": "', '"head": "0'),
}


@pytest.mark.parametrize("field", EDITS)
def test_an_edited_model_is_refused_by_verify_and_by_report(run: Run, released: Path, field: str) -> None:
    path = released / "model.json"
    text = path.read_text("utf-8")
    old, new = EDITS[field]
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")
    ledger = ("--ledger", released / "budget.db")
    result = run("verify", path, *ledger)
    assert result.exit_code == 1 and result.stdout == ""
    assert (field in said(result)) or "no charge 7" in said(result)
    result = run("verify", path, *ledger, "--json")
    assert result.exit_code == 1 and field in json.loads(result.stdout)["differs"]
    result = run("report", path, *ledger, "--out", released / "later.html")
    assert result.exit_code == 2 and not (released / "later.html").exists()


def test_an_edited_coefficient_is_refused_by_report(run: Run, released: Path) -> None:
    path = released / "model.json"
    content = json.loads(path.read_text("utf-8"))
    content["coefficients"][0][0] += 1.0
    path.write_text(json.dumps(content), "utf-8")
    result = run("report", path, "--ledger", released / "budget.db")
    assert result.exit_code == 2 and "its inference contradicts its coefficients" in said(result)
    content["inference"] = None
    path.write_text(json.dumps(content), "utf-8")
    result = run("report", path, "--ledger", released / "budget.db")
    assert result.exit_code == 2 and "not what charge 1 released: coefficients" in said(result)


def test_a_model_that_was_never_charged_has_no_budget_to_show(run: Run, folder: Path) -> None:
    fit = ("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1, "--delta", 1e-6)
    assert run(*fit, "--out", folder / "model.json").exit_code == 0
    for command, code in (("verify", 1), ("report", 2)):
        result = run(command, folder / "model.json", "--ledger", folder / "budget.db")
        assert result.exit_code == code and "no receipt" in said(result)


def test_a_head_that_was_kept_elsewhere_is_held_against_the_ledger(run: Run, released: Path) -> None:
    verify = ("verify", released / "model.json", "--ledger", released / "budget.db")
    head = json.loads(run(*verify, "--json").stdout)["ledger"]["head"]
    result = run(*verify, "--head", head)
    assert result.exit_code == 0 and "HEAD was its head after charge 1; charges after it: 0" in result.stdout
    result = run(*verify, "--head", "0" * 64)
    assert result.exit_code == 1 and "never had the head" in said(result)


def test_a_refit_is_named_and_reported_with_a_warning(run: Run, released: Path) -> None:
    refit = (
        "refit",
        released / "model.json",
        "--columns",
        "age",
        "--trust",
        1e9,
        "--out",
        released / "refit.json",
    )
    assert run(*refit).exit_code == 0
    ledger = ("--ledger", released / "budget.db")
    result = run("verify", released / "refit.json", *ledger)
    assert result.exit_code == 1 and "calls itself a refit" in said(result)
    result = run("report", released / "refit.json", *ledger)
    assert result.exit_code == 0 and "calls itself a refit" in said(result)
    assert "calls itself a refit" in (released / "refit.html").read_text("utf-8")
    content = json.loads((released / "refit.json").read_text("utf-8"))
    original = json.loads((released / "model.json").read_text("utf-8"))
    forged = {**original, "record": content["record"]}  # a refit has no intervals
    forged["inference"] = {**original["inference"], "noise": 1e-9 * original["inference"]["noise"]}
    (released / "forged.json").write_text(json.dumps(forged), "utf-8")
    assert "calls itself a refit" not in said(run("verify", released / "forged.json", *ledger))


LOOKS = {
    "check": ("check", "--schema", "schema.toml", "--epsilon", 1),
    "describe": ("describe", "--schema", "schema.toml", "--epsilon", 1),
    "score": ("score", "--epsilon", 1),
}


@pytest.mark.parametrize("name", LOOKS)
def test_pages_and_json_of_looks_are_verified(run: Run, released: Path, name: str) -> None:
    command, *options = (released / part if part == "schema.toml" else part for part in LOOKS[name])
    model = (released / "model.json",) if name == "score" else ()
    ledger, page = ("--ledger", released / "budget.db"), released / "page.html"
    result = run(command, *model, released / "data.csv", *options, *ledger, "--report", page, "--json")
    assert result.exit_code == 0, result.output
    (released / "look.json").write_text(result.stdout, "utf-8")
    for path in (page, released / "look.json"):
        result = run("verify", path, *ledger)
        assert result.exit_code == 0 and "this is what charge 2 released" in said(result)
    document = json.loads((released / "look.json").read_text("utf-8"))
    document["guarantee"]["epsilon"] = 0.01
    (released / "look.json").write_text(json.dumps(document), "utf-8")
    result = run("verify", released / "look.json", *ledger)
    assert result.exit_code == 1 and "guarantee.epsilon differs" in said(result)
    text = page.read_text("utf-8")
    assert '"epsilon": 1.0' in text and "</h1>" in text
    page.write_text(text.replace('"epsilon": 1.0', '"epsilon": 0.1'), "utf-8")
    result = run("verify", page, *ledger)
    assert result.exit_code == 1 and "guarantee.epsilon, the page around its numbers differ" in said(result)
    page.write_text(text.replace("</h1>", "!</h1>", 1), "utf-8")  # what people read, not what machines do
    result = run("verify", page, *ledger)
    assert result.exit_code == 1 and "the page around its numbers differs" in said(result)


def test_bought_bounds_are_verified_by_their_json(run: Run, released: Path) -> None:
    ledger = ("--ledger", released / "budget.db")
    column = json.loads((released / "model.json").read_text("utf-8"))["features"][0]
    result = run("bounds", released / "data.csv", "--columns", column, "--epsilon", 1, *ledger, "--json")
    assert result.exit_code == 0, result.output
    (released / "bounds.json").write_text(result.stdout, "utf-8")
    assert run("verify", released / "bounds.json", *ledger).exit_code == 0
    (released / "bounds.json").write_text(
        result.stdout.replace('"levels": [\n    0.0', '"levels": [\n    0.1'), "utf-8"
    )
    result = run("verify", released / "bounds.json", *ledger)
    assert result.exit_code == 1 and "levels differs" in said(result)


def test_what_is_no_release_is_refused_in_a_sentence(run: Run, released: Path) -> None:
    ledger = ("--ledger", released / "budget.db")
    result = run("verify", released / "report.html", *ledger)
    assert result.exit_code == 2 and "verify the model file that it was made from" in said(result)
    for name, content, code in (
        ("list.json", b"[]", 1),
        ("text.json", b"no", 1),
        ("twice.json", b'{"a": 1, "a": 2}', 1),
        ("bytes.json", b"\xff\xfe", 1),
        ("empty.json", b"{}", 1),
    ):
        (released / name).write_bytes(content)
        assert run("verify", released / name, *ledger).exit_code == code
    assert run("verify", released / "none.json", *ledger).exit_code == 2
    assert run("verify", released / "model.json", "--ledger", released / "none.db").exit_code == 2
