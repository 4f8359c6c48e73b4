"""Absorbed effects of persons: against least squares with a column for every person (U-3)."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from typer.testing import CliRunner

from curvedp import (
    Boolean,
    Budget,
    Categorical,
    Domain,
    Numeric,
    PrivateHuberRegressor,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRidge,
    Schema,
    load,
    plan,
    report,
)
from curvedp.analyses.estimators import PrivateMultiTaskRidge, PrivatePoissonRegressor
from curvedp.analyses.scores import private_scores
from curvedp.auditing import audit
from curvedp.cli import app
from curvedp.data.rows import make_rows
from curvedp.data.rows.persons import person_block
from curvedp.errors import InvalidInput
from curvedp.mechanisms import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.problems.losses import Squared

YEARS = ("2020", "2021", "2022")
COLUMNS = (
    Numeric("hours", 0, 10),
    Numeric("age", -5, 5),
    Categorical("year", YEARS),
    Boolean("treated"),
    Boolean("after"),
    Numeric("weight", 0, 4),
    Numeric("wage", -20, 20),
)
SCHEMA = Schema(COLUMNS, target="wage", unit="person", absorb="person")
QUICK = Recentered(Rule(rounds=6, first_rounds=3))
FAR = 1e9  # a clip that clips nobody


def panel(persons: int = 300, seed: int = 0) -> pd.DataFrame:
    """1 to 6 rows of each person, in no order; effects that go with the columns, cells beyond the bounds."""
    random = np.random.default_rng(seed)
    ids = random.permutation(np.repeat(np.arange(persons), random.integers(1, 7, persons)))
    n, effect = len(ids), random.normal(0, 3, persons)[ids]
    hours, age = random.uniform(-1, 11, n), random.uniform(-3, 3, n) + 0.5 * effect
    year = random.choice(YEARS, n)
    treated, after = random.integers(0, 2, persons)[ids], (year == "2022").astype(int)
    wage = 0.5 * np.clip(hours, 0, 10) - 2 * np.clip(age, -5, 5) + effect + 2.0 * treated * after
    return pd.DataFrame(
        {
            "person": ids,
            "hours": hours,
            "age": age,
            "year": year,
            "treated": treated,
            "after": after,
            "weight": random.uniform(0, 4, n) * (random.random(n) < 0.9),
            "wage": wage + (year == "2021") + random.normal(0, 2, n),
        }
    )


def linear(schema: Schema = SCHEMA, **options) -> PrivateLinearRegression:
    options = {"inference": False, "mechanism": QUICK, "random_state": 0, **options}
    return PrivateLinearRegression(schema=schema, **options)


def rows_and_theta(model, table):
    """The rows that a fit sees, XᵀX and the minimiser of their squares, without noise."""
    at = model._declare(table)
    rows, d = model._read_rows(table, None, at), at.columns.d
    gram = rows.in_metric(np.eye(d), FAR).moments().xx
    slope = rows.gradient_sum(at.problem.loss, np.zeros((d, 1)), FAR)
    return at, gram, -np.linalg.pinv(gram, rcond=1e-10) @ slope


def solved(model, table) -> np.ndarray:
    """The coefficients without noise, in the user's units."""
    at, _, theta = rows_and_theta(model, table)
    return at.columns.to_user_units(theta)[0][:, 0] * at.target.scale


def with_dummies(features: list[np.ndarray], frame: pd.DataFrame, weights=None):
    """Least squares with a column for every person; the oracle."""
    persons = pd.get_dummies(frame["person"]).to_numpy(float)
    y = frame["wage"].clip(-20, 20)
    return sm.WLS(y, np.column_stack([*features, persons]), weights=1.0 if weights is None else weights)


def numbers(frame: pd.DataFrame) -> list[np.ndarray]:
    return [frame["hours"].clip(0, 10).to_numpy(), frame["age"].clip(-5, 5).to_numpy()]


def later(frame: pd.DataFrame) -> list[np.ndarray]:
    return [(frame["year"] == year).to_numpy(float) for year in YEARS[1:]]


