"""Intervals and scores of counts and of several classes: against statsmodels and scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import softmax
from sklearn.metrics import d2_log_loss_score, d2_tweedie_score, log_loss, mean_poisson_deviance

from curvedp import Categorical, Numeric, PrivateLogisticRegression, Schema, load
from curvedp.analyses.estimators import PrivatePoissonRegressor
from curvedp.analyses.scores import private_scorer, private_scores
from curvedp.errors import InvalidInput, ModelFileError

N = 20_000
RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (N, 2))
DAYS = RANDOM.uniform(1, 10, N)
# Twice as varied as a Poisson law: quasi-Poisson errors are what matters.
COUNTS = RANDOM.poisson(DAYS * np.exp(X @ [0.5, -0.3] - 1.0) * RANDOM.gamma(2, 0.5, N))
CLASSES = np.array(["a", "b", "c"])[
    np.sum(
        np.cumsum(softmax(X @ np.array([[1.0, 0.0, -1.0], [0.0, 2.0, -1.0]]), axis=1), axis=1)
        < RANDOM.random((N, 1)),
        axis=1,
    )
]
DESIGN = np.column_stack([X, np.ones(N)])
COUNTED = {"bounds": (-1, 1), "target_bounds": (0, 60), "exposure_bounds": (1, 10), "random_state": 0}
AMONG = {"bounds": (-1, 1), "random_state": 0}


@pytest.fixture(scope="module")
def counted() -> PrivatePoissonRegressor:
    return PrivatePoissonRegressor(**COUNTED).fit(X, COUNTS, exposure=DAYS)


@pytest.fixture(scope="module")
def among() -> PrivateLogisticRegression:
    return PrivateLogisticRegression(**AMONG, classes=["b", "a", "c"], epsilon=3.0).fit(X, CLASSES)


def test_with_next_to_no_noise_counts_are_those_of_statsmodels() -> None:
    """ε = 10⁶: robust errors, which hold that counts vary more than a Poisson law (quasi-Poisson) says."""
    model = PrivatePoissonRegressor(**COUNTED, epsilon=1e6).fit(X, COUNTS, exposure=DAYS)
    glm = sm.GLM(COUNTS, DESIGN, family=sm.families.Poisson(), exposure=DAYS)
    robust, naive, quasi = glm.fit(cov_type="HC0", tol=1e-12), glm.fit(), glm.fit(scale="X2")
    rows = model.summary().rows
    found, se, noise = (
        np.array([getattr(row, key) for row in rows]) for key in ("coefficient", "se", "noise")
    )
    np.testing.assert_array_less(np.abs(found - robust.params), 4.0 * noise)
    assert noise.max() < 0.02 * robust.bse.min()
    np.testing.assert_allclose(se, robust.bse, rtol=2e-3)
    np.testing.assert_allclose(np.append(model.coef_se_, model.intercept_se_), se)
    assert np.all(se > 1.2 * naive.bse) and np.allclose(se, quasi.bse, rtol=0.15)
    ratios = model.summary(exp=True)
    assert ratios.ratio == "rate ratio"
    np.testing.assert_allclose([row.low for row in ratios.rows], np.exp([row.low for row in rows]))


def test_counts_far_below_the_largest_one_have_no_intervals() -> None:
    """The mean is 0.0002 of the bound, and noise hides it; with a closer bound the same counts have some."""
    y = RANDOM.poisson(0.2 * np.exp(X @ [0.5, -0.3]))
    far, near = (
        PrivatePoissonRegressor(bounds=(-1, 1), target_bounds=(0, high), random_state=0).fit(X, y)
        for high in (1000, 10)
    )
    assert far.inference_ is None and "max_rate" in str(far.summary())
    low, high = near.conf_int().T
    assert np.all((low < [0.5, -0.3]) & (high > [0.5, -0.3]))


@pytest.mark.parametrize("most", [20, 400])
def test_a_loose_bound_moves_no_estimate(most: float) -> None:
    """ε = 30, bounds 3 and 60 times the largest mean: within half an error of the fit without privacy."""
    y = RANDOM.poisson(2.0 * np.exp(X @ [1.0, -0.6]))
    model = PrivatePoissonRegressor(bounds=(-1, 1), target_bounds=(0, most), epsilon=30.0, random_state=0)
    model.fit(X, y)
    glm = sm.GLM(y, DESIGN, family=sm.families.Poisson()).fit(cov_type="HC0")
    found = np.append(model.coef_, model.intercept_)
    assert np.all(np.abs(found - glm.params) < 0.5 * glm.bse)


def test_with_next_to_no_noise_classes_are_those_of_statsmodels() -> None:
    model = PrivateLogisticRegression(**AMONG, classes=["a", "b", "c"], epsilon=1e6).fit(X, CLASSES)
    codes = np.unique(CLASSES, return_inverse=True)[1]
    plain = sm.MNLogit(codes, DESIGN).fit(disp=0, cov_type="HC0", tol=1e-12)
    rows = model.summary().rows
    found, se, noise = (
        np.array([getattr(row, key) for row in rows]) for key in ("coefficient", "se", "noise")
    )
    np.testing.assert_array_less(np.abs(found - plain.params.T.ravel()), 4.0 * noise)
    assert noise.max() < 0.002 * plain.bse.min()
    np.testing.assert_allclose(se, plain.bse.T.ravel(), rtol=5e-4)
    assert [row.name for row in rows][:4] == ["b: x0", "b: x1", "b: (intercept)", "c: x0"]
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(found.reshape(2, 3)[:, :2], model.coef_[1:] - model.coef_[0])


def test_intervals_of_classes_are_aligned_with_their_coefficients(among: PrivateLogisticRegression) -> None:
    ends = among.conf_int()
    assert ends.shape == (3, 2, 2) and np.all((ends[..., 0] < among.coef_) & (among.coef_ < ends[..., 1]))
    assert among.coef_se_.shape == among.pvalues_.shape == among.coef_df_.shape == (3, 2)
    assert np.shape(among.intercept_se_) == (3,)
    np.testing.assert_allclose(np.sqrt(np.diag(among.coef_cov_)).reshape(3, 2), among.coef_se_)
    frame = among.conf_int(as_frame=True, intercept=True)
    assert list(frame["term"])[:4] == ["a: x0", "a: x1", "a: (intercept)", "b: x0"]
    wide = among.conf_int(simultaneous=True)
    np.testing.assert_allclose(wide, among.conf_int(level=1 - 0.05 / 6))
    noise = among.coef_noise_
    assert noise is not None and np.all((noise > 0) & (noise < among.coef_se_))


def test_classes_are_stated_against_the_first_declared(among: PrivateLogisticRegression) -> None:
    told = among.summary()
    assert "each class against b" in told.title and [row.name for row in told.rows][:1] == ["a: x0"]
    own = among.contrast({"a: x0": 1, "b: x0": -1})
    first = told.rows[0]
    assert own.coefficient == pytest.approx(first.coefficient) and own.se == pytest.approx(first.se)
    assert among.summary(exp=True).rows[0].coefficient == pytest.approx(np.exp(first.coefficient))
    with pytest.raises(InvalidInput, match="'a: x0'"):
        among.contrast({"x0": 1})
    with pytest.raises(InvalidInput, match="one response"):
        among.marginal_effects()


def test_the_schema_says_which_class_others_are_stated_against() -> None:
    levels = Categorical("c", ["a", "b", "c"], reference="c")
    schema = Schema([Numeric("x0", -1, 1), Numeric("x1", -1, 1), levels], target="c")
    table = {"x0": X[:, 0], "x1": X[:, 1], "c": CLASSES}
    model = PrivateLogisticRegression(schema=schema, epsilon=3.0, random_state=0).fit(table)
    assert "against c" in model.summary().title
    assert {row.name.partition(":")[0] for row in model.summary().rows} == {"a", "b"}
    assert model.glance()["df.residual"][0] == N - 2 * 3


def test_ratios_of_classes_without_intervals_are_differences_too() -> None:
    model = PrivateLogisticRegression(**AMONG, classes=["a", "b", "c"], alpha=5.0).fit(X, CLASSES)
    assert model.summary().rows[0].name == "a: x0"  # each by itself
    ratios = model.summary(exp=True).rows
    assert ratios[0].name == "b: x0"
    assert ratios[0].coefficient == pytest.approx(np.exp(model.coef_[1, 0] - model.coef_[0, 0]))


def test_a_file_keeps_them(
    among: PrivateLogisticRegression, counted: PrivatePoissonRegressor, tmp_path
) -> None:
    for model in (among, counted):
        model.save(tmp_path / "model.json")
        again = load(tmp_path / "model.json")
        np.testing.assert_array_equal(again.conf_int(), model.conf_int())
    among.save(tmp_path / "model.json")
    text = (tmp_path / "model.json").read_text()
    first = repr(float(among.release_.coefficients[0, 0]))
    (tmp_path / "model.json").write_text(text.replace(first, "9.5", 1))
    with pytest.raises(ModelFileError, match="contradicts its coefficients"):
        load(tmp_path / "model.json")


def test_intervals_of_probabilities_are_those_of_the_delta_method(among: PrivateLogisticRegression) -> None:
    """By finite differences of log(p/(1 − p)) in θ, class by class."""
    record = np.array([[0.3, -0.7]])
    ends, p = among.predict_interval(record)[0], among.predict_proba(record)[0]
    assert np.all((ends[:, 0] < p) & (p < ends[:, 1]))
    known, margins = among.inference_, among.release_.units.margins(record)[0]
    theta = known.theta
    for k in range(3):

        def logit(moved: np.ndarray, k: int = k) -> float:
            q = softmax(margins @ moved)
            return float(np.log(q[k] / (1 - q[k])))

        slopes = np.zeros(theta.size)
        for j in range(theta.size):
            step = np.zeros(theta.size)
            step[j] = 1e-6
            more = logit(theta + step.reshape(3, -1).T)
            slopes[j] = (more - logit(theta - step.reshape(3, -1).T)) / 2e-6
        half = known.of(slopes[None, :]).half_width(0.95)[0]
        logits = np.log(ends[k] / (1 - ends[k]))
        np.testing.assert_allclose(logits, logit(theta) + half * np.array([-1, 1]), rtol=1e-4)


def test_intervals_of_expected_counts(counted: PrivatePoissonRegressor) -> None:
    days = np.array([1.0, 10.0])
    low, high = counted.predict_interval(X[[0, 0]], exposure=days).T
    expected = counted.predict(X[[0, 0]], exposure=days)
    assert np.all((low < expected) & (expected < high))
    np.testing.assert_allclose([low[1], high[1]], [10 * low[0], 10 * high[0]])
    at_zero = counted.predict_interval([[0.0, 0.0]], exposure=[1.0])[0]
    half = counted._functionals("").half_width(0.95)[-1]
    np.testing.assert_allclose(np.log(at_zero), counted.intercept_ + half * np.array([-1, 1]))
    effects = counted.marginal_effects(at={"x0": 0.0, "x1": 0.0})
    np.testing.assert_allclose(effects["estimate"], np.exp(counted.intercept_) * counted.coef_)


def test_persons_of_one_row_have_the_intervals_of_rows() -> None:
    for cls, options, y in (
        (PrivateLogisticRegression, {**AMONG, "classes": ["a", "b", "c"]}, CLASSES),
        (PrivatePoissonRegressor, {"bounds": (-1, 1), "target_bounds": (0, 60), "random_state": 0}, COUNTS),
    ):
        rows = cls(**options, epsilon=3.0).fit(X, y)
        persons = cls(**options, epsilon=3.0).fit(X, y, unit=np.arange(N))
        apart = np.abs(persons.conf_int() - rows.conf_int())  # the noise of the last looks is another draw
        assert np.all(apart < 0.6 * rows.coef_se_[..., None])


def test_errors_of_persons_are_cluster_robust() -> None:
    """Four equal rows of each person: cluster-robust errors are twice those of rows."""
    who, few = np.repeat(np.arange(N // 4), 4), slice(0, N // 4)
    for cls, options, y in (
        (PrivateLogisticRegression, {**AMONG, "classes": ["a", "b", "c"]}, CLASSES),
        (PrivatePoissonRegressor, {"bounds": (-1, 1), "target_bounds": (0, 60), "random_state": 0}, COUNTS),
    ):
        once = cls(**options, epsilon=1e4).fit(X[few], y[few])
        four = cls(**options, epsilon=1e4).fit(X[few].repeat(4, axis=0), y[few].repeat(4), unit=who)
        np.testing.assert_allclose(four.coef_se_, once.coef_se_, rtol=0.03)


# --- scores ---------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def quiet() -> None:
    warnings.simplefilter("ignore")


def test_scores_of_counts_are_those_of_scikit_learn(counted: PrivatePoissonRegressor) -> None:
    expected = counted.predict(X, exposure=DAYS)
    exact = mean_poisson_deviance(COUNTS, expected), d2_tweedie_score(COUNTS, expected, power=1)
    options = {"exposure": DAYS, "delta": 1e-6, "random_state": 0}
    with_little = private_scores(counted, X, COUNTS, epsilon=1e5, **options)
    assert with_little["deviance"].value == pytest.approx(exact[0], rel=1e-3)
    assert with_little["d2"].value == pytest.approx(exact[1], abs=1e-3)
    noisy = private_scores(counted, X, COUNTS, epsilon=1.0, **options)
    for name, value in zip(("deviance", "d2"), exact, strict=True):
        score = noisy[name]
        assert abs(score.value - value) < 4 * score.noise and score.low < value < score.high
        assert 0 < score.high - score.low < 0.25 * abs(value) + 0.1


def test_scores_of_classes_have_d2(among: PrivateLogisticRegression) -> None:
    p = among.predict_proba(X)
    exact = {"log_loss": log_loss(CLASSES, p), "d2": d2_log_loss_score(CLASSES, p)}
    found = private_scores(among, X, CLASSES, epsilon=1e5, delta=1e-6, random_state=0)
    for name, value in exact.items():
        assert found[name].value == pytest.approx(value, abs=1e-3)
    noisy = private_scores(among, X, CLASSES, epsilon=1.0, delta=1e-6, random_state=1)["d2"]
    assert abs(noisy.value - exact["d2"]) < 4 * noisy.noise and noisy.low < exact["d2"] < noisy.high


def test_a_scorer_and_levels_of_counts() -> None:
    columns = [
        Numeric("x0", -1, 1),
        Categorical("g", ["u", "v"]),
        Numeric("days", 1, 10),
        Numeric("n", 0, 60),
    ]
    schema = Schema(columns, target="n", exposure="days")
    g = np.where(X[:, 1] > 0, "u", "v")
    table = {"x0": X[:, 0], "g": g, "days": DAYS, "n": COUNTS}
    model = PrivatePoissonRegressor(schema=schema, epsilon=3.0, random_state=0).fit(table)
    scores = private_scores(model, table, by="g", epsilon=50.0, delta=1e-6, random_state=0)
    for level in "uv":
        mine = {name: column[g == level] for name, column in table.items()}
        exact = d2_tweedie_score(mine["n"], model.predict(mine), power=1)
        assert scores.levels[level]["d2"].value == pytest.approx(exact, abs=0.01)
    scorer = private_scorer(["neg_mean_poisson_deviance", "d2_tweedie_score"], epsilon=50.0, delta=1e-6)
    found = scorer(model, table)
    assert found["d2_tweedie_score"] == pytest.approx(scores["d2"].value, abs=0.02)
    assert found["neg_mean_poisson_deviance"] == pytest.approx(-scores["deviance"].value, rel=0.02)
    linear = private_scorer("d2_log_loss_score", epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidInput, match="no private score"):
        linear(model, table)
