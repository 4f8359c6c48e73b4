"""Weights: sums against plain numpy, fits against weighted least squares, what is refused before a charge."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import sparse
from tests.values import value_sum

from curvedp import (
    Budget,
    Domain,
    Ledger,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRidge,
    Problem,
    Schema,
    audit,
    load,
    private_fit,
)
from curvedp.analyses.search import PrivateSearch
from curvedp.data import Categorical, Numeric
from curvedp.data.rows import ArrayRows, make_rows
from curvedp.errors import CurvedpError, InvalidInput, NotCovered
from curvedp.mechanisms import QOP, Recentered, Statistics
from curvedp.mechanisms.statistics import GramPlan
from curvedp.problems.losses import Huber, Logistic, Loss, Squared, Weighted
from curvedp.solvers.glm import Objective, Perturbation, solve
from curvedp_studies.mechanisms.input import InputPerturbation

DOMAIN = Domain(x_norm=2.0, y_bound=1.0, weighted=True)
MESSY = np.array([0.0, 1.0, 0.3, np.nan, np.inf, -1.0, 1e308, 1e-320])


def table(n=300, d=3, seed=0):
    """Records in the domain, weights of all sorts among them; v is what they count."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (n, d))
    y = np.clip(X @ [0.5, -0.3, 0.2] + 0.3 * random.normal(size=n), -1, 1)
    w = random.uniform(0, 1, n)
    w[: len(MESSY)] = MESSY
    v = np.clip(np.where(np.isnan(w), 0.0, w), 0.0, 1.0)
    return X, y, w, v


def backends(X, y, w):
    both = np.column_stack([y, w])
    yield "dense", make_rows(X, both, DOMAIN)
    yield "chunked", ArrayRows(X, both, DOMAIN)
    yield "sparse", make_rows(sparse.csr_array(X), both, DOMAIN)
    yield "dask", make_rows(da.from_array(X, chunks=(70, 3)), da.from_array(both, chunks=(70, 2)), DOMAIN)


def test_sums_are_weighted_in_every_backend():
    X, y, w, v = table()
    random = np.random.default_rng(1)
    theta, A, clip, bound = random.normal(size=(3, 1)), random.normal(size=(3, 3)), 0.2, 0.7
    loss: Loss = Weighted(Huber(0.5))
    slopes = v * np.clip(X @ theta[:, 0] - y, -0.5, 0.5)
    lengths = np.linalg.norm(X @ A.T, axis=1)
    shrink = np.minimum(1.0, clip / np.maximum(np.abs(slopes) * lengths, 1e-300))
    edges = np.array([0.05, 0.1, 0.3, 1.0])
    short = np.minimum(1.0, bound / np.maximum(np.sqrt(v) * lengths, 1e-300))
    mass = np.ceil(v * 2**16) / 2**16
    for name, rows in backends(X, y, w):
        assert rows.layout.n_targets == 2 and rows.count() == 300, name
        m = rows.moments()
        np.testing.assert_allclose(m.xx, (X * v[:, None]).T @ X, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(m.xy[:, 0], X.T @ (v * y), atol=1e-12)
        np.testing.assert_allclose(m.yy, [[v @ y**2]], atol=1e-12)
        seen = rows.in_metric(A)
        np.testing.assert_allclose(
            seen.gradient_sum(loss, theta, clip)[:, 0], X.T @ (shrink * slopes), atol=1e-12
        )
        found = seen.gradient_norm_histogram(loss, theta, edges)
        cells = np.searchsorted(edges, np.abs(slopes) * lengths)
        np.testing.assert_array_equal(found, np.bincount(cells, minlength=5))
        cells = np.searchsorted(edges, np.sqrt(v) * lengths)
        np.testing.assert_array_equal(seen.norm_histogram(edges), np.bincount(cells, mass, minlength=5))
        shortened = rows.in_metric(A, bound).moments().xx
        np.testing.assert_allclose(shortened, (X * (v * short**2)[:, None]).T @ X, atol=1e-12)
        inner = np.abs(X @ theta[:, 0] - y) < 0.5
        np.testing.assert_allclose(
            rows.hessian_sum(loss, theta), (X * (v * inner)[:, None]).T @ X, atol=1e-12
        )
        g = X * (shrink * slopes)[:, None]
        np.testing.assert_allclose(seen.score_sum(loss, theta, clip), g.T @ g, atol=1e-12)
        most = np.minimum(v * inner, bound / np.maximum(lengths**2, 1e-300))
        np.testing.assert_allclose(
            seen.curvature_sum(loss, theta, bound), (X * most[:, None]).T @ X, atol=1e-12
        )
        r = np.abs(X @ theta[:, 0] - y)
        q = np.minimum(r, 0.5)
        assert value_sum(rows, loss, theta) == pytest.approx(v @ (q * (r - 0.5 * q)))


def test_a_target_out_of_bounds_is_clipped_before_it_is_weighed():
    rows = make_rows(np.ones((1, 1)), np.array([[5.0, 0.25]]), DOMAIN)
    assert rows.moments().xy.item() == 0.25 and rows.moments().yy.item() == 0.25


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=lambda loss: loss.name)
def test_the_noiseless_minimiser_is_that_of_statsmodels(loss):
    X, y, w, v = table(2000)
    X = np.column_stack([X, np.ones(len(X))]) / 2
    if loss.name == "logistic":
        y = np.where(y > 0.1, 1.0, -1.0)
    problem = Problem(Weighted(loss), domain=DOMAIN)
    problem.check(4)
    rows, theta = make_rows(X, np.column_stack([y, w]), DOMAIN), np.zeros((4, 1))
    for _ in range(20):  # Newton's method on the weighted sums
        step = np.linalg.solve(rows.hessian_sum(problem.loss, theta), rows.gradient_sum(problem.loss, theta))
        theta = theta - step
    found = theta[:, 0]
    if loss.is_quadratic:
        zero = np.zeros((4, 1))
        solved = solve(Objective(problem, rows, Perturbation(zero, zero, np.zeros((4, 4))), None), 1e-9)
        np.testing.assert_allclose(solved.theta[:, 0], found, atol=1e-9)
    plain = (
        sm.WLS(y, X, weights=v).fit()
        if loss.is_quadratic
        else sm.GLM((y + 1) / 2, X, family=sm.families.Binomial(), freq_weights=v).fit(tol=1e-14)
    )
    np.testing.assert_allclose(found, plain.params, atol=1e-8)
    assert np.abs(sm.OLS(y, X).fit().params - found).max() > 1e-3  # weights do matter


