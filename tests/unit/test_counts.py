"""Poisson regression: against statsmodels and scikit-learn, with exposures, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import d2_tweedie_score
from tests.releases import plain_model

from curvedp import Budget, Domain, Ledger, Problem, Schema, load, private_fit
from curvedp.analyses.estimators import PrivatePoissonRegressor
from curvedp.data import CountTarget, Numeric
from curvedp.data.roles import KnownMargin
from curvedp.errors import CurvedpError, InvalidInput, NotCovered
from curvedp.mechanisms import QOP
from curvedp.problems.losses import Poisson
from curvedp.release.modelfile import Release
from curvedp_studies.mechanisms.baselines import NoisyGradient
from curvedp_studies.mechanisms.lop import LOP

BETA = np.array([0.5, -0.3])


def table(n=20_000, rate=2.0, seed=0):
    """Counts whose exposure depends on the features: leaving it out would bias every coefficient."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (n, 2))
    days = np.clip(4.0 * np.exp(0.8 * X[:, 0]) * random.uniform(0.5, 2, n), 1, 30)
    return X, days, random.poisson(rate * np.exp(X @ BETA)), random.poisson(0.4 * days * np.exp(X @ BETA))


def glm(X, y, **options):
    fitted = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson(), **options).fit(tol=1e-12)
    return np.asarray(fitted.params)


def released(model):
    return np.append(model.intercept_, model.coef_)


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
@pytest.mark.parametrize("max_rate", [None, 6.0])
def test_with_little_noise_it_is_the_textbook_fit(adjacency, max_rate):
    X, _, y, _ = table()
    model = PrivatePoissonRegressor(
        bounds=(-1, 1), target_bounds=(0, 12), max_rate=max_rate, adjacency=adjacency, epsilon=100.0,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    np.testing.assert_allclose(released(model), glm(X, np.minimum(y, 12)), atol=0.005)
    plain = PoissonRegressor(alpha=0.0, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(model.predict(X), plain.predict(X), rtol=0.01)
    assert model.score(X, y) == pytest.approx(plain.score(X, y), abs=1e-3)
    assert model.score(X, y) == pytest.approx(d2_tweedie_score(y, model.predict(X), power=1))


def test_exposure_is_part_of_the_model():
    X, days, _, y = table()
    model = PrivatePoissonRegressor(
        bounds=(-1, 1), target_bounds=(0, 60), exposure_bounds=(1, 30), epsilon=100.0, random_state=0
    ).fit(X, y, exposure=days)
    expected = glm(X, y, exposure=days)
    np.testing.assert_allclose(released(model), expected, atol=0.01)
    assert np.abs(released(model) - glm(X, y)).max() > 0.3  # without the exposure it is another model
    ten, one = model.predict(X[:5], exposure=np.full(5, 10.0)), model.predict(X[:5], exposure=np.ones(5))
    np.testing.assert_allclose(ten, 10 * one, rtol=1e-9)
    middle = model.predict(X[:1], exposure=[np.sqrt(30.0)])
    np.testing.assert_allclose(model.predict(X[:1], exposure=["?"]), middle)
    with pytest.raises(InvalidInput, match="pass exposure="):
        model.predict(X)


def schema(**roles):
    columns = [Numeric("a", -1, 1), Numeric("b", -1, 1), Numeric("days", 1, 30), Numeric("n", 0, 60)]
    return Schema([*columns, Numeric("log_days", 0, np.log(30.0))], target="n", **roles)


def test_the_schema_names_the_exposure(tmp_path):
    X, days, _, y = table()
    data = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "days": days, "log_days": np.log(days), "n": y})
    of_exposure = Schema([c for c in schema().columns if c.name != "log_days"], target="n", exposure="days")
    model = PrivatePoissonRegressor(schema=of_exposure, random_state=1).fit(data)
    passed = PrivatePoissonRegressor(
        bounds=(-1, 1), target_bounds=(0, 60), exposure_bounds=(1, 30), random_state=1
    ).fit(X, y, exposure=days)
    np.testing.assert_allclose(released(model), released(passed), atol=1e-9)
    of_offset = Schema([c for c in schema().columns if c.name != "days"], target="n", offset="log_days")
    offset = PrivatePoissonRegressor(schema=of_offset, random_state=1).fit(data)
    np.testing.assert_allclose(released(model), released(offset), atol=1e-9)
    for made in (model, offset):
        made.save(tmp_path / "model.json")
        again = load(tmp_path / "model.json")
        np.testing.assert_array_equal(again.predict(data), made.predict(data))
        assert again.target_ == made.target_ and again.intercept_ == made.intercept_
    passed.save(tmp_path / "model.json")
    kept = load(tmp_path / "model.json").predict(X, exposure=days)
    np.testing.assert_array_equal(kept, passed.predict(X, exposure=days))


def test_a_plain_model_predicts_the_same_below_the_largest_rate():
    X, _, y, _ = table(4000)
    model = PrivatePoissonRegressor(bounds=(-1, 1), target_bounds=(0, 20), random_state=0).fit(X, y)
    plain = plain_model(Release.of(model))
    np.testing.assert_allclose(plain.predict(X), model.predict(X), rtol=1e-9)


