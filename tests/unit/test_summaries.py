"""`summary()` of every fit says what it can: all estimators and mechanisms, many columns, unseen ones."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.catalogue import ESTIMATORS, MECHANISMS, adjacencies_of
from typer.testing import CliRunner

from curvedp import PrivateLinearRegression, PrivateLogisticRegression, PrivateRidge, Schema
from curvedp.cli import app
from curvedp.cli.workflow import coefficients, release_report, release_warnings
from curvedp.data import Categorical, Numeric
from curvedp.errors import InvalidInput
from curvedp.mechanisms import Recentered
from curvedp.mechanisms.rule import Rule

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (300, 2))
Y = np.clip(X @ [0.5, -0.3], -1, 1)
TARGETS: dict[str, tuple[dict[str, Any], Any]] = {
    "class": ({"classes": ["no", "yes"]}, np.where(Y > 0, "yes", "no")),
    "count": ({"target_bounds": (0, 9)}, RANDOM.poisson(1.0, 300)),
    "several": ({"target_bounds": [(-1, 1)] * 2}, np.column_stack([Y, Y])),
    "number": ({"target_bounds": (-1, 1)}, Y),
}
QUICK = Recentered(Rule(rounds=6, first_rounds=3))


def kind(cls: Any) -> str:
    if hasattr(cls, "classes"):
        return "class"
    return "count" if hasattr(cls, "max_rate") else "several" if "MultiTask" in cls.__name__ else "number"


CASES = [
    pytest.param(
        cls,
        name,
        id=f"{cls.__name__}-{name}",
        # Quickly: the default of every estimator, and every mechanism once for numbers and once for classes.
        marks=()
        if name == "recentered" or cls in (PrivateLinearRegression, PrivateLogisticRegression)
        else pytest.mark.full,
    )
    for cls in ESTIMATORS
    for name in MECHANISMS
]


@pytest.mark.parametrize(("cls", "name"), CASES)
def test_every_fit_has_a_summary(cls: Any, name: str) -> None:
    options, y = TARGETS[kind(cls)]
    adjacency = adjacencies_of(name)[-1]
    mechanism = QUICK if name == "recentered" else MECHANISMS[name]
    made = cls(bounds=(-1, 1), mechanism=mechanism, epsilon=3.0, adjacency=adjacency, **options)
    try:
        model = made.fit(X, y)
    except InvalidInput:  # the mechanism does not cover the loss, and said so before the charge
        assert name != "recentered"
        return
    found = model.summary()
    outputs = len(np.atleast_1d(model.intercept_))
    assert [row.name for row in found.rows[:3]] == (
        ["x0", "x1", "(intercept)"] if outputs == 1 else ["1: x0", "1: x1", "1: (intercept)"]
    )
    assert len(found.rows) == 3 * outputs == len(found.tidy()) == len(found.as_frame())
    text = str(found)
    assert all(form.count("(intercept)") >= outputs for form in (text, found.as_html(), found.as_latex()))
    assert ("95 % interval" in text) == (model.inference_ is not None) != ("No intervals: " in text)
    assert found.glance().mechanism.tolist() == [name]
    # `coef_noise_` is there, or its reason says why not and what to do.
    noise = np.array([np.nan]) if model.coef_noise_ is None else model.coef_noise_
    assert np.isnan(noise).any() == (len(model.coef_noise_reason_) > 0)
    assert ("noise" in found.headings) == (model.inference_ is None and model.coef_noise_ is not None)
    page = release_report(model)
    assert page.count('class="number value"') == len(coefficients(model)) == len(found.rows)


def wide(cls: Any, n: int = 4_000, columns: int = 80, **options: Any) -> Any:
    random = np.random.default_rng(1)
    table = random.uniform(-1, 1, (n, columns))
    y = np.clip(0.5 * table[:, 21] - 0.3 * table[:, 7] + random.normal(0, 0.05, n), -1, 1)
    return cls(
        bounds=(-1, 1), target_bounds=(-1, 1), epsilon=8.0, adjacency="add_remove", random_state=0, **options
    ).fit(table, y)


@pytest.fixture(scope="module")
def many() -> Any:
    return wide(PrivateLinearRegression)


def test_of_many_coefficients_those_that_stand_out_are_printed(many: Any) -> None:
    found = many.summary()
    assert len(found.rows) == 81 and [row.name for row in found.printed[:2]] == ["x21", "x7"]
    ratios = [abs(row.coefficient) / row.se for row in found.printed]
    assert ratios == sorted(ratios, reverse=True) and len(ratios) == 20
    left = [abs(row.coefficient) / row.se for row in found.rows if row not in found.printed and row.resolved]
    assert max(left) <= ratios[-1]
    text = str(found)
    assert len(re.findall(r"^(x\d+|\(intercept\)) +[−\d.]+ +[\d.]+ ", text, re.MULTILINE)) == 20
    assert "The 20 that stand out most; tidy() has all 81." in text and "tidy() has all 81" in found.as_html()
    assert len(found.tidy()) == 81 and found.as_latex().count("\nx") == 19  # and the intercept
    few = wide(PrivateLinearRegression, columns=59).summary()
    assert few.printed == few.rows and "stand out most" not in str(few)


def test_without_errors_the_largest_are_printed() -> None:
    found = wide(PrivateRidge, mechanism=QUICK).summary()
    sizes = [abs(row.coefficient) for row in found.printed]
    assert len(sizes) == 20 and sizes == sorted(map(abs, (row.coefficient for row in found.rows)))[:-21:-1]


def test_five_thousand_coefficients_become_a_figure_and_a_file() -> None:
    model = wide(PrivateRidge, 500, 400, mechanism=QUICK)
    page = release_report(model)
    assert page.count('class="number value"') == 20 and page.count('class="row" data-name=') == 30
    assert "The 20 of 401 numbers that move it furthest" in page and "All 401 numbers as a CSV file" in page
    assert "<summary>400 columns</summary>" in page
    data = re.search(r'href="data:text/csv;base64,([^"]+)"', page)
    assert data is not None
    lines = base64.b64decode(data[1]).decode().splitlines()
    assert lines[0].startswith("term,estimate,std.error") and len(lines) == 402
    assert lines[1].split(",")[:2] == ["x0", repr(float(model.coef_[0]))]


def test_a_terminal_prints_twenty_and_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"c{k}" for k in range(70)]
    frame = pd.DataFrame(np.random.default_rng(0).uniform(0, 1, (300, 71)), columns=[*names, "y"])
    frame.to_csv("data.csv", index=False)
    Path("schema.toml").write_text(
        'target = "y"\n[columns]\n' + "".join(f"{name} = [0, 1]\n" for name in [*names, "y"])
    )
    fit = ["fit", "data.csv", "--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-6"]
    for model in ("linear", "ridge"):
        done = CliRunner(env={"COLUMNS": "120"}).invoke(
            app, [*fit, "--model", model, "--out", f"{model}.json"]
        )
        assert done.exit_code == 0, done.output
        assert f"The 20 that stand out most; {model}.json has all 71." in done.stdout
        assert len({name for name in names if re.search(rf"\b{name}\b", done.stdout)} - {"c0"}) <= 20
        assert done.stdout.count("Too few records for so many columns: 300 for 71 ") == 1


def cautions(model: Any) -> str:
    return "\n".join(caution.text for caution in release_warnings(model))


def unseen_table(n: int = 20_000) -> tuple[Schema, dict[str, Any]]:
    random = np.random.default_rng(0)
    age = random.uniform(18, 90, n)
    columns = [
        Numeric("age", 18, 110),
        Numeric("income", 0, 100_000, decimal=","),
        Categorical("sex", ["f", "m", "never"]),
        Numeric("cost", 0, 5_000),
    ]
    table = {"age": age, "income": ["12.5 T"] * n, "sex": random.choice(["f", "m"], n)}
    return Schema(columns, target="cost"), {**table, "cost": 30 * age + random.normal(500, 300, n)}


def test_the_report_names_columns_that_are_not_seen() -> None:
    schema, table = unseen_table()
    told = cautions(PrivateLinearRegression(schema=schema, random_state=0).fit(table))
    named = re.search(r"Not seen: ([^.]*)\.", told)
    assert named is not None and named[1].split(", ") == ["income", "sex=never"]
    lost = {key: table[key] for key in ("income", "cost")}
    alone = PrivateLinearRegression(schema=Schema(schema.columns[1::2], target="cost"), random_state=0).fit(
        lost
    )
    assert "Not seen: income." in cautions(alone) and "Too few" not in cautions(alone)  # no matter of rows
    good = PrivateLinearRegression(
        schema=Schema([Numeric("age", 18, 110), Numeric("cost", 0, 5_000)], target="cost"), random_state=0
    ).fit({key: table[key] for key in ("age", "cost")})
    assert "Not seen" not in cautions(good) and "Too few" not in cautions(good)


@pytest.mark.parametrize("cls", [PrivateLinearRegression, PrivateRidge])
def test_too_few_rows_for_so_many_columns_is_said(cls: Callable[..., Any]) -> None:
    model = wide(cls, 300, 40, mechanism=QUICK)
    words = f"Too few records for so many columns: {model.objective_.count:,.0f} for 41 (κ = "
    assert words in " ".join(str(model.summary()).split()) and words in cautions(model)
    assert words in release_report(model)
    assert "Too few records for so many" not in cautions(wide(cls, 9_000, 22, mechanism=QUICK))