MODELS = {
    "ridge": lambda **options: PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), **options),
    "logistic": lambda **options: PrivateLogisticRegression(bounds=(-1, 1), classes=[-1, 1], **options),
}


def cases(kind):
    X, y, w, _ = table(2000)
    return X, (y if kind == "ridge" else np.sign(y + 1e-9)), w


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_the_scale_of_weights_changes_nothing(kind, adjacency):
    X, y, w = cases(kind)
    made = MODELS[kind](weight_max=1.0, adjacency=adjacency, random_state=3).fit(X, y, w)
    with np.errstate(over="ignore"):
        other = MODELS[kind](weight_max=8.0, adjacency=adjacency, random_state=3).fit(X, y, 8.0 * w)
    np.testing.assert_array_equal(made.coef_, other.coef_)
    assert made.privacy_ == other.privacy_


def test_a_missing_weight_is_none():
    X, y, w, v = table(500)
    model = MODELS["ridge"](weight_max=1.0, random_state=3)
    expected = model.fit(X, y, v).coef_
    np.testing.assert_array_equal(model.fit(X, y, w).coef_, expected)
    cells = w.astype(object)
    cells[np.isnan(w)] = "unreadable"
    np.testing.assert_array_equal(model.fit(X, y, cells).coef_, expected)


def frame(n=2000):
    X, y, w, _ = table(n)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y, "w": 4 * np.minimum(w, 1e300)})


SCHEMA = Schema(
    [Numeric("a", -1, 1), Numeric("b", -1, 1), Numeric("c", -1, 1), Numeric("y", -1, 1), Numeric("w", 0, 4)],
    target="y",
    weight="w",
)


def test_the_schema_names_the_weight(tmp_path):
    data = frame()
    X, y = data[["a", "b", "c"]].to_numpy(), data["y"].to_numpy()
    passed = MODELS["ridge"](weight_max=4.0, random_state=3).fit(X, y, data["w"].to_numpy())
    model = PrivateRidge(schema=SCHEMA, random_state=3)
    assert SCHEMA.feature_names == ("a", "b", "c") and Schema.from_toml(SCHEMA.to_toml()) == SCHEMA
    np.testing.assert_array_equal(model.fit(data).coef_, passed.coef_)
    np.testing.assert_array_equal(model.fit(SCHEMA.source(data)).coef_, passed.coef_)
    data.to_csv(tmp_path / "data.csv", index=False)
    np.testing.assert_array_equal(model.fit(tmp_path / "data.csv").coef_, passed.coef_)
    lazy = model.fit(dd.from_pandas(data, npartitions=3))
    np.testing.assert_allclose(lazy.coef_, passed.coef_, atol=1e-9)
    model.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert again.schema_ == SCHEMA
    np.testing.assert_array_equal(again.predict(data.drop(columns="w")), model.predict(data))