@pytest.mark.parametrize("lost", [0.0, 0.2], ids=["all targets", "some targets"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weights"])
def test_the_noiseless_minimiser_is_that_of_a_column_for_every_person(weighted, lost):
    frame = panel()
    gone = np.random.default_rng(1).random(len(frame)) < lost
    table = frame.assign(wage=frame["wage"].mask(gone))
    schema = replace(SCHEMA, weight="weight" if weighted else None)
    used = frame[~gone & ((frame["weight"] > 0) | (not weighted))]
    weights = used["weight"] if weighted else None

    one_way = solved(linear(schema, formula="wage ~ hours + age"), table)
    expected = with_dummies(numbers(used), used, weights).fit().params[:2]
    assert one_way == pytest.approx(np.asarray(expected), rel=1e-8)

    two_way = solved(linear(schema, formula="wage ~ hours + age + C(year) + treated:after"), table)
    effect = [(used["treated"] * used["after"]).to_numpy(float)]
    expected = np.asarray(with_dummies([*numbers(used), *later(used), *effect], used, weights).fit().params)
    found = np.r_[two_way[:2], two_way[3:5] - two_way[2], two_way[5]]  # years: against the first
    assert found == pytest.approx(expected[:5], rel=1e-8)


def test_gradients_of_persons_give_the_errors_that_are_clustered_by_person():
    frame, model = panel(), linear(formula="wage ~ hours + age")
    at, gram, theta = rows_and_theta(model, frame)
    own = [group for _, group in frame.groupby("person")]
    G = [model._read_rows(rows, None, at).gradient_sum(Squared(), theta, FAR)[:, 0] for rows in own]
    bread = np.linalg.inv(gram)
    units = at.target.scale / at.columns.scale
    errors = units * np.sqrt(np.diag(bread @ np.array(G).T @ np.array(G) @ bread))
    clusters = {"groups": frame["person"], "use_correction": False}
    expected = with_dummies(numbers(frame), frame).fit(cov_type="cluster", cov_kwds=clusters)
    assert errors == pytest.approx(np.asarray(expected.bse[:2]), rel=1e-6)


def test_persons_with_one_usable_row_count_and_add_nothing():
    random = np.random.default_rng(2)
    X, y, ids = random.uniform(-1, 1, (60, 2)), random.uniform(-1, 1, 60), np.repeat(np.arange(20), 3)
    alone = random.uniform(-1, 1, (5, 2))
    domain, theta = Domain(4.0, 2.0, unit="p", absorbed=True), random.standard_normal((2, 1))
    plain = make_rows(X, y, domain, unit=ids)
    more = make_rows(
        np.r_[X, alone, alone], np.r_[y, y[:5], np.full(5, np.nan)], domain, unit=np.r_[ids, 90:95, 90:95]
    )
    assert more.count() == plain.count() + 5
    for ask in (
        lambda rows: rows.gradient_sum(Squared(), theta, FAR),
        lambda rows: rows.in_metric(np.eye(2), FAR).moments().xx,
    ):
        assert ask(more) == pytest.approx(ask(plain), rel=1e-12)
    nobody = make_rows(alone, y[:5], domain, unit=np.arange(5))
    assert not nobody.gradient_sum(Squared(), theta, FAR).any()
    assert nobody.norm_histogram(np.array([1e-300])).tolist() == [5, 0]


def test_differences_are_those_of_the_person_to_the_last_bit_and_stay_in_the_domain():
    random = np.random.default_rng(3)
    starts = np.array([0, 1, 4, 4 + 5000, 5011])
    X = random.uniform(-3, 3, (starts[-1], 3)) * random.choice([1.0, 1e-9, 1e12], (starts[-1], 1))
    y = random.uniform(-3, 3, (starts[-1], 1)) * random.choice([1.0, 1e300, np.nan, np.inf], (starts[-1], 1))
    v = np.c_[y, random.choice([0.0, 1.0, 1e-308, 5e-324, 0.3], starts[-1])]
    for targets, weighted in ((y, False), (v, True)):
        domain = Domain(2.0, 1.0, unit="p", weighted=weighted, absorbed=True)
        both, together = person_block(X, targets, starts, None, 2.0, domain)
        assert np.isfinite(together).all() and np.isfinite(both.block.X).all()
        assert both.block.norms.max() <= 2.0 and np.abs(together[:, 0]).max() <= 1.0 + 1e-12
        for first, last in pairwise(starts):
            own, alone = person_block(
                X[first:last], targets[first:last], np.array([0, last - first]), None, 2.0, domain
            )
            assert np.array_equal(own.block.X, both.block.X[first:last])
            assert np.array_equal(alone, together[first:last])


def test_a_fit_is_free_of_the_effects_and_a_pooled_one_is_not():
    frame = panel(3000)
    formula = "wage ~ hours + age + C(year) + treated:after"
    exact = solved(linear(formula=formula), frame)
    found = linear(formula=formula, epsilon=3.0, mechanism="auto").fit(frame)
    pooled = linear(replace(SCHEMA, absorb=None), formula=formula, epsilon=3.0, mechanism="auto").fit(frame)
    assert found.coef_[[1, 5]] == pytest.approx([-2.0, 2.0], abs=0.25)
    assert np.abs(found.coef_ - exact).max() < 0.2
    assert pooled.coef_[1] > -1.7


def test_predictions_are_of_changes_and_survive_a_file(tmp_path):
    frame = panel()
    model = linear().fit(frame)
    assert model.intercept_ == 0.0 and model.privacy_.theorem == "(P-9)"
    shifted = frame.assign(hours=5.0), frame.assign(hours=6.0)
    change = model.predict(shifted[1]) - model.predict(shifted[0])
    assert change == pytest.approx(np.full(len(frame), model.coef_[0]))
    far = replace(model.release_, coefficients=1e3 * model.release_.coefficients).to_estimator()
    assert far.predict(shifted[1]) == pytest.approx(1e3 * model.predict(shifted[1]))  # nothing is cut off
    model.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert again.schema_.absorb == "person" and again.predict(frame) == pytest.approx(model.predict(frame))
    for text in (str(again.summary()), report(again)):
        assert "within persons (fixed effects absorbed)" in text and "(intercept)" not in text
    assert again.release_.to_dict() == model.release_.to_dict()
    ridge = PrivateRidge(schema=SCHEMA, mechanism=QUICK, random_state=0, alpha=1.0).fit(frame)
    assert ridge.refit(alpha=2.0, trust=100.0).intercept_ == 0.0


def test_every_entrance_gives_the_same_fit(tmp_path):
    frame, schema = panel(), SCHEMA.with_formula("wage ~ hours + age")
    expected = linear(schema).fit(frame).coef_
    path = tmp_path / "panel.csv"
    frame.to_csv(path, index=False)
    shuffled, lazy = frame.sample(frac=1.0, random_state=1), dd.from_pandas(frame, npartitions=3)
    for table in (shuffled, path, schema.source(frame), lazy):
        assert linear(schema).fit(table).coef_ == pytest.approx(expected, rel=1e-6)
    plain = PrivateLinearRegression(
        bounds=[(0, 10), (-5, 5)],
        target_bounds=(-20, 20),
        absorb="person",
        inference=False,
        mechanism=QUICK,
        random_state=0,
    )
    plain.fit(frame[["hours", "age"]].to_numpy(), frame["wage"].to_numpy(), unit=frame["person"])
    assert plain.coef_ == pytest.approx(expected, rel=1e-9)
    assert plain.schema_.absorb == plain.schema_.unit == "person"


def test_several_targets_are_absorbed_together():
    frame = panel()
    Y = frame[["wage", "age"]].to_numpy()
    model = PrivateMultiTaskRidge(
        bounds=[(0, 10)], target_bounds=[(-20, 20), (-5, 5)], absorb="person", mechanism=QUICK, random_state=0
    )
    model.fit(frame[["hours"]].to_numpy(), Y, unit=frame["person"])
    assert model.intercept_.tolist() == [0.0, 0.0]
    X, passed = frame[["hours"]].to_numpy(), {"unit": frame["person"]}
    at = model._declare(X, passed)
    rows = model._read_rows(X, Y, at, passed)
    gram = rows.in_metric(np.eye(1), FAR).moments().xx[0, 0]
    slope = rows.gradient_sum(at.problem.loss, np.zeros((1, 2)), FAR)[0]
    expected = with_dummies([frame["hours"].clip(0, 10).to_numpy()], frame).fit().params.iloc[0]
    assert -slope[0] / gram / at.columns.scale[0] * 20 == pytest.approx(expected, rel=1e-8)


def test_an_audit_comes_close_to_the_claim():
    schema = replace(SCHEMA, adjacency="add_remove")
    found = audit(linear(schema, formula="wage ~ hours + age", random_state=None).fit(panel()), replays=3)
    assert not found.problems
    assert 0.7 <= found.total <= 1.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unit": None}, "absorb needs unit"),
        ({"absorb": "firm"}, "absorb must be the unit, 'person'"),
        ({"rows_per_person": "one"}, "does not differ from its mean"),
    ],
)
def test_a_schema_refuses_effects_that_are_not_those_of_persons(options, words):
    with pytest.raises(InvalidInput, match=words):
        replace(SCHEMA, **options)
    assert Schema.from_toml(SCHEMA.to_toml()) == SCHEMA
    content = {key: value for key, value in {**SCHEMA.to_dict(), **options}.items() if value is not None}
    with pytest.raises(InvalidInput, match=words):
        Schema.from_dict(content)


