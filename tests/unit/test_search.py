"""A search among settings: one charge, one guarantee, the right choice where the data are clear."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from curvedp import (
    Domain,
    Ledger,
    PrivateHuberRegressor,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRidge,
)
from curvedp.analyses.search import PrivateSearch
from curvedp.data.rows import make_rows
from curvedp.data.rows.blocked import improvement_slack, improvement_sum
from curvedp.errors import CurvedpError, LedgerRefused
from curvedp.mechanisms import QOP
from curvedp.problems.constraints import L2Ball
from curvedp.problems.losses import Logistic, Multinomial, Squared

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-1, 1, (6000, 3))
Y = np.clip(X @ [0.6, -0.3, 0.0] + RANDOM.normal(0, 0.1, 6000), -1, 1)
RIDGE = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), adjacency="add_remove")
HUBER = PrivateHuberRegressor(bounds=(-1, 1), target_bounds=(-1, 1), adjacency="add_remove")
LOGISTIC = PrivateLogisticRegression(bounds=(-1, 1), classes=[0, 1], adjacency="add_remove")


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "b.db", epsilon=9.0, delta=1e-4, adjacency="add_remove", filter="basic")


SEARCHES = {
    "refits": lambda **o: PrivateSearch(RIDGE, {"alpha": [0.1, 10.0, 1e5]}, 0.7, 1e-6, **o),
    "trials": lambda **o: PrivateSearch(HUBER, {"width": [0.05, 0.5]}, 0.7, 1e-6, **o),
    "classes": lambda **o: PrivateSearch(LOGISTIC, {"alpha": [0.0, 10.0]}, 0.7, 1e-6, **o),
    "mechanisms": lambda **o: PrivateSearch(
        RIDGE, {"mechanism": ["gradient", "recentered"]}, 0.7, 1e-6, trials=3.0, **o
    ),
    "constraints": lambda **o: PrivateSearch(
        RIDGE, [{"constraint": [None, L2Ball(0.5)]}, {"alpha": [3.0]}], 0.7, 1e-6, **o
    ),
    "a mechanism without a gaussian curve": lambda **o: PrivateSearch(
        PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), adjacency="add_remove", constraint=L2Ball(1.0)),
        {"mechanism": [QOP(accounting="spectral"), "recentered"]}, 0.7, 1e-6, trials=1.0, **o,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEARCHES)
def test_one_charge_and_one_guarantee(name, ledger) -> None:
    search = SEARCHES[name](ledger=ledger).fit(X, Y > 0 if name == "classes" else Y)
    (entry,) = ledger.history()
    assert entry.label.startswith("PrivateSearch of Private")
    assert ledger.spent().epsilon == 0.7 and ledger.spent().delta == 1e-6
    best = search.best_estimator_
    assert best.privacy_ is search.privacy_
    assert (best.privacy_.epsilon, best.privacy_.delta) == (0.7, 1e-6)
    assert best.privacy_.private and best.privacy_.delta_at(0.7) <= 1e-6
    assert (best.epsilon, best.delta) == (0.7, 1e-6)
    assert np.array_equal(search.predict(X[:5]), best.predict(X[:5]))


def test_the_better_penalty_is_chosen() -> None:
    """α = 10⁵ shrinks everything to nothing: it is never chosen, and its improvement is negative."""
    for seed in range(10):
        search = PrivateSearch(RIDGE, {"alpha": [0.1, 10.0, 1e5]}, random_state=seed).fit(X, Y)
        assert search.best_params_["alpha"] < 1e5
        last = search.candidates_[2]
        assert last.improvement < -3 * last.error


def test_the_reference_is_left_where_it_is_worse() -> None:
    """The walk has the middle penalty; with two absurd ones the first must win."""
    grid = {"alpha": [0.1, 3e4, 1e5]}
    chosen = [
        PrivateSearch(RIDGE, grid, random_state=seed).fit(X, Y).best_params_["alpha"] for seed in range(6)
    ]
    assert chosen == [0.1] * 6


def test_improvements_are_those_of_the_loss() -> None:
    """What is released is near the true difference of mean losses on these rows, clips aside."""
    search = PrivateSearch(RIDGE, {"alpha": [0.1, 300.0, 3000.0]}, epsilon=8.0, random_state=1).fit(X, Y)
    best = search.best_estimator_
    models = [best.refit(alpha=alpha, trust=1e9) for alpha in (0.1, 300.0, 3000.0)]
    losses = [0.5 * np.mean((model.predict(X) - Y) ** 2) for model in models]
    for candidate, loss in zip(search.candidates_, losses, strict=True):
        true = losses[1] - loss
        assert abs(candidate.improvement - true) <= 4 * candidate.error + 0.1 * abs(true)


def test_trials_choose_the_better_mechanism_of_two() -> None:
    grid = {"mechanism": ["recentered", "gradient"]}
    small = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), adjacency="add_remove", alpha=0.1)
    found = [
        PrivateSearch(small, grid, epsilon=2.0, trials=6.0, random_state=seed).fit(X, Y) for seed in range(6)
    ]
    scores = [search.best_estimator_.score(X, Y) for search in found]
    assert np.median(scores) > 0.9


def test_no_trial_gives_the_public_answer() -> None:
    search = PrivateSearch(RIDGE, {"alpha": [1.0]}, strategy="trials", trials=1e-3, random_state=0).fit(X, Y)
    assert search.best_index_ is None and search.best_params_ == {}
    assert np.all(search.best_estimator_.coef_ == 0.0)
    assert search.predict(X[:2]).tolist() == [0.0, 0.0]


def test_a_search_of_trials_says_nothing_of_the_others() -> None:
    search = PrivateSearch(HUBER, {"width": [0.05, 0.5]}, random_state=0).fit(X, Y)
    assert all(candidate.improvement is None for candidate in search.candidates_)
    assert set(vars(search)) >= {"best_estimator_", "candidates_", "privacy_"}
    assert not {"trials_", "scores_", "n_trials_"} & set(vars(search))


REFUSED = {
    "no estimator of curvedp": lambda: PrivateSearch("ridge", {"alpha": [1]}),
    "an empty grid": lambda: PrivateSearch(RIDGE, {"alpha": []}),
    "no grid": lambda: PrivateSearch(RIDGE, 3),
    "an unknown parameter": lambda: PrivateSearch(RIDGE, {"gamma": [1]}),
    "epsilon in the grid": lambda: PrivateSearch(RIDGE, {"epsilon": [1, 2]}),
    "bounds in the grid": lambda: PrivateSearch(RIDGE, {"bounds": [(-1, 1)]}),
    "an intercept in the grid": lambda: PrivateSearch(RIDGE, {"fit_intercept": [True, False]}),
    "a ledger inside": lambda: PrivateSearch(clone(RIDGE).set_params(ledger="b.db"), {"alpha": [1]}),
    "inference": lambda: PrivateSearch(
        PrivateLinearRegression(bounds=(-1, 1), target_bounds=(-1, 1), inference=True), {"constraint": [None]}
    ),
    "a negative penalty": lambda: PrivateSearch(RIDGE, {"alpha": [-1.0, 1.0]}),
    "a wrong budget": lambda: PrivateSearch(RIDGE, {"alpha": [1.0]}, epsilon=-1.0),
    "an unknown strategy": lambda: PrivateSearch(RIDGE, {"alpha": [1.0]}, strategy="luck"),
    "refits of a mechanism": lambda: PrivateSearch(RIDGE, {"mechanism": ["qop"]}, strategy="refits"),
    "a mean of no trials": lambda: PrivateSearch(HUBER, {"width": [0.1]}, trials=0.0),
    "more trials than are drawn well": lambda: PrivateSearch(HUBER, {"width": [0.1]}, trials=10_001.0),
    "no delta": lambda: PrivateSearch(HUBER, {"width": [0.1]}, delta=0.0),
    "a mechanism that does not fit": lambda: PrivateSearch(RIDGE, {"mechanism": ["lop", "recentered"]}),
}


@pytest.mark.parametrize("made", REFUSED.values(), ids=list(REFUSED))
def test_what_is_public_is_refused_before_the_charge(made, ledger) -> None:
    search = made()
    search.ledger = ledger
    with pytest.raises(CurvedpError):
        search.fit(X, Y)
    assert not ledger.history()


def test_a_seeded_search_is_refused_by_a_ledger(ledger) -> None:
    search = PrivateSearch(RIDGE, {"alpha": [1.0, 2.0]}, ledger=ledger, random_state=0)
    with pytest.raises(LedgerRefused):
        search.fit(X, Y)


def test_the_manners_of_scikit_learn() -> None:
    search = PrivateSearch(RIDGE, {"alpha": [1.0, 2.0]}, epsilon=0.5)
    again = clone(search)
    assert again.get_params()["estimator__bounds"] == (-1, 1) and again.epsilon == 0.5
    assert not hasattr(search, "predict_proba")
    fitted = PrivateSearch(LOGISTIC, {"alpha": [0.0, 1.0]}).fit(X, Y > 0)
    assert fitted.predict_proba(X[:3]).shape == (3, 2)


def test_a_chosen_model_can_be_saved_and_refitted(tmp_path) -> None:
    from curvedp import load

    search = PrivateSearch(RIDGE, {"alpha": [0.5, 2.0]}).fit(X, Y)
    search.best_estimator_.save(tmp_path / "m.json")
    again = load(tmp_path / "m.json")
    assert again.privacy_.epsilon == 1.0 and again.privacy_.mechanism == "search over 2 refits"
    assert np.allclose(again.refit(alpha=0.5).coef_, search.best_estimator_.refit(alpha=0.5).coef_)


def test_searches_of_other_penalties() -> None:
    lasso = PrivateLasso(bounds=(-1, 1), target_bounds=(-1, 1))
    search = PrivateSearch(lasso, {"alpha": [1.0, 1e5]}, random_state=0).fit(X, Y)
    assert search.best_params_ == {"alpha": 1.0}


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Multinomial(3)], ids=lambda loss: loss.name)
def test_the_sum_of_improvements_by_hand(loss) -> None:
    domain = Domain(2.0, 1.0, "add_remove")
    y = RANDOM.integers(0, 3, 500).astype(float) if loss.n_outputs > 1 else Y[:500]
    y[3] = np.nan
    rows = make_rows(X[:500], y, domain)
    thetas = [RANDOM.normal(0, 1, (3, loss.n_outputs)) for _ in range(3)]
    scales, clip = np.array([0.5, 2.0]), 0.7
    expected = np.zeros(2)
    for x, target in zip(X[:500], y, strict=True):
        if np.isnan(target):
            continue
        t = loss.clip_target(np.array([target]), domain)
        values = [float(loss.value((x @ theta)[None, :], t)[0]) for theta in thetas]
        v = np.array([(values[0] - values[1]) / 0.5, (values[0] - values[2]) / 2.0])
        expected += v * min(1.0, clip / np.linalg.norm(v))
    found = improvement_sum(rows, loss, thetas[0], thetas[1:], scales, clip)
    assert np.allclose(found, expected, rtol=1e-10, atol=1e-10)
    slack = improvement_slack(domain, loss, thetas, scales, clip, rows=500.0)
    assert 0 < slack < 1e-3
    assert improvement_slack(domain, loss, thetas, scales, clip) > slack