def test_a_search_weighs_its_comparisons():
    search = PrivateSearch(PrivateRidge(schema=SCHEMA), {"alpha": [0.1, 300.0]}, epsilon=5.0, random_state=1)
    assert search.fit(frame()).best_params_ == {"alpha": 0.1}
    trials = PrivateSearch(
        PrivateRidge(schema=SCHEMA), {"alpha": [0.1, 300.0]}, epsilon=5.0, strategy="trials", random_state=1
    )
    assert trials.fit(frame()).best_estimator_.coef_.shape == (3,)


def test_full_weights_are_no_weights():
    X, y, _, _ = table(4000)
    plain = MODELS["ridge"](random_state=3, epsilon=5.0).fit(X, y)
    full = MODELS["ridge"](random_state=3, epsilon=5.0, weight_max=2.0).fit(X, y, np.full(4000, 2.0))
    np.testing.assert_allclose(full.coef_, plain.coef_, atol=0.01)
    declared = MODELS["ridge"](random_state=3, epsilon=5.0, weight_max=2.0).fit(X, y)
    np.testing.assert_array_equal(declared.coef_, plain.coef_)


@pytest.mark.parametrize("mechanism", ["auto", "statistics", "gradient", "qop", "lop_clip"])
def test_every_mechanism_finds_the_weighted_fit(mechanism):
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (20_000, 2))
    y = np.clip(X @ [0.5, -0.3] + 0.6 * X[:, 0] ** 2 + 0.1 * random.normal(size=20_000), -2, 2)
    w = np.where(X[:, 0] > 0, 5.0, 0.5)
    model = PrivateLinearRegression(
        bounds=(-1, 1),
        target_bounds=(-2, 2),
        weight_max=5.0,
        epsilon=20.0,
        mechanism=mechanism,
        random_state=0,
    ).fit(X, y, w)
    plain = sm.WLS(y, sm.add_constant(X), weights=w).fit().params
    np.testing.assert_allclose(np.append(model.intercept_, model.coef_), plain, atol=0.02)


def refusals():
    X, y, w, _ = table(50)
    ridge = MODELS["ridge"]
    yield "weight_max", lambda ledger: ridge(ledger=ledger).fit(X, y, w)
    yield "positive number", lambda ledger: ridge(ledger=ledger, weight_max=0.0).fit(X, y, w)
    yield "positive number", lambda ledger: ridge(ledger=ledger, weight_max=np.inf).fit(X, y, w)
    yield (
        "leave sample_weight out",
        lambda ledger: PrivateRidge(schema=SCHEMA, ledger=ledger).fit(frame(50), None, w),
    )
    yield (
        "leave weight_max out",
        lambda ledger: PrivateRidge(schema=SCHEMA, ledger=ledger, weight_max=3.0).fit(frame(50)),
    )
    yield "entry per row", lambda ledger: ridge(ledger=ledger, weight_max=1.0).fit(X, y, w[:-1])
    yield (
        "no weights",
        lambda ledger: ridge(ledger=ledger, weight_max=1.0, mechanism=InputPerturbation()).fit(X, y, w),
    )
    yield (
        "no offset",
        lambda ledger: PrivateRidge(schema=Schema(SCHEMA.columns, target="y", offset="w"), ledger=ledger).fit(
            frame(50)
        ),
    )


@pytest.mark.parametrize(
    ("words", "fit"), list(refusals()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_cannot_be_weighed_is_refused_before_the_charge(words, fit, tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=5.0, delta=1e-5, adjacency="replace")
    with pytest.raises(CurvedpError, match=words):
        fit(ledger)
    assert ledger.spent().epsilon == 0.0


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ({"weight": "nobody"}, "not a column"),
        ({"weight": "y"}, "is the target"),
        ({"weight": "w", "offset": "w"}, "both the weight"),
        ({"offset": "w", "exposure": "a"}, "one of the two"),
        ({"exposure": "w"}, "lower bound must be positive"),
    ],
)
def test_roles_that_a_column_cannot_have_are_refused(roles, words):
    with pytest.raises(InvalidInput, match=words):
        Schema(SCHEMA.columns, target="y", **roles)