def test_beyond_the_largest_rate_the_link_is_straight():
    X, _, y, _ = table(4000)
    model = PrivatePoissonRegressor(
        bounds=(-1, 1), target_bounds=(0, 20), max_rate=1.5, epsilon=50.0, random_state=0
    ).fit(X, y)
    margins = X @ model.coef_ + model.intercept_ - np.log(1.5)
    assert np.any(margins > 0) and np.any(margins < 0)
    expected = 1.5 * np.where(margins > 0, 1 + margins, np.exp(np.minimum(margins, 0)))
    np.testing.assert_allclose(model.predict(X), expected)


def test_without_a_constant():
    X, _, y, _ = table()
    model = PrivatePoissonRegressor(
        bounds=(-1, 1),
        target_bounds=(0, 12),
        max_rate=8.0,
        fit_intercept=False,
        epsilon=100.0,
        random_state=0,
    ).fit(X, y)
    plain = sm.GLM(np.minimum(y, 12), X, family=sm.families.Poisson()).fit().params
    np.testing.assert_allclose(model.coef_, plain, atol=0.02)
    assert model.intercept_ == 0.0


@pytest.mark.parametrize("mechanism", [QOP(), NoisyGradient(), LOP()], ids=lambda m: m.name)
def test_other_mechanisms_take_counts_or_say_why_not(mechanism):
    X, _, y, _ = table()
    model = PrivatePoissonRegressor(
        bounds=(-1, 1),
        target_bounds=(0, 12),
        max_rate=6.0,
        mechanism=mechanism,
        epsilon=100.0,
        random_state=0,
    )
    if mechanism.name == "lop":
        with pytest.raises(NotCovered, match="bounded gradients"):
            model.fit(X, y)
    else:
        np.testing.assert_allclose(released(model.fit(X, y)), glm(X, y), atol=0.1)


def refusals():
    X, days, y, _ = table(50)
    model = lambda **o: PrivatePoissonRegressor(**({"bounds": (-1, 1), "target_bounds": (0, 9)} | o))  # noqa: E731
    return [
        ("not negative", lambda k: model(target_bounds=(-1, 9), ledger=k).fit(X, y)),
        ("largest count", lambda k: model(max_rate=10.0, ledger=k).fit(X, y)),
        ("largest count", lambda k: model(max_rate=0.0, ledger=k).fit(X, y)),
        ("exposure_bounds", lambda k: model(ledger=k).fit(X, y, exposure=days)),
        ("pass exposure=", lambda k: model(exposure_bounds=(1, 30), ledger=k).fit(X, y)),
        ("positive", lambda k: model(exposure_bounds=(0, 30), ledger=k).fit(X, y, exposure=days)),
        ("pair", lambda k: model(exposure_bounds=3, ledger=k).fit(X, y, exposure=days)),
        (
            "fit_intercept",
            lambda k: model(exposure_bounds=(1, 9), fit_intercept=False, ledger=k).fit(X, y, exposure=days),
        ),
        (
            "leave exposure_bounds out",
            lambda k: PrivatePoissonRegressor(
                schema=schema(exposure="days"), exposure_bounds=(1, 9), ledger=k
            ).fit({}),
        ),
    ]


@pytest.mark.parametrize(("words", "fit"), refusals(), ids=[words for words, _ in refusals()])
def test_what_is_undeclared_is_refused_before_the_charge(words, fit, tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=5.0, delta=1e-5, adjacency="replace")
    with pytest.raises(CurvedpError, match=words):
        fit(ledger)
    assert ledger.spent().epsilon == 0.0


def test_an_exposure_that_a_model_does_not_have_is_refused():
    X, days, y, _ = table(500)
    model = PrivatePoissonRegressor(bounds=(-1, 1), target_bounds=(0, 9)).fit(X, y)
    with pytest.raises(InvalidInput, match="without an exposure"):
        model.predict(X, exposure=days)
    with pytest.raises(NotCovered, match="poisson"):
        model.refit(alpha=1.0)


def test_counts_are_coded_in_units_of_a_public_rate():
    target = CountTarget(20, rate=5.0, known=1.0)
    np.testing.assert_allclose(target.encode([10, -3, 100, "x"]), [2.0, 0.0, 4.0, np.nan])
    assert target.bound == 4.0 and target.shift == pytest.approx(np.log(5.0) - 1.0)
    assert KnownMargin(1, 100, log=True).bound == pytest.approx(np.log(10.0))
    for wrong in ({"rate": 0.0}, {"rate": np.nan}, {"known": np.inf}):
        with pytest.raises(InvalidInput):
            CountTarget(20, **wrong)


def test_the_bare_loss_needs_a_bound():
    X, _, y, _ = table(50)
    with pytest.raises(NotCovered, match="max_margin"):
        private_fit(Problem(Poisson(), domain=Domain(2.0, 9.0)), X, y, budget=Budget(1.0, 1e-6))
