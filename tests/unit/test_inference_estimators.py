"""`inference=True`: intervals of estimators in the user's units, their table, their file, their refusals."""

from __future__ import annotations

import base64
import json
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from curvedp import (
    Ledger,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRidge,
    Schema,
    load,
)
from curvedp.constraints import NonNegative
from curvedp.errors import InvalidInput, ModelFileError
from curvedp.mechanisms.recentered import Recentered
from curvedp.released.folded import folded_quantile
from curvedp.released.inference import LEAST_KAPPA
from curvedp.schema import Categorical, Numeric

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(-1, 1, (5000, 3))
Y = np.clip(X @ [0.5, -0.3, 0.0] + RANDOM.normal(0, 0.1, 5000), -1, 1)
LABELS = np.where(X @ [2.0, -1.0, 0.0] + RANDOM.logistic(size=5000) > 0, "yes", "no")
SHARED = {"adjacency": "add_remove", "inference": True, "random_state": 0}
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
    wider, worst = model.conf_int(0.99), model.conf_int(clipping="worst")
    assert np.all(np.diff(wider) > np.diff(ends)) and np.all(np.diff(worst) > np.diff(ends))
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


@pytest.mark.parametrize("p", [0.9, 0.05, 1e-4])
def test_quantiles_of_a_folded_normal(p: float) -> None:
    biases = np.array([0.0, 1e-6, 0.3, 1.0, 4.0, 10.0])
    found = folded_quantile(np.full(6, p), biases)
    assert np.allclose(found, stats.foldnorm.isf(p, biases), rtol=1e-9)
    far = folded_quantile(np.full(6, 1e-250), biases)
    tails = np.logaddexp(stats.norm.logsf(far - biases), stats.norm.logsf(far + biases))
    assert np.allclose(tails, np.log(1e-250))


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


def test_a_rare_level_is_not_resolved_and_a_difference_of_others_is() -> None:
    table, schema = levelled()
    model = PrivateLinearRegression(schema=schema, inference=True, random_state=0).fit(table)
    ends = model.conf_int()
    assert np.all(np.isfinite(ends[0])) and np.all(np.isnan(ends[1:]))
    assert np.isnan(model.coef_se_[4]) and np.isnan(model.coef_noise_[4]) and np.isnan(model.pvalues_[4])
    assert np.isnan(model.coef_cov_[0, 4]) and np.isfinite(model.coef_cov_[0, 0])
    assert model.coef_[1:].sum() == pytest.approx(0.0, abs=1e-9)
    apart = model.contrast({"kind=a": 1.0, "kind=b": -1.0})
    assert apart.resolved and apart.low < 4.0 < apart.high and apart.low > 2.0
    assert np.isnan(model.contrast({"kind=a": 1.0, "kind=e": -1.0}).low)
    found = model.predict_interval({"age": [30, 30], "kind": ["a", "e"]})
    assert np.all(np.isfinite(found[0])) and np.all(np.isnan(found[1]))
    text = str(model.summary())
    assert text.count("not resolved") == 5 and "rare level" in text  # four levels and the intercept


def test_a_last_step_far_beyond_its_noise_states_no_interval() -> None:
    """A level of 1.5 % of the records outweighs what the curvature counts: steps overshoot, and it shows."""
    random, n = np.random.default_rng(0), 20_000
    share = [0.55, 0.36, 0.075, 0.015]
    kinds = np.array(["a", "b", "c", "d"])
    table = {"kind": random.choice(kinds, n, p=share), "y": np.zeros(n)}
    table["y"] = 5.0 + 2.0 * (table["kind"] == "d") + random.normal(0, 3, n)
    schema = Schema([Categorical("kind", list(kinds)), Numeric("y", 0, 30)], target="y")
    stated, held, apart = 0, 0, 0
    for seed in range(20):
        fit = PrivateLinearRegression(schema=schema, epsilon=10.0, inference=True, random_state=seed)
        model = fit.fit(table)
        low, high = model.conf_int()[3]
        stated += bool(np.isfinite(low))
        held += bool(low <= 1.5 <= high)
        apart += model.contrast({"kind=a": 1.0, "kind=b": -1.0}).resolved
    assert stated - held <= 1
    assert apart >= 12  # of frequent levels


def test_few_records_state_nothing() -> None:
    model = PrivateLinearRegression(**LINEAR).fit(X[:200], Y[:200])
    assert model.inference_.releases.kappa < LEAST_KAPPA
    assert np.all(np.isnan(model.conf_int(intercept=True))) and np.all(np.isnan(model.coef_noise_))
    assert "larger ε" in str(model.summary())


