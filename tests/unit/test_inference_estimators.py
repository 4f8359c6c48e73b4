"""Intervals of estimators in the user's units, their table, their file; fits without say why."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from curvedp import (
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    Schema,
    load,
)
from curvedp.analyses.estimators.refitting import NoInference
from curvedp.cli.workflow import release_warnings
from curvedp.data import Categorical, Numeric
from curvedp.errors import InvalidInput, ModelFileError
from curvedp.mechanisms.geometry import Geometry
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.postprocess import noise
from curvedp.privacy.budget import Budget
from curvedp.problems import Problem
from curvedp.problems.constraints import NonNegative
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Squared

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(-1, 1, (5000, 3))
Y = np.clip(X @ [0.5, -0.3, 0.0] + RANDOM.normal(0, 0.1, 5000), -1, 1)
LABELS = np.where(X @ [2.0, -1.0, 0.0] + RANDOM.logistic(size=5000) > 0, "yes", "no")
SHARED = {"adjacency": "add_remove", "random_state": 0}
LINEAR = {"bounds": (-1, 1), "target_bounds": (-1, 1), **SHARED}
LOGISTIC = {"bounds": (-1, 1), "classes": ["no", "yes"], **SHARED}


@pytest.fixture(scope="module")
def model() -> PrivateLinearRegression:
    return PrivateLinearRegression(**LINEAR).fit(X, Y)


@pytest.fixture(scope="module")
def logistic() -> PrivateLogisticRegression:
    return PrivateLogisticRegression(**LOGISTIC).fit(X, LABELS)


def levelled(n: int = 4000, adjacency: str = "add_remove") -> tuple[dict[str, Any], Schema]:
    """A table whose level "e" has two records."""
    random = np.random.default_rng(1)
    kind = random.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2]).astype(object)
    kind[:2] = "e"
    age = random.uniform(18, 80, n)
    wage = np.clip(10 + 0.3 * age + 4.0 * (kind == "a") + random.normal(0, 4, n), 0, 60)
    columns = Numeric("age", 16, 90), Categorical("kind", ("a", "b", "c", "e")), Numeric("wage", 0, 60)
    return {"age": age, "kind": kind, "wage": wage}, Schema(columns, "wage", adjacency=adjacency)


def test_intervals_are_aligned_with_the_coefficients(model: PrivateLinearRegression) -> None:
    ends = model.conf_int()
    assert ends.shape == (3, 2) and np.all(np.isfinite(ends))
    assert np.allclose(ends.mean(axis=1), model.coef_, rtol=1e-9, atol=1e-12)
    half = (ends[:, 1] - ends[:, 0]) / 2
    assert np.all(half > 1.95 * model.coef_se_) and np.all(half < 4 * model.coef_se_)
    assert np.all(np.diff(model.conf_int(0.99)) > np.diff(ends))
    with_constant = model.conf_int(intercept=True)
    assert np.array_equal(with_constant[:3], ends)
    assert with_constant[3].mean() == pytest.approx(model.intercept_, abs=1e-12)
    assert np.all(model.coef_noise_ < model.coef_se_)


def test_simultaneous_is_bonferroni_over_the_stated_coefficients(model: PrivateLinearRegression) -> None:
    assert np.allclose(model.conf_int(0.94, simultaneous=True), model.conf_int(1 - 0.06 / 3))
    four = model.conf_int(0.94, simultaneous=True, intercept=True)
    assert np.allclose(four, model.conf_int(1 - 0.06 / 4, intercept=True))


def test_the_covariance_and_the_errors_agree(model: PrivateLinearRegression) -> None:
    C = model.coef_cov_
    assert np.allclose(np.sqrt(np.diag(C)), model.coef_se_, rtol=1e-9)
    assert np.allclose(C, C.T) and np.linalg.eigvalsh(C)[0] > 0
    total = model.contrast({"x0": 1.0, "x1": -2.0})
    weights = np.array([1.0, -2.0, 0.0])
    assert total.se == pytest.approx(np.sqrt(weights @ C @ weights))
    assert total.coefficient == pytest.approx(weights @ model.coef_)


def test_p_values_and_intervals_tell_the_same(model: PrivateLinearRegression) -> None:
    for j, p in enumerate(model.pvalues_):
        level = 1 - p if p > 1e-12 else 1 - 1e-12
        low, high = model.conf_int(level)[j]
        assert min(abs(low), abs(high)) < 1e-3 * (high - low) if p > 1e-12 else low * high > 0


def test_units_change_the_numbers_and_nothing_else(model: PrivateLinearRegression) -> None:
    """x ↦ 10x + 50 and y ↦ 1000y with bounds that go along: the same fit, intervals a hundredfold."""
    moved = PrivateLinearRegression(bounds=(40, 60), target_bounds=(-1000, 1000), **SHARED)
    moved.fit(10 * X + 50, 1000 * Y)
    assert np.allclose(moved.conf_int(), 100 * model.conf_int(), rtol=1e-6)
    assert np.allclose(moved.coef_cov_, 1e4 * model.coef_cov_, rtol=1e-6)
    assert np.allclose(moved.pvalues_, model.pvalues_, rtol=1e-4, atol=1e-300)
    # The old constant is the new fit at x = 50, the middle of the bounds.
    assert moved.contrast(dict.fromkeys(["x0", "x1", "x2"], 50.0) | {"(intercept)": 1.0}).se == pytest.approx(
        1000 * model.intercept_se_, rel=1e-6
    )


def test_the_mean_response_at_zero_is_the_intercept(model: PrivateLinearRegression) -> None:
    at = model.predict_interval(np.vstack([np.zeros(3), [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]]))
    assert np.allclose(at[0], model.conf_int(intercept=True)[3])
    both = model.contrast({"x0": 1.0, "(intercept)": 1.0})
    assert np.allclose(at[1], [both.low, both.high])
    assert np.array_equal(at[1], at[2])  # clipped to the bounds, as predict does
    assert np.allclose(at.mean(axis=1), model.predict([[0.0] * 3, [1.0, 0, 0], [2.0, 0, 0]]))
    many = model.predict_interval(np.tile(X, (4, 1)))  # more than one block of rows
    assert np.allclose(many[:5000], many[15_000:])


def test_probabilities_come_through_the_link(logistic: PrivateLogisticRegression) -> None:
    margin = logistic.contrast({"(intercept)": 1.0})
    at = logistic.predict_interval(np.zeros((1, 3)))
    assert np.allclose(at, expit([[margin.low, margin.high]]))
    assert logistic.coef_se_.shape == logistic.coef_.shape == logistic.pvalues_.shape == (1, 3)
    assert logistic.conf_int().shape == (3, 2)
    inside = logistic.predict_proba(X[:50])[:, 1]
    ends = logistic.predict_interval(X[:50])
    assert np.all((ends[:, 0] > 0) & (ends[:, 0] < inside) & (inside < ends[:, 1]) & (ends[:, 1] < 1))


def test_a_level_without_records_is_not_resolved_and_others_are() -> None:
    table, schema = levelled()
    model = PrivateLinearRegression(schema=schema, random_state=0).fit(table)
    ends = model.conf_int()
    assert np.all(np.isfinite(ends[:4])) and np.all(np.isnan(ends[4]))
    assert np.isnan(model.coef_se_[4]) and np.isnan(model.coef_noise_[4]) and np.isnan(model.pvalues_[4])
    assert np.isnan(model.coef_cov_[0, 4]) and np.isfinite(model.coef_cov_[0, 0])
    shares = [float(np.mean(np.asarray(table["kind"]) == level)) for level in "abc"]
    assert abs(model.coef_[1:4] @ shares) < 0.2  # against the mean over the records: 0.6 from that of levels
    apart = model.contrast({"kind=a": 1.0, "kind=b": -1.0})
    assert apart.resolved and apart.low < 4.0 < apart.high and apart.low > 2.0
    assert np.isnan(model.contrast({"kind=a": 1.0, "kind=e": -1.0}).low)
    found = model.predict_interval({"age": [30, 30], "kind": ["a", "e"]})
    assert np.all(np.isfinite(found[0])) and np.all(np.isnan(found[1]))
    text = str(model.summary())
    assert text.count("not resolved") == 1
    assert "Not resolved: kind=e" in text or "Too few records: kind=e" in text  # of two records, by its noise


def test_few_records_pay_for_no_intervals() -> None:
    model = PrivateLinearRegression(**{**LINEAR, "epsilon": 0.1}).fit(X[:50], Y[:50])
    with pytest.raises(NoInference, match="too few records"):
        model.conf_int()
    assert "too few records" in " ".join(str(model.summary()).split())


def test_a_dead_column_gets_nothing_and_says_so() -> None:
    dead = np.column_stack([X, np.full(len(X), np.nan)])
    model = PrivateLinearRegression(**{**LINEAR, "random_state": 1}).fit(dead, Y)
    assert model.coef_[3] == 0.0 and np.isnan(model.conf_int()[3]).all()
    assert np.isfinite(model.conf_int()[:3]).all()
    assert "No records are told apart there" in " ".join(str(model.summary()).split())


@pytest.mark.parametrize("inference", [True, False])
def test_what_a_column_adds_to_all_records_stays_when_it_is_not_seen(inference: bool) -> None:
    """Two columns that hardly vary, far from the middle of their bounds: their part goes to the intercept."""
    random = np.random.default_rng(3)
    flat, high = np.column_stack([X, random.normal(-0.7, 0.05, (len(X), 2))]), np.clip(Y + 0.5, -1, 1)
    for seed in range(4):
        settings = {**LINEAR, "epsilon": 1.0, "random_state": seed, "inference": inference}
        model = PrivateLinearRegression(**settings).fit(flat, high)
        assert np.all(model.coef_[3:] == 0.0)
        assert abs(np.mean(model.predict(flat)) - np.mean(high)) < 0.02
        if inference:  # the intercept stands for them, too: it is not that of the population
            assert np.isnan(np.asarray(model.conf_int())[3:]).all()


def test_columns_that_are_not_seen_explain_next_to_nothing_together() -> None:
    """Each of ten hidden columns has 0.6 % of what a seen one explains: one of them may go, not all."""
    problem = Problem(Squared(), domain=Domain(x_norm=4.0, y_bound=1.0))
    plan = Recentered().plan(problem, 11, Budget(1.0, 1e-6))
    squares = np.array([1000.0, *np.zeros(10)])
    theta = np.array([1.0, *np.full(10, np.sqrt(0.006 * 1000.0 / 2.0))])[:, None]
    means = np.zeros(11), np.zeros(11), 0.0
    seen = plan._seen(Geometry(np.eye(11), np.eye(11), 1.0, np.diag(squares), 1.0, np.eye(11), *means), theta)
    assert seen[0] and np.sum(~seen) == 1


def test_a_classifier_states_nothing_where_noise_hides_the_tail_of_its_gradients() -> None:
    """500 records are 10 deviations of a count at ε = 1. Where curvature is constant they are enough."""
    random = np.random.default_rng(2)
    x = 2.0 * random.beta(0.5, 0.5, (500, 1)) - 1.0
    y = random.random(500) < 1.0 / (1.0 + np.exp(-0.5 - 2.0 * x[:, 0]))
    model = PrivateLogisticRegression(bounds=(-1, 1), classes=[0, 1], random_state=1).fit(x, y.astype(int))
    known = model.inference_
    assert known.inflation > 0.0 and known.count < 20.0 * known.tail.scale
    assert np.isnan(np.asarray(model.conf_int())).all() and "Too few records" in str(model.summary())
    assert not known.of(np.eye(2)).resolved.any()
    assert known.of(np.eye(2)).enough.min() >= 20.0 * known.tail.scale / known.count
    assert replace(known, inflation=0.0).of(np.eye(2)).resolved.any()


def test_a_linear_fit_of_as_few_records_states_what_it_knows() -> None:
    """Its q is 0 up to rounding: such a tail does it no harm. 30 samples, 2 coefficients each."""
    held = []
    for seed in range(30):
        random = np.random.default_rng(seed)
        X = random.uniform(-1, 1, (500, 2))
        y = np.clip(X @ [0.4, -0.2] + 0.2 * random.normal(size=500), -1, 1)
        model = PrivateLinearRegression(bounds=(-1, 1), target_bounds=(-1, 1), random_state=seed).fit(X, y)
        assert model.inference_.count < 20.0 * model.inference_.tail.scale
        ends = np.asarray(model.conf_int())[:2]
        told = np.isfinite(ends[:, 0])
        held += [*((ends[:, 0] < [0.4, -0.2]) & (ends[:, 1] > [0.4, -0.2]))[told]]
    assert len(held) > 20 and np.mean(held) >= 0.9


PLAIN = {
    "mechanism": (PrivateLinearRegression, {"mechanism": "qop"}, noise.ANOTHER_MECHANISM),
    "statistics": (PrivateLinearRegression, {"mechanism": "statistics"}, noise.ANOTHER_MECHANISM),
    "constraint": (PrivateLinearRegression, {"constraint": NonNegative()}, noise.BENT),
    "huber": (PrivateHuberRegressor, {}, noise.PENALISED),
    "penalty": (PrivateLogisticRegression, {"alpha": 1.0}, noise.PENALISED),
    "asked": (PrivateLinearRegression, {"inference": False}, noise.WITH_INFERENCE),
    "ridge": (PrivateRidge, {}, noise.ANOTHER_MODEL),
    "lasso": (PrivateLasso, {}, noise.ANOTHER_MODEL),
    "ridge, statistics": (PrivateRidge, {"mechanism": "statistics"}, noise.ANOTHER_MODEL),
    "svc": (PrivateLinearSVC, {}, noise.ANOTHER_MODEL),
}


@pytest.mark.parametrize("case", PLAIN)
def test_what_has_no_interval_is_fitted_and_says_why(case: str, tmp_path: Path) -> None:
    kind, options, reason = PLAIN[case]
    classifies = issubclass(kind, PrivateLogisticRegression | PrivateLinearSVC)
    y = LABELS if classifies else Y
    fit = kind(**{**(LOGISTIC if classifies else LINEAR), **options}).fit(X, y)
    fit.save(tmp_path / "model.json")
    for model in (fit, load(tmp_path / "model.json")):
        assert model.inference_ is None
        assert f"No intervals: {reason}." in model.summary().notes
        assert len(model.summary().rows) == model.coef_.size + np.size(model.intercept_)
        text, latex, html = str(model.summary()), model.summary().as_latex(), model.summary().as_html()
        assert "No intervals" in text and "No intervals" in latex and "No intervals" in html
        assert ("noise" in model.summary().headings) == (model.coef_noise_ is not None)
        if hasattr(kind, "inference"):
            calls = {
                "conf_int": model.conf_int,
                "predict_interval": lambda model=model: model.predict_interval(X[:2]),
                "contrast": lambda model=model: model.contrast({"x0": 1.0}),
            }
            for name, call in calls.items():
                with pytest.raises(NoInference, match=f"^{name} .*{re.escape(reason)}"):
                    call()
            assert not hasattr(model, "coef_se_") and not hasattr(model, "pvalues_")


def test_persons_of_one_row_have_the_intervals_of_rows() -> None:
    rows = PrivateLinearRegression(**LINEAR).fit(X, Y)
    persons = PrivateLinearRegression(**LINEAR).fit(X, Y, unit=np.arange(5000))
    assert persons.conf_int() == pytest.approx(
        rows.conf_int(), rel=0.01, abs=1e-4
    )  # S tells how many rows, noisily


def test_the_errors_of_persons_are_cluster_robust() -> None:
    """Without noise they are those of the sandwich over persons; over rows they would be half as large."""
    random = np.random.default_rng(8)
    who = np.repeat(np.arange(2500), random.integers(1, 8, 2500))
    x = np.clip(random.standard_normal(2500)[who] + 0.5 * random.standard_normal(len(who)), -4, 4)
    y = 0.3 * x + random.standard_normal(2500)[who] + 0.3 * random.standard_normal(len(who))
    given = {**LINEAR, "bounds": (-4, 4), "target_bounds": (-8, 8), "epsilon": 1e4}
    model = PrivateLinearRegression(**given).fit(x[:, None], y, unit=who)
    Z = np.column_stack([x, np.ones(len(x))])
    bread = np.linalg.inv(Z.T @ Z)
    residuals = y - Z @ (bread @ Z.T @ y)
    scores = Z * residuals[:, None]
    errors = {}
    for name, units in (("persons", who), ("rows", np.arange(len(x)))):
        sums = np.add.reduceat(scores, np.flatnonzero(np.diff(units, prepend=-1)), axis=0)
        errors[name] = np.sqrt(np.diag(bread @ sums.T @ sums @ bread))[0]
    assert model.coef_se_[0] == pytest.approx(errors["persons"], rel=0.1)
    assert model.coef_se_[0] > 1.8 * errors["rows"]


def test_a_summary_of_several_classes_names_them() -> None:
    y = np.where(X[:, 2] > 0.8, "maybe", LABELS)
    options = {**LOGISTIC, "classes": ["no", "yes", "maybe"], "inference": False}
    model = PrivateLogisticRegression(**options).fit(X, y)
    found = model.summary()
    assert [row.name for row in found.rows][:5] == [
        *(f"maybe: {name}" for name in ("x0", "x1", "x2", "(intercept)")),
        "no: x0",
    ]
    told = np.array([row.coefficient for row in found.rows]).reshape(3, 4)
    assert np.array_equal(told[:, :3], model.coef_) and np.array_equal(told[:, 3], model.intercept_)


def test_a_refit_of_a_fit_with_intervals(model: PrivateLinearRegression) -> None:
    """What it was made from holds both; a refit holds the objective, and no intervals of another model."""
    fewer = model.refit(columns=["x0", "x1"])
    assert fewer.coef_[2] == 0.0 and np.allclose(fewer.coef_[:2], model.coef_[:2], atol=0.02)
    assert fewer.inference_ is None and fewer.objective_ is model.objective_
    with pytest.raises(NoInference, match="refit"):
        fewer.conf_int()


def test_inference_costs_a_part_of_the_same_budget() -> None:
    told, plain = (
        PrivateLinearRegression(**LINEAR, inference=inference).fit(X, Y) for inference in (True, False)
    )
    assert (told.privacy_.epsilon, told.privacy_.delta) == (plain.privacy_.epsilon, plain.privacy_.delta)
    parts, whole = told.privacy_.parameters, plain.privacy_.parameters
    assert parts["mu"] == whole["mu"] and parts["mu_rounds"] < whole["mu_rounds"]
    assert "mu_bread" in parts and "mu_bread" not in whole


def test_penalised_estimators_have_no_such_parameter() -> None:
    for kind in (PrivateLasso, PrivateRidge):
        with pytest.raises(TypeError):
            kind(inference=True)


def test_wrong_arguments_are_named(model: PrivateLinearRegression) -> None:
    for level in (0.0, 1.0, 95, float("nan")):
        with pytest.raises(InvalidInput, match="level"):
            model.conf_int(level)
    with pytest.raises(InvalidInput, match="'x0'"):
        model.contrast({"x9": 1.0})


def test_a_recentered_mechanism_of_ones_own_is_kept() -> None:
    rule = Rule(rounds=20, first_rounds=5, plenty=1e9)
    model = PrivateLinearRegression(**{**LINEAR, "mechanism": Recentered(rule)}).fit(X, Y)
    assert model.privacy_.parameters["rounds"] == 20 and np.all(np.isfinite(model.conf_int()))


def test_the_summary_in_every_form(model: PrivateLinearRegression) -> None:
    found = model.summary()
    text, html, latex, frame = str(found), found._repr_html_(), found.as_latex(), found.as_frame()
    for fact, value in found.facts:
        assert fact in text and value in text and value in unescape(html)
    assert "estimand" in text and "curvedp check" in text
    assert list(frame.index) == ["x0", "x1", "x2", "(intercept)"]
    assert frame.loc["x0", "low"] == model.conf_int()[0, 0]
    assert [row.pvalue for row in found.rows][:3] == model.pvalues_.tolist()
    assert r"\begin{tabular}" in latex and r"95 \% interval" in latex and "−" not in latex
    assert max(map(len, text.splitlines())) <= 96
    assert "seeded" in text


def test_names_cannot_break_out_of_a_table() -> None:
    table, _ = levelled()
    columns = Numeric("<b>&_%", 16, 90), Numeric("wage", 0, 60)
    schema = Schema(columns, "wage", adjacency="add_remove")
    data = {"<b>&_%": table["age"], "wage": table["wage"]}
    found = PrivateLinearRegression(schema=schema).fit(data).summary()
    assert "<b>" not in found.as_html() and "&lt;b&gt;&amp;_%" in found.as_html()
    assert r"$<$b$>$\&\_\%" in found.as_latex()


def test_a_file_keeps_the_intervals(model: PrivateLinearRegression, tmp_path: Path) -> None:
    model.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert np.array_equal(again.conf_int(intercept=True), model.conf_int(intercept=True))
    assert str(again.summary()) == str(model.summary())
    assert np.array_equal(again.coef_noise_, model.coef_noise_) and again.inference is True
    refits = [one.refit(columns=["x0", "x1"]).coef_.tolist() for one in (model, again)]
    assert refits[0] == refits[1]
    assert np.array_equal(again.predict_interval(X[:9]), model.predict_interval(X[:9]))


def test_a_file_keeps_the_noise_and_the_reason(tmp_path: Path, logistic: PrivateLogisticRegression) -> None:
    options = {"bounds": (-1, 1), "target_bounds": (-1, 1), "random_state": 0}
    for one in (
        PrivateRidge(**options, mechanism="statistics").fit(X, Y),
        PrivateLasso(**options, mechanism="statistics").fit(X, Y),
        PrivateRidge(**options).fit(X, Y),
        logistic,
    ):
        one.save(tmp_path / "model.json")
        again = load(tmp_path / "model.json")
        assert again.coef_noise_reason_ == one.coef_noise_reason_
        if one.coef_noise_ is None:
            assert again.coef_noise_ is None and one.coef_noise_reason_
        else:
            assert np.array_equal(again.coef_noise_, one.coef_noise_, equal_nan=True)
            assert again.coef_noise_.shape == one.coef_.shape


def encoded(values: Any) -> dict[str, Any]:
    doubles = np.asarray(values, dtype="<f8")
    return {"shape": list(doubles.shape), "doubles": base64.b64encode(doubles.tobytes()).decode()}


HOSTILE = {
    "a key less": lambda part: part.pop("meat"),
    "a key more": lambda part: part.update(extra=1),
    "too few numbers": lambda part: part.update(gradient=encoded([1.0])),
    "fewer numbers than its shape": lambda part: part["gradient"].update(shape=[5]),
    "no base64": lambda part: part["gradient"].update(doubles="***"),
    "an infinity": lambda part: part.update(look=encoded([np.inf] * 4)),
    "a negative scale": lambda part: part.update(noise=-1.0),
    "a text for a number": lambda part: part.update(kappa="many"),
    "a scale of zero": lambda part: part.update(beyond_scale=0),
    "a histogram without edges": lambda part: part["tail"].update(edges=encoded([]), counts=encoded([1.0])),
    "a histogram with a cell too few": lambda part: part["tail"].update(counts=encoded(np.ones(5))),
    "a shape of text": lambda part: part["look"].update(shape=["d"]),
    "a huge shape": lambda part: part["bread"].update(shape=[4, 10**12]),
    "falling edges": lambda part: part["tail"].update(edges=encoded(np.arange(13.0)[::-1] + 1)),
    "a variance below 0": lambda part: part.update(look_spread=encoded(-np.ones((4, 4)))),
    "more directions than columns": lambda part: part.update(basis=encoded(np.ones((4, 5)))),
    "another estimate": lambda part: part.update(centre=encoded(np.ones(4))),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_file_that_nobody_vouches_for(case: str, model: PrivateLinearRegression, tmp_path: Path) -> None:
    model.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text("utf-8"))
    HOSTILE[case](content["inference"])
    (tmp_path / "model.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ModelFileError, match="sound"):
        load(tmp_path / "model.json")


@pytest.mark.parametrize(
    "noise",
    [
        {"deviations": None, "reason": "<b>"},
        {"deviations": [[1.0]], "reason": ""},
        {"deviations": [[-1.0, 1, 1]], "reason": ""},
        {"deviations": [[1.0, 1, 1]], "reason": noise.UNTOLD},
        {"deviations": None, "reason": ""},
        {"deviations": 3, "reason": ""},
        {},
    ],
)
def test_a_noise_that_nobody_vouches_for(noise: Any, tmp_path: Path) -> None:
    fitted = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), mechanism="statistics").fit(X, Y)
    fitted.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text("utf-8"))
    content["noise"] = noise
    (tmp_path / "model.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ModelFileError):
        load(tmp_path / "model.json")


@pytest.mark.parametrize("heavy", [False, True])
def test_a_tail_that_no_clip_reaches_is_told(heavy: bool) -> None:
    """Three hundred of 20,000 residuals are forty times as large as the others, or none."""
    random = np.random.default_rng(7)
    X = random.uniform(-1, 1, (20_000, 2))
    y = X @ [0.01, -0.02] + 0.02 * random.normal(size=20_000)
    if heavy:
        y[:300] = random.uniform(0.6, 1.0, 300)
    model = PrivateLinearRegression(
        epsilon=3.0, delta=1e-6, bounds=(-1, 1), target_bounds=(-1, 1), random_state=0
    ).fit(X, np.clip(y, -1, 1))
    assert np.isfinite(model.conf_int()).all()
    assert any("Take a logarithm" in note for note in model.summary().notes) == heavy
    assert any("Take a logarithm" in caution.text for caution in release_warnings(model)) == heavy
