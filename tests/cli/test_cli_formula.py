"""`--formula`: the model in R's notation, from the command line to the file, the page and predictions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from curvedp import load
from curvedp.release.ledger import Ledger

Run = Callable[..., Result]
FORMULA = "log1p(wage) ~ age + I(age**2) + C(sector):age"


def fit(run: Run, folder: Path, *more: object) -> Result:
    return run(
        *("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 1, "--delta", 1e-6),
        *("--ledger", folder / "budget.db", "--out", folder / "model.json", *more),
    )


def test_a_formula_is_fitted_kept_reported_and_predicts_from_raw_columns(run: Run, folder: Path) -> None:
    result = fit(run, folder, "--formula", FORMULA, "--report", folder / "report.html")
    assert result.exit_code == 0, result.stderr
    assert "I(age ** 2)" in result.stdout and "sector=public:age" in result.stdout
    model = load(folder / "model.json")
    assert model.schema_.feature_names == ("age", "I(age ** 2)", "sector=public:age")
    page = (folder / "report.html").read_text("utf-8")
    assert "A private model of log1p(wage)" in page
    assert 'data-name="I(age ** 2)"' in page and 'data-value="6400.0"' in page
    lines = page[page.index('id="bounds"') : page.index('id="protected"')].splitlines()
    bounds = {line.split('"')[1]: line for line in lines if line.startswith("<tr data-name=")}
    assert bounds["I(age ** 2)"].endswith(">computed from what those columns then hold</td></tr>")
    assert bounds["log1p(wage)"].endswith(">no record: it adds nothing</td></tr>")
    out = folder / "answers.csv"
    predicted = run("predict", folder / "model.json", folder / "data.csv", "--out", out)
    assert predicted.exit_code == 0, predicted.stderr
    answers = np.array([float(line.split(",")[-1]) for line in out.read_text("utf-8").splitlines()[1:]])
    assert np.all((answers > 3) & (answers < 5))  # log1p of wages between 20 and 90


def test_a_target_that_the_formula_repeats_is_accepted(run: Run, folder: Path) -> None:
    assert fit(run, folder, "--formula", FORMULA, "--target", "wage").exit_code == 0
    assert load(folder / "model.json").schema_.target == "log1p(wage)"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--formula", "wage ~ sector", "--target", "age"), "the target is 'age', the formula's is 'wage'"),
        (("--formula", "wage ~ scale(age)"), "would look at the data"),
        (("--formula", "wage ~ agee"), "did you mean 'age'"),
        (("--formula", "log(wage) ~ age"), "write log1p(wage)"),
        (("--formula", "wage ~ bs(age)"), "knots=[...] with numbers between 16 and 80"),
        (("--formula", "sector ~ age", "--model", "ridge"), "is a category"),
    ],
)
def test_what_the_formula_rules_out_is_refused_before_the_charge(
    run: Run, folder: Path, options, said
) -> None:
    result = fit(run, folder, *options)
    assert result.exit_code != 0 and said in result.stderr
    assert Ledger(folder / "budget.db").state().charges == 0
    assert not (folder / "model.json").exists()


def test_a_plan_counts_the_columns_of_a_formula(run: Run, folder: Path) -> None:
    common = ("plan", "--rows", 5000, "--epsilon", 1, "--delta", 1e-6, "--json")
    schema = ("--schema", folder / "schema.toml")
    result = run(*common, *schema, "--formula", "sector ~ age + I(age**2) + spline(wage, knots=[50])")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["features"] == 7 and found["task"] == "classification"
    for options, said in (
        ((*schema, "--features", 3), "leave --features and --task out"),
        (("--formula", "~ age"), "pass --features, or --schema"),
        ((), "pass --features, or --schema"),
    ):
        refused = run(*common, *options)
        assert refused.exit_code != 0 and said in refused.stderr


def test_a_search_takes_a_formula(run: Run, folder: Path) -> None:
    result = run(
        *("search", folder / "data.csv", "--schema", folder / "schema.toml", "--alphas", "0.1,10"),
        *("--epsilon", 2, "--delta", 1e-6, "--formula", FORMULA, "--out", folder / "model.json", "--quiet"),
    )
    assert result.exit_code == 0, result.stderr
    assert load(folder / "model.json").schema_.target == "log1p(wage)"
