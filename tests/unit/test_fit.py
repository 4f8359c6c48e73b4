"""private_fit end to end: plan, charge, release, and what may be seen of it."""

import io
import logging
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest

from curvedp import Budget, Domain, Problem, private_fit
from curvedp.data.rows import make_rows
from curvedp.data.rows.base import Layout
from curvedp.errors import BudgetExceeded, DataError, InvalidInput, NotCovered
from curvedp.mechanisms import QOP
from curvedp.mechanisms.base import make_plan
from curvedp.problems.constraints import Box, L2Ball
from curvedp.problems.losses import Huber, Logistic, Multinomial, Squared
from curvedp.problems.regularizers import L1
from curvedp.release.door import execute
from curvedp_studies.mechanisms.baselines import OutputPerturbation
from curvedp_studies.mechanisms.lop import AMP, LOP, LOPClip

BUDGET = Budget(1.0, 1e-6)


def data(n=400, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d)) / np.sqrt(d)
    y = np.clip(X @ np.linspace(-0.6, 0.8, d) + 0.05 * rng.normal(size=n), -1, 1)
    return X, y


def problem(loss=None, adjacency="add_remove", constraint=None):
    return Problem(
        loss or Squared(),
        L1(0.1),
        constraint or Box(2.0),
        Domain(x_norm=1.0, y_bound=1.0, adjacency=adjacency),
    )


MECHANISMS = {
    mechanism.name: mechanism for mechanism in (QOP(), LOP(), LOPClip(clip=0.5), AMP(), OutputPerturbation())
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_releases_a_feasible_point_and_says_what_it_promises(name):
    X, y = data()
    released = private_fit(problem(), X, y, budget=BUDGET, mechanism=MECHANISMS[name], random_state=3)
    assert released.value.theta.shape == (3, 1)
    assert np.all(np.abs(released.value.theta) <= 2.0)
    assert released.privacy.mechanism == name
    assert released.privacy.private is False  # seeded
    assert released.privacy.budget == BUDGET
    assert released.privacy.delta_at(1.0) <= 1e-6


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "output"])  # its noise stays
def test_a_large_budget_recovers_the_minimiser(name):
    """The distance to the non-private minimiser shrinks like 1/n at fixed large ε."""
    mechanism = MECHANISMS[name]
    if name == "lop_clip":
        mechanism = replace(mechanism, clip=4.0)
    free = Problem(Squared(), constraint=L2Ball(3.0), domain=Domain(adjacency="add_remove"))

    def error(n):
        X, y = data(n, seed=1)
        exact = np.linalg.lstsq(X, y, rcond=None)[0]
        thetas = [
            private_fit(
                free, X, y, budget=Budget(200.0, 1e-6), mechanism=mechanism, random_state=seed
            ).value.theta[:, 0]
            - exact
            for seed in range(8)
        ]
        return np.sqrt(np.mean(np.square(thetas)))

    small, large = error(500), error(8000)
    assert large < 0.01
    assert 5 < small / large < 50  # 16 in expectation


def test_entropy_runs_differ_and_are_private():
    X, y = data()
    first, second = (private_fit(problem(), X, y, budget=BUDGET, mechanism=QOP()) for _ in range(2))
    assert first.privacy.private and second.privacy.private
    assert not np.array_equal(first.value.theta, second.value.theta)


class Account:
    def __init__(self, room=np.inf):
        self.room, self.charged = room, []

    def charge(self, guarantee, label=""):
        self.charged.append(guarantee.epsilon)
        if guarantee.epsilon > self.room:
            raise BudgetExceeded("nothing left")


def test_the_charge_comes_before_the_data_and_can_stop_the_fit():
    class Untouchable:
        layout = Layout(problem().domain, 3)
        magnitude = 1.0  # public, too

        def __getattr__(self, name):
            raise AssertionError("the data were touched before the charge")

    ledger = Account(room=0.5)
    with pytest.raises(BudgetExceeded):
        execute(make_plan(QOP(), problem(), 3, BUDGET), Untouchable(), ledger=ledger)
    assert ledger.charged == [1.0]


