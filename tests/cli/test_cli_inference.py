"""Intervals of `curvedp fit`: the table on the screen, in JSON, in the model file and on the page."""

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


def fit(run: Run, folder: Path, *more: object) -> Result:
    return run(
        *("fit", folder / "data.csv", "--schema", folder / "schema.toml", "--epsilon", 3, "--delta", 1e-6),
        *("--ledger", folder / "budget.db", "--out", folder / "model.json", *more),
    )


def test_the_table_is_printed_and_the_file_keeps_it(run: Run, folder: Path) -> None:
    result = fit(run, folder, "--inference", "--report", folder / "report.html")  # as without the option
    assert result.exit_code == 0, result.stderr
    model = load(folder / "model.json")
    table = str(model.summary()).removeprefix("PrivateLinearRegression")
    assert f"Linear regression{table}" in result.stdout
    assert "95 % interval" in result.stdout and "recentered" in result.stdout
    assert Ledger(folder / "budget.db").state().charges == 1
    page = (folder / "report.html").read_text("utf-8")
    assert 'class="intervals"' in page and page.count('class="row" data-name=') == 3
    low, high = model.conf_int(level=1 - 1e-6)[0]  # the noise is fresh: 95 % would fail one run in twenty
    assert low < 0.6 < high  # the slope of age in the generated table
    assert high - low < 0.6

    predicted = run("predict", folder / "model.json", folder / "data.csv", "--out", folder / "answers.csv")
    assert predicted.exit_code == 0, predicted.stderr
    assert len((folder / "answers.csv").read_text("utf-8").splitlines()) == 2001


def test_json_has_every_number(run: Run, folder: Path) -> None:
    result = fit(run, folder, "--json")
    found = json.loads(result.stdout)["inference"]
    model = load(folder / "model.json")
    assert found["name"] == ["age", "sector=private", "sector=public", "(intercept)"]
    assert np.allclose(np.array([found["low"], found["high"]], dtype=float).T, model.conf_int(intercept=True))


def test_who_predicts_alone_does_without(run: Run, folder: Path) -> None:
    result = fit(run, folder, "--no-inference", "--report", folder / "r.html")
    assert result.exit_code == 0 and "95 % interval" not in result.stdout
    assert "No intervals: it was fitted with --no-inference: fit with --inference." in flat(result.stdout)
    assert "95 % intervals" not in (folder / "r.html").read_text("utf-8")
    assert json.loads((folder / "model.json").read_text("utf-8"))["inference"] is None


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--model", "lasso"), "linear, Huber, quantile, Poisson and logistic regression"),
        (("--model", "huber"), "--alpha 0"),
        (("--mechanism", "qop"), "--mechanism auto"),
    ],
)
def test_what_has_no_intervals_is_fitted_and_says_why(
    run: Run, folder: Path, more: tuple[str, ...], words: str
) -> None:
    result = fit(run, folder, *more)
    assert result.exit_code == 0 and words in flat(result.stdout)
    assert Ledger(folder / "budget.db").state().charges == 1
    assert load(folder / "model.json").inference_ is None