def test_domain_and_loss_agree_on_weights():
    X, y, w, _ = table(50)
    both = np.column_stack([y, w])
    for problem in (Problem(Squared(), domain=DOMAIN), Problem(Weighted(Squared()))):
        with pytest.raises(InvalidInput, match="weights need both"):
            private_fit(problem, X, both, budget=Budget(1.0, 1e-6))
    problem = Problem(Weighted(Squared()), domain=DOMAIN)
    with pytest.raises(InvalidInput, match="make both with one domain"):
        private_fit(problem, X, y, budget=Budget(1.0, 1e-6))
    for mechanism in (Recentered(), QOP(), Statistics()):
        assert mechanism.plan(problem, 3, Budget(1.0, 1e-6)).layout.n_targets == 2
    with pytest.raises(NotCovered, match="count every record alike"):
        GramPlan.calibrated(make_rows(X, both, DOMAIN).layout, Budget(1.0, 1e-6))


@pytest.mark.parametrize("labels", [("no", "yes"), ("a", "b", "c")])
def test_weights_of_classes_are_weights_of_their_records(labels, tmp_path):
    """The same release, bit for bit, from a table with the target in it, too; and it is kept and audited."""
    random = np.random.default_rng(0)
    x, y = random.uniform(-1, 1, 3_000), random.choice(np.array(labels), 3_000)
    weights = {label: float(i + 1) for i, label in enumerate(labels)}
    largest = max(weights.values())
    options = {"schema": Schema([Numeric("x", -1, 1)]), "classes": labels, "random_state": 0}
    by_record = PrivateLogisticRegression(**options, weight_max=largest, inference=False)
    by_record.fit({"x": x}, y, sample_weight=[weights[label] for label in y])
    by_class = PrivateLogisticRegression(
        **options, weight_max=largest, class_weight=weights, inference=False
    ).fit({"x": x}, y)
    np.testing.assert_array_equal(by_class.coef_, by_record.coef_)
    np.testing.assert_array_equal(by_class.intercept_, by_record.intercept_)
    plain = PrivateLogisticRegression(**options, inference=False).fit({"x": x}, y)
    assert not np.array_equal(plain.intercept_, by_class.intercept_)
    schema = Schema([Numeric("x", -1, 1), Categorical("y", labels)], target="y")
    named = PrivateLogisticRegression(
        schema=schema, weight_max=largest, class_weight=weights, random_state=0, inference=False
    ).fit({"x": x, "y": y})
    np.testing.assert_array_equal(named.coef_, by_class.coef_)
    named.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert again.class_weight == weights and again.weight_max == largest


def test_weights_of_classes_that_are_numbers_are_kept_and_audited(tmp_path):
    X, y = np.random.default_rng(0).uniform(-1, 1, (500, 1)), [0, 1] * 250
    weights = {"class_weight": {0: 1, 1: 5}, "weight_max": 5.0}
    model = PrivateLogisticRegression(bounds=(-1, 1), classes=[0, 1], inference=False, **weights).fit(X, y)
    model.save(tmp_path / "model.json")
    assert load(tmp_path / "model.json").class_weight == {"0": 1, "1": 5}
    assert audit(tmp_path / "model.json").problems == ()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"class_weight": "balanced", "weight_max": 5}, "read off the records"),
        ({"class_weight": {0: 1}, "weight_max": 5}, "one for each class"),
        ({"class_weight": {0: 1, 1: -1}, "weight_max": 5}, "one for each class"),
        ({"class_weight": {0: 1, 1: 5}}, "pass weight_max=5"),
        ({"class_weight": {0: 1, 1: 5}, "weight_max": 2}, "pass weight_max=5"),
    ],
)
def test_weights_of_classes_that_are_not_public_ones_are_refused_before_the_charge(options, words, tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3, delta=1e-5)
    X, y = np.zeros((4, 1)), [0, 1, 0, 1]
    with pytest.raises(InvalidInput, match=words):
        PrivateLogisticRegression(bounds=(-1, 1), classes=[0, 1], ledger=ledger, **options).fit(X, y)
    both = {"class_weight": {0: 1, 1: 5}, "weight_max": 5, "ledger": ledger}
    with pytest.raises(InvalidInput, match="leave `class_weight` out"):
        PrivateLogisticRegression(bounds=(-1, 1), classes=[0, 1], **both).fit(X, y, sample_weight=[1] * 4)
    assert ledger.history() == []
