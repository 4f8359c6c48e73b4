"""A recentered release is a quadratic model of the objective: other penalties follow from it for free."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

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
from curvedp.data import Categorical, Numeric
from curvedp.errors import InvalidInput, ModelFileError, NotCovered
from curvedp.problems.constraints import L2Ball, NonNegative
from curvedp.problems.regularizers import L1
from curvedp.release.modelfile import Release

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(-1, 1, (8000, 4))
Y = np.clip(X @ [0.5, -0.3, 0.1, 0.0] + RANDOM.normal(0, 0.1, 8000), -1, 1)


def ridge(**options: object) -> PrivateRidge:
    given = {"bounds": (-1, 1), "target_bounds": (-1, 1), "adjacency": "add_remove", "random_state": 0}
    return PrivateRidge(**{**given, **options}).fit(X, Y)


@pytest.fixture(scope="module")
def model() -> PrivateRidge:
    return ridge()


def closed_form(model: PrivateRidge, alpha: float, kept: list[int]) -> np.ndarray:
    """(bH + αR)_SS θ_S = (bHc − g)_S, R without the intercept: the minimiser that is 0 outside of S."""
    o = model.objective_
    bH, free = o.curvature * o.H, np.diag([alpha] * 4 + [0.0])
    theta = np.zeros(5)
    right = (bH @ o.centre - o.gradient)[kept, 0]
    theta[kept] = np.linalg.solve((bH + free)[np.ix_(kept, kept)], right)
    return theta


def test_the_same_penalty_gives_the_release_itself(model: PrivateRidge) -> None:
    again = model.refit()
    assert np.array_equal(again.coef_, model.coef_)
    assert again is not model and again.privacy_ is model.privacy_


@pytest.mark.parametrize("alpha", [0.0, 5.0, 30.0])
def test_a_refit_minimises_the_released_model(model: PrivateRidge, alpha: float) -> None:
    made = model.refit(alpha=alpha)
    expected = closed_form(model, alpha, [0, 1, 2, 3, 4])
    assert np.allclose([*made.coef_, made.intercept_], expected, rtol=1e-9, atol=1e-12)
    assert made.alpha == alpha and model.alpha == 1.0


def test_a_submodel_minimises_over_its_columns(model: PrivateRidge) -> None:
    made = model.refit(columns=["x0", "x1"], trust=1e9)
    expected = closed_form(model, 1.0, [0, 1, 4])
    assert np.allclose([*made.coef_, made.intercept_], expected, rtol=1e-9, atol=1e-12)
    assert made.coef_[2] == made.coef_[3] == 0.0


def test_other_penalties_and_constraints(model: PrivateRidge) -> None:
    assert model.refit(constraint=NonNegative(), trust=1e9).coef_[1] == pytest.approx(0.0, abs=1e-12)
    sparse = model.refit(penalty=L1(2000.0), trust=1e9)
    assert np.allclose(sparse.coef_, 0.0)
    linear = PrivateLinearRegression(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, Y)
    with pytest.raises(InvalidInput, match="has no penalty of its own: fit the model ridge or lasso"):
        linear.refit(alpha=1.0)


@pytest.mark.parametrize("estimator", [PrivateRidge, PrivateHuberRegressor, PrivateLasso])
def test_inside_the_trust_region_a_refit_matches_a_fresh_fit(estimator: type[PrivateRidge]) -> None:
    """The distance of predictions to a mean of fresh fits, in deviations of the release's noise."""
    given = {"bounds": (-1, 1), "target_bounds": (-1, 1), "adjacency": "add_remove"}
    alpha = 12.0 if estimator is not PrivateLasso else 8.0
    fresh = [estimator(alpha=alpha, random_state=s, **given).fit(X, Y) for s in range(8)]
    mean = np.mean([m.predict(X) for m in fresh], axis=0)
    far = []
    for seed in range(8):
        base = estimator(random_state=100 + seed, **given).fit(X, Y)
        spread = base.objective_.spread(1)
        made = base.refit(alpha=alpha)
        moved = base.objective_.distance(theta_of(made), theta_of(base)) / spread
        assert 0.1 < moved < 4.0
        far.append(float(np.sqrt(np.mean((made.predict(X) - mean) ** 2))) / spread)
    assert np.median(far) < 2.4


def theta_of(model: PrivateRidge) -> np.ndarray:
    return np.array([*model.coef_, model.intercept_])[:, None]


def test_the_stated_spread_is_that_of_the_noise() -> None:
    """Over seeds predictions vary by one to three times what the noise of the mean gradient explains."""
    models = [ridge(random_state=seed) for seed in range(12)]
    predictions = np.array([m.predict(X[:1000]) for m in models])
    found = float(np.sqrt(np.mean(predictions.var(axis=0, ddof=1))))
    stated = float(np.median([m.objective_.spread(1) for m in models]))
    assert 0.7 < found / stated < 3.0


