"""`curvedp plan`: from a schema or a shape, with the spread of runs, both adjacencies, and which ε."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.charges import gaussian, pure
from typer.testing import Result

from curvedp.errors import BudgetExceeded
from curvedp.planning import widths
from curvedp.privacy.budget import Budget
from curvedp.release.ledger import Ledger

Run = Callable[..., Result]
BUDGET = ("--epsilon", 1, "--delta", 1e-6)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curvedp_studies.forecasts.CURVE", (1.0, 2.0))
    some = (("recentered", "auto"), ("qop", "spectral"), ("qop", "paper"), ("lop", "auto"))
    monkeypatch.setattr("curvedp_studies.forecasts.CANDIDATES", some)


def test_a_plan_needs_no_data(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = (("recentered", "auto"), ("qop", "spectral"), ("qop", "paper"), ("lop", "auto"))
    monkeypatch.setattr("curvedp_studies.forecasts.CANDIDATES", candidates)
    page = tmp_path / "plan.html"
    result = run("plan", "--rows", 3000, "--features", 3, *BUDGET, "--trials", 10, "--json", "--report", page)
    assert result.exit_code == 0, result.stderr
    plan = json.loads(result.stdout)
    assert list(plan["adjacencies"]) == ["replace", "add_remove"]
    for part in plan["adjacencies"].values():
        found = {(row["mechanism"], row["accounting"]): row for row in part["mechanisms"]}
        ranks = [row["rank"] for row in part["mechanisms"]]
        assert ranks == sorted(ranks) and ranks[0] == 1
        for row in part["mechanisms"]:
            low, high = row["eight_of_ten_runs"]
            assert low < row["expected_score"] < high
        assert found["qop", "spectral"]["rows_needed"] < found["qop", "paper"]["rows_needed"]
        assert found["qop", "spectral"]["utility_bound"] < found["qop", "paper"]["utility_bound"]
        assert {row["mechanism"] for row in part["refused"]} == {"lop"}  # its gradients have no bound
    text = page.read_text()
    assert text.count("<svg") == 2 and 'data-name="add_remove"' in text and "eight of ten runs" in text
    assert "lop_clip or qop" in text and "LOPClip" not in text and "Box(" not in text


def test_a_schema_says_the_columns_the_target_and_the_adjacency(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "data.csv").unlink()  # a plan reads none
    monkeypatch.setattr("curvedp_studies.forecasts.CANDIDATES", (("recentered", "auto"),))
    schema = folder / "schema.toml"
    schema.write_text(schema.read_text().replace('"replace"', '"add_remove"'))
    shown = run("plan", "--schema", schema, "--rows", 3000, *BUDGET, "--trials", 20)
    assert shown.exit_code == 0, shown.stderr
    assert "3,000 rows × 3 features, ε = 1, δ = 1e-06, regression" in shown.stdout
    assert shown.stdout.index("R², add_remove") < shown.stdout.index("R², replace")
    assert "where eight of ten runs lie, of 20 simulated ones" in shown.stdout
    options = ("--schema", schema, "--rows", 3000, *BUDGET, "--json", "--adjacency", "replace")
    classes = json.loads(run("plan", *options, "--target", "sector").stdout)
    assert classes["task"] == "classification" and classes["features"] == 2
    assert list(classes["adjacencies"]) == ["replace"]
    terms = json.loads(run("plan", *options, "--formula", "wage ~ age + I(age**2) + C(sector):age").stdout)
    assert terms["features"] == 3  # one level is the reference


def test_a_plan_tells_half_widths_and_tries_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tried(*args: object) -> None:
        raise AssertionError("a plan without --trials fits nothing")

    monkeypatch.setattr("curvedp_studies.trial.Trial.of", tried)
    page = tmp_path / "plan.html"
    asked = ("plan", "--rows", 20_000, "--features", 6, *BUDGET)
    more = ("--level-share", 0.03, "--half-width", 0.02)
    document = json.loads(run(*asked, *more, "--json", "--report", page).stdout)
    budget = Budget(1.0, 1e-6)
    for name, part in document["adjacencies"].items():
        same = widths(20_000, 6, budget, name, levels=[0.03], half_width=0.02)
        for told, item in zip(part["half_widths"], same.intervals, strict=True):
            assert told["stated"] and told["level_share"] == item.level
            assert (told["half_width"], told["multiple"]) == (item.half_width, item.multiple)
            assert told["rows_enough"] == item.rows_enough
            assert f'data-value="{item.half_width!r}"' in page.read_text()
    text = run(*asked, *more).stdout
    assert "a level of 3 %" in text and "rows for ± 0.02, replace" in text and "residual deviations" in text
    classes = run(*asked, "--task", "classification", "--class-share", 0.002).stdout
    assert "too few of the class" in classes and "A class of less than 0.59 % is too few" in classes
    few = run("plan", "--rows", 300, "--features", 6, *BUDGET).stdout
    assert "A number may have no interval: κ = 10.1, 17 is needed" in " ".join(few.split())
    for wrong in (("--trials", 0), ("--half-width", -1), ("--class-share", 0.1), ("--level-share", 2)):
        assert run(*asked, *wrong).exit_code == 2


def test_which_epsilon_for_a_score(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = (0.05, 0.2, 1.0)
    monkeypatch.setattr("curvedp_studies.forecasts.GRID", grid)
    page = folder / "plan.html"
    options = ("--schema", folder / "schema.toml", "--rows", 1500, "--delta", 1e-6, "--score", 0.3)
    result = run("plan", *options, "--best", 0.4, "--json", "--report", page)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["asked"] == 0.3 and found["nonprivate_score"] == pytest.approx(0.4, abs=0.06)
    for part in found["adjacencies"].values():
        assert part["epsilon"] in grid and part["epsilon"] <= part["epsilon_of_nine_in_ten"]
        tried = {row["epsilon"]: row for row in part["tried"]}
        assert tried[part["epsilon"]]["expected_score"] >= 0.3
        assert all(row["expected_score"] < 0.3 for e, row in tried.items() if e < part["epsilon"])
    assert "Which ε for R² 0.3?" in page.read_text()
    out = run("plan", *options[:-1], 0.9)
    assert out.exit_code == 0 and out.stdout.count("out of reach") == 2


def test_a_plan_that_is_asked_wrongly(run: Run, folder: Path) -> None:
    schema = ("--schema", folder / "schema.toml")
    for options, said in (
        (("--features", 3, "--delta", 1e-6), "pass --epsilon"),
        (("--features", 3, "--score", 0.3, *BUDGET), "pass --epsilon"),
        (("--features", 3, "--target", "wage", *BUDGET), "--schema"),
        ((*schema, "--task", "regression", *BUDGET), "leave --features and --task out"),
        ((*schema, "--report", folder / "schema.toml", "--force", *BUDGET), "same file as the schema"),
    ):
        result = run("plan", "--rows", 100, *options)
        assert result.exit_code == 2 and said in result.stderr and result.stdout == ""


def test_an_analysis_is_divided_so_that_a_ledger_of_it_pays_for_all(run: Run, tmp_path: Path) -> None:
    asked = ("plan", "--rows", 20_000, *BUDGET, "--releases")
    document = json.loads(run(*asked, "check:1,bounds:1,fit:6,score:2", "--json").stdout)
    parts = {part["release"]: part for part in document["releases"]}
    assert list(parts) == ["check", "bounds", "fit", "score"]
    assert parts["bounds"]["delta"] == 0 and parts["fit"]["share"] == 0.6
    for name in ("check", "fit", "score"):
        assert parts[name]["noise_on_a_count"] < parts[name]["noise_if_epsilons_added_up"]
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1.0, delta=1e-6)
    for name, part in parts.items():
        cost = gaussian(part["epsilon"], part["delta"]) if name != "bounds" else pure(part["epsilon"])
        ledger.charge(cost, label=name)
    with pytest.raises(BudgetExceeded):
        ledger.charge(gaussian(0.01, 1e-6))
    shown = run(*asked, "check,bounds,fit,score").stdout
    assert "± 19 rows" in shown and "± 58 rows" in shown  # 10 % of μ² in the place of 10 % of ε
    wrong = run(*asked, "check,fits")
    assert wrong.exit_code == 2 and "check, bounds, describe, fit, search, score" in wrong.stderr
    assert run(*asked, "check", "--ledger", tmp_path / "budget.db").exit_code == 2


def test_a_plan_says_how_many_such_releases_a_ledger_pays_for(run: Run, tmp_path: Path) -> None:
    book = tmp_path / "budget.db"
    Ledger.create(book, epsilon=3.0, delta=1e-5).charge(gaussian(1.0, 1e-6))
    asked = ("plan", "--rows", 3000, "--features", 3, *BUDGET, "--ledger", book)
    assert json.loads(run(*asked, "--json").stdout)["ledger_pays_for"] == 8
    assert "pays for 8 more at ε = 1, δ = 1e-06" in run(*asked).stdout
    assert Ledger(book).state().charges == 1