REFUSED = {
    "mechanism": (PrivateLinearRegression, {"mechanism": "qop"}, "mechanism='auto'"),
    "constraint": (PrivateLinearRegression, {"constraint": NonNegative()}, "constraint=None"),
    "huber": (PrivateHuberRegressor, {}, r"alpha=0"),
    "ridge": (PrivateLogisticRegression, {"alpha": 1.0}, r"alpha=0"),
    "classes": (PrivateLogisticRegression, {"classes": ["no", "yes", "maybe"]}, "two classes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_interval_is_refused_before_the_charge(case: str, tmp_path: Path) -> None:
    kind, options, words = REFUSED[case]
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3.0, delta=1e-5)
    shared = LOGISTIC if kind is PrivateLogisticRegression else LINEAR
    given = {**shared, "random_state": None, **options, "ledger": ledger}
    with pytest.raises(InvalidInput, match=words):
        kind(**given).fit(X, LABELS if kind is PrivateLogisticRegression else Y)
    assert ledger.state().charges == 0


def test_penalised_estimators_have_no_such_parameter() -> None:
    for kind in (PrivateLasso, PrivateRidge):
        with pytest.raises(TypeError):
            kind(inference=True)


def test_without_inference_everything_says_what_to_do() -> None:
    model = PrivateLinearRegression(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, Y)
    for call in (
        model.conf_int,
        model.summary,
        lambda: model.predict_interval(X[:2]),
        lambda: model.coef_se_,
    ):
        with pytest.raises(InvalidInput, match="inference=True"):
            call()
    assert not hasattr(model, "coef_se_") and model.coef_noise_ is None
    assert "inference=True" in model.coef_noise_reason_
    inferred = PrivateLinearRegression(**LINEAR).fit(X, Y)
    assert hasattr(inferred, "coef_se_") and inferred.coef_noise_reason_ == ""
    again = inferred.set_params(inference=False).fit(X, Y)
    assert again.inference_ is None and not hasattr(again, "coef_se_")


def test_wrong_arguments_are_named(model: PrivateLinearRegression) -> None:
    for level in (0.0, 1.0, 95, float("nan")):
        with pytest.raises(InvalidInput, match="level"):
            model.conf_int(level)
    with pytest.raises(InvalidInput, match="clipping"):
        model.conf_int(clipping="hard")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="'x0'"):
        model.contrast({"x9": 1.0})


def test_a_recentered_mechanism_of_ones_own_is_kept() -> None:
    model = PrivateLinearRegression(**{**LINEAR, "mechanism": Recentered()}).fit(X, Y)
    assert model.privacy_.mechanism == "recentered_inference"


def test_the_summary_in_every_form(model: PrivateLinearRegression) -> None:
    found = model.summary()
    text, html, latex, frame = str(found), found._repr_html_(), found.as_latex(), found.as_frame()
    for fact, value in found.facts:
        assert fact in text and value in text and value in unescape(html)
    assert "bounded-influence" in text and "curvedp check" in text
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
    found = PrivateLinearRegression(schema=schema, inference=True).fit(data).summary()
    assert "<b>" not in found.as_html() and "&lt;b&gt;&amp;_%" in found.as_html()
    assert r"$<$b$>$\&\_\%" in found.as_latex()


def test_a_file_keeps_the_intervals(model: PrivateLinearRegression, tmp_path: Path) -> None:
    model.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert np.array_equal(again.conf_int(intercept=True), model.conf_int(intercept=True))
    assert str(again.summary()) == str(model.summary())
    assert np.array_equal(again.coef_noise_, model.coef_noise_) and again.inference is True
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


def encoded(values: Any) -> str:
    return base64.b64encode(np.asarray(values, dtype="<f8").tobytes()).decode()


HOSTILE = {
    "a key less": lambda part: part.pop("meat"),
    "a key more": lambda part: part.update(extra=1),
    "too few numbers": lambda part: part.update(gradient=encoded([1.0])),
    "no base64": lambda part: part.update(gradient="***"),
    "an infinity": lambda part: part.update(lengths=encoded([np.inf] * 4)),
    "a negative scale": lambda part: part.update(noise=-1.0),
    "a text for a number": lambda part: part.update(kappa="many"),
    "an edge beyond the histogram": lambda part: part.update(edge=99),
    "a shape of text": lambda part: part.update(shape=["d", 4, 13]),
    "a huge shape": lambda part: part.update(shape=[4, 10**12, 13]),
    "falling edges": lambda part: part.update(edges=encoded(np.arange(13.0)[::-1] + 1)),
    "a variance below 0": lambda part: part.update(variance=encoded(-np.ones((4, 4)))),
    "a half": lambda part: part.update(resolved=encoded([0.5] * 4)),
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
    [{"reason": "<b>"}, {"deviations": [[1.0]]}, {"deviations": [[-1.0, 1, 1]]}, {"deviations": 3}, {}],
)
def test_a_noise_that_nobody_vouches_for(noise: Any, tmp_path: Path) -> None:
    fitted = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), mechanism="statistics").fit(X, Y)
    fitted.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text("utf-8"))
    content["noise"] = noise
    (tmp_path / "model.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ModelFileError):
        load(tmp_path / "model.json")