def test_nothing_is_charged_for_what_could_not_be_released():
    ledger = Account()
    X, y = data()
    for mechanism, budget in (
        (QOP(), Budget(1.0, 0.0)),
        (QOP(accounting="paper"), Budget(2.0, 1e-6)),
        (QOP(eta=0.0), BUDGET),
        (AMP(tolerance=0.0), BUDGET),
        (LOP(radius=-1.0), BUDGET),
        (LOPClip(clip=0.0), BUDGET),
    ):
        with pytest.raises(InvalidInput):
            private_fit(problem(), X, y, budget=budget, mechanism=mechanism, ledger=ledger)
    with pytest.raises(DataError):
        private_fit(problem(), X, y[:-1], budget=BUDGET, mechanism=QOP(), ledger=ledger)
    assert ledger.charged == []


def test_an_unexpected_failure_shows_no_value_of_the_rows():
    class Broken:
        layout = Layout(problem().domain, 3)
        magnitude = 1.0

        def __getattr__(self, name):
            def fail(*args, **kwargs):
                raise ZeroDivisionError("row 17 holds 123456")

            return fail

    with pytest.raises(DataError) as caught:
        execute(make_plan(QOP(), problem(), 3, BUDGET), Broken())
    assert "123456" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_lop_needs_bounded_gradients_and_one_output():
    X, y = data()
    with pytest.raises(NotCovered, match="bounded constraint"):
        private_fit(Problem(Squared(), domain=Domain()), X, y, budget=BUDGET, mechanism=LOP())
    with pytest.raises(NotCovered, match="one output"):
        private_fit(Problem(Multinomial(3)), X, y, budget=BUDGET, mechanism=LOP())
    with pytest.raises(NotCovered, match="replace"):
        private_fit(problem(adjacency="replace"), X, y, budget=BUDGET, mechanism=LOP(accounting="paper"))


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.5), Multinomial(3)])
def test_qop_covers_every_loss(loss):
    X, y = data()
    labels = {"logistic": np.sign(y), "multinomial": (y > -0.2).astype(float) + (y > 0.2)}.get(loss.name, y)
    released = private_fit(
        Problem(loss, domain=Domain(adjacency="add_remove")),
        X,
        labels,
        budget=BUDGET,
        mechanism=QOP(),
        random_state=0,
    )
    assert released.value.theta.shape == (3, loss.n_outputs)
    assert np.all(np.isfinite(released.value.theta))


@pytest.mark.parametrize("mechanism", [QOP(exact=True), LOP(exact=True), AMP(exact=True)])
def test_exact_study_mode_is_not_called_private(mechanism):
    X, y = data()
    released = private_fit(problem(), X, y, budget=BUDGET, mechanism=mechanism)
    assert released.privacy.private is False
    assert released.privacy.parameters["sigma_tilde"] == 0.0 == released.privacy.parameters["eta"]


def observable(mechanism, X, y):
    """Everything one can see of a fit but the coefficients."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            released = private_fit(problem(), X, y, budget=BUDGET, mechanism=mechanism, random_state=5)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    privacy = released.privacy
    return (
        stream.getvalue(),
        [str(w.message) for w in caught],
        repr(privacy),
        privacy.to_dict(),
        sorted(vars(released)),
        len(pickle.dumps(privacy)),
        released.value.theta.shape,
    )


@pytest.mark.parametrize("name", MECHANISMS)
def test_adjacent_data_differ_in_coefficients_only(name):
    X, y = data()
    X2, y2 = np.vstack([X, [[0.5, -0.5, 0.5]]]), np.append(y, 1.0)
    assert observable(MECHANISMS[name], X, y) == observable(MECHANISMS[name], X2, y2)


def test_pickled_guarantee_holds_no_data():
    X, y = data()
    X[7, 1] = 0.123456789
    released = private_fit(problem(), X, y, budget=BUDGET, mechanism=QOP(), random_state=1)
    assert np.float64(0.123456789).tobytes() not in pickle.dumps(released)


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_release_lies_on_the_public_grid(name):
    X, y = data()
    task = problem(adjacency="replace", constraint=L2Ball(100.0))
    plan = make_plan(MECHANISMS[name], task, 3, BUDGET)
    theta = plan.release(make_rows(X, y, task.domain), np.random.default_rng(0)).theta
    ratio = theta / plan.output(len(X), 1.0).step
    assert np.array_equal(ratio, np.rint(ratio))