def test_what_has_no_absorbed_effects_is_refused_before_anything_is_read():
    nothing = {name: [] for name in ("person", *(column.name for column in COLUMNS))}
    classes = Schema(COLUMNS, target="treated", unit="person", absorb="person")
    counts = Schema((*COLUMNS[:6], Numeric("wage", 0, 20)), target="wage", unit="person", absorb="person")
    for model in (
        PrivateHuberRegressor(schema=SCHEMA),
        PrivateLogisticRegression(schema=classes),
        PrivatePoissonRegressor(schema=counts),
    ):
        with pytest.raises(InvalidInput, match="a squared loss alone"):
            model.fit(nothing)
    with pytest.raises(InvalidInput, match="absorb must be the unit"):
        linear(absorb="firm").fit(nothing)
    with pytest.raises(InvalidInput, match="unit"):
        Domain(absorbed=True)
    with pytest.raises(InvalidInput, match="columns and domain alike"):
        make_rows(np.ones((2, 9)), np.ones(2), Domain(9.0, unit="p"), SCHEMA.column_map(), unit=[1, 1])
    fitted = linear().fit(panel())
    with pytest.raises(InvalidInput, match="scores are of whole targets"):
        private_scores(fitted, panel(), epsilon=1.0, delta=1e-6)


def test_a_forecast_is_that_of_a_table_without_absorbed_effects():
    found = [plan(4000, schema, Budget(1.0, 1e-6)) for schema in (SCHEMA, replace(SCHEMA, absorb=None))]
    assert str(found[0]) == str(found[1])