def test_what_was_not_measured_is_refused(model: PrivateRidge) -> None:
    with pytest.raises(NotCovered, match="times the noise"):
        model.refit(alpha=1e6)
    assert model.refit(alpha=1e6, trust=1e9).coef_ == pytest.approx(np.zeros(4), abs=0.05)
    few = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), random_state=0).fit(X[:60], Y[:60])
    with pytest.raises(NotCovered, match="below 30"):
        few.refit(alpha=1.5)
    classes = PrivateLogisticRegression(bounds=(-1, 1), classes=[0, 1], random_state=0).fit(X, Y > 0)
    with pytest.raises(NotCovered, match="logistic"):
        classes.refit(alpha=1.0)
    other = ridge(mechanism="qop", adjacency="replace")
    with pytest.raises(InvalidInput, match="recentered"):
        other.refit(alpha=2.0)
    with pytest.raises(InvalidInput, match="'x9' is none of them"):
        model.refit(columns=["x9"])


def test_a_refit_is_free(tmp_path) -> None:
    ledger = Ledger.create(tmp_path / "b.db", epsilon=3.0, delta=1e-5, adjacency="add_remove")
    made = ridge(ledger=ledger, random_state=None)
    made.refit(alpha=2.0)
    made.path([0.5, 2.0, 8.0])
    assert len(ledger.history()) == 1


def test_levels_are_kept_or_dropped_as_a_block() -> None:
    schema = Schema(
        (Numeric("a", -1, 1), Categorical("b", ("u", "v", "w")), Numeric("y", -1, 1)), "y", "add_remove"
    )
    table = {"a": X[:, 0], "b": np.array(["u", "v", "w"])[RANDOM.integers(0, 3, 8000)], "y": Y}
    fitted = PrivateRidge(schema=schema, random_state=0).fit(table)
    without = fitted.refit(columns=["a"], trust=1e9)
    assert np.array_equal(without.coef_[1:], np.zeros(3)) and without.coef_[0] != 0
    assert np.all(np.isfinite(without.predict(table)))


def test_a_file_keeps_the_model_of_the_objective(model: PrivateRidge, tmp_path) -> None:
    model.save(tmp_path / "m.json")
    again = load(tmp_path / "m.json")
    assert np.allclose(again.refit(alpha=20.0).coef_, model.refit(alpha=20.0).coef_, rtol=1e-9)
    content = json.loads((tmp_path / "m.json").read_text())
    (tmp_path / "none.json").write_text(json.dumps(content | {"objective": None}))
    with pytest.raises(InvalidInput, match="no released model"):
        load(tmp_path / "none.json").refit(alpha=2.0)
    constrained = ridge(constraint=L2Ball(1.0))
    constrained.save(tmp_path / "c.json")
    assert constrained.refit(alpha=2.0).privacy_ is constrained.privacy_
    again = load(tmp_path / "c.json")
    assert again.constraint == L2Ball(1.0)
    assert np.array_equal(again.refit(alpha=2.0).coef_, constrained.refit(alpha=2.0).coef_)


@pytest.mark.parametrize(
    "change",
    [
        {"H": {"shape": [5, 5], "doubles": "AAAA"}},
        {"H": {"shape": [5, 5], "doubles": "not base64!"}},
        {"H": {"shape": [1, 1], "doubles": "AAAAAAAA8D8="}},
        {"noise": -1.0},
        {"count": "many"},
        {"centre": None},
        {"code": "print()"},
    ],
)
def test_a_damaged_objective_is_refused(model: PrivateRidge, tmp_path, change: dict[str, object]) -> None:
    model.save(tmp_path / "m.json")
    content = json.loads((tmp_path / "m.json").read_text())
    content["objective"] |= change
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(ModelFileError):
        load(tmp_path / "m.json")


def test_an_objective_that_is_not_convex_is_refused(model: PrivateRidge) -> None:
    o = model.objective_
    bent = replace(o, H=o.H - 2 * np.linalg.eigvalsh(o.H)[-1] * np.eye(5))
    with pytest.raises(ModelFileError, match="not convex"):
        Release.from_dict(replace(model.release_, objective=bent).to_dict())
    same = Release.from_dict(model.release_.to_dict()).objective
    assert np.array_equal(same.gradient, o.gradient) and np.allclose(same.H, o.H, rtol=1e-15)


def test_a_path_and_its_picture(model: PrivateRidge) -> None:
    path = model.path([1.0, 10.0, 1e7])
    assert path.coefs.shape == (3, 4) and np.allclose(path.coefs[0], model.coef_)
    assert path.moves[0] == 0.0 and path.trusted.tolist() == [True, True, False]
    assert np.linalg.norm(path.coefs[2]) < np.linalg.norm(path.coefs[1]) < np.linalg.norm(path.coefs[0])
    svg = path.chart().partition("<ul")[0]
    assert len(ElementTree.fromstring(svg).findall(".//polyline")) == 4
    alone = path._repr_html_()  # a notebook has no style sheet of ours
    assert alone.startswith("<iframe") and ".chart .line { fill: none;" in alone and "&lt;polyline" in alone
    with pytest.raises(InvalidInput, match="at least one alpha"):
        model.path([])