def test_the_command_line_fits_what_the_schema_absorbs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    panel().to_csv("panel.csv", index=False)
    declared = ["--schema", "schema.toml", "--epsilon", "1", "--delta", "1e-6", "--out", "model.json"]
    words = ["fit", "panel.csv", *declared, "--formula", "wage ~ hours + C(year) + treated:after"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "within persons (fixed effects absorbed)" in " ".join(result.output.split())
    content = json.loads(Path("model.json").read_text())
    assert content["schema"]["absorb"] == "person" and content["intercept"] == [0.0]
    result = CliRunner().invoke(app, [*words, "--model", "huber", "--force"])
    assert result.exit_code == 2 and "squared loss" in " ".join(result.output.split())


def test_stated_errors_are_clustered_by_person():
    """With hardly any noise, those of a fit with a column for every person, over persons."""
    frame = panel(6000)
    model = linear(formula="wage ~ hours + age", mechanism="auto", inference=True, epsilon=1e4).fit(frame)
    at, gram, theta = rows_and_theta(model, frame)
    rows = model._read_rows(frame, None, at)
    meat = rows.in_metric(np.eye(len(theta))).score_sum(Squared(), theta, FAR)
    inverse = np.linalg.inv(gram)
    units = model.release_.units.coefficients
    oracle = np.sqrt(np.diag(units @ inverse @ meat @ inverse @ units.T))
    assert model.coef_se_ == pytest.approx(oracle, rel=0.02)
