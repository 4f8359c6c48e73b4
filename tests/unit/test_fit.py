"""private_fit end to end: plan, charge, release, and what may be seen of it."""

import io
import logging
import pickle
import warnings

import numpy as np
import pytest

from curvedp import (
    AMP,
    L1,
    LOP,
    QOP,
    Box,
    Domain,
    Huber,
    L2Ball,
    Logistic,
    LOPClip,
    Multinomial,
    Problem,
    PureLOP,
    Squared,
    private_fit,
)
from curvedp.errors import BudgetExceeded, DataError, InvalidInput, NotCovered
from curvedp.mechanisms.output_noise import OutputNoise
from curvedp.rows import make_rows


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
    "qop": QOP(epsilon=1.0, delta=1e-6),
    "lop": LOP(epsilon=1.0, delta=1e-6),
    "lop_clip": LOPClip(epsilon=1.0, delta=1e-6, clip=0.5),
    "amp": AMP(epsilon=1.0, delta=1e-6),
    "pure_lop": PureLOP(epsilon=1.0),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_releases_a_feasible_point_and_says_what_it_promises(name):
    X, y = data()
    release = private_fit(problem(), X, y, mechanism=MECHANISMS[name], random_state=3)
    assert release.theta.shape == (3, 1)
    assert np.all(np.abs(release.theta) <= 2.0)
    assert release.privacy.mechanism == name
    assert release.privacy.private is False  # seeded
    assert release.privacy.epsilon == 1.0
    if release.privacy.delta > 0:
        assert release.privacy.delta_at(1.0) <= 1e-6


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_large_budget_recovers_the_minimiser(name):
    """The distance to the non-private minimiser shrinks like 1/n at fixed large ε."""
    from dataclasses import replace

    def error(n):
        X, y = data(n, seed=1)
        free = Problem(Squared(), constraint=L2Ball(3.0), domain=Domain(adjacency="add_remove"))
        exact = np.linalg.lstsq(X, y, rcond=None)[0]
        mechanism = replace(MECHANISMS[name], epsilon=200.0)
        if name == "lop_clip":
            mechanism = replace(mechanism, clip=4.0)
        thetas = [
            private_fit(free, X, y, mechanism=mechanism, random_state=s).theta[:, 0] - exact for s in range(8)
        ]
        return np.sqrt(np.mean(np.square(thetas)))

    small, large = error(500), error(8000)
    assert large < 0.01
    assert 5 < small / large < 50  # 16 in expectation


def test_entropy_runs_differ_and_are_private():
    X, y = data()
    first, second = (private_fit(problem(), X, y, mechanism=MECHANISMS["qop"]) for _ in range(2))
    assert first.privacy.private and second.privacy.private
    assert not np.array_equal(first.theta, second.theta)


def test_the_charge_comes_before_the_data_and_can_stop_the_fit():
    seen = []

    def refuse(guarantee):
        seen.append(guarantee.epsilon)
        raise BudgetExceeded("nothing left")

    class Untouchable:
        d = 3

        def __getattr__(self, name):
            raise AssertionError("the data were touched before the charge")

    from curvedp.fit import fit_rows

    with pytest.raises(BudgetExceeded):
        fit_rows(problem(), Untouchable(), mechanism=MECHANISMS["qop"], charge=refuse)
    assert seen == [1.0]


def test_nothing_is_charged_for_what_could_not_be_released():
    charges = []
    X, y = data()
    for mechanism in (
        QOP(epsilon=-1.0, delta=1e-6),
        QOP(epsilon=1.0, delta=2.0),
        QOP(epsilon=2.0, delta=1e-6, accounting="paper"),
    ):
        with pytest.raises(InvalidInput):
            private_fit(problem(), X, y, mechanism=mechanism, charge=charges.append)
    with pytest.raises(DataError):
        private_fit(problem(), X, y[:-1], mechanism=MECHANISMS["qop"], charge=charges.append)
    assert charges == []


def test_an_unexpected_failure_shows_no_value_of_the_rows():
    class Broken:
        d = 3

        def __getattr__(self, name):
            def fail(*args, **kwargs):
                raise ZeroDivisionError("row 17 holds 123456")

            return fail

    from curvedp.fit import fit_rows

    with pytest.raises(DataError) as caught:
        fit_rows(problem(), Broken(), mechanism=MECHANISMS["qop"])
    assert "123456" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_lop_needs_bounded_gradients_and_one_output():
    X, y = data()
    unbounded = Problem(Squared(), domain=Domain())
    with pytest.raises(NotCovered, match="bounded constraint"):
        private_fit(unbounded, X, y, mechanism=MECHANISMS["lop"])
    with pytest.raises(NotCovered, match="one output"):
        private_fit(Problem(Multinomial(3)), X, y, mechanism=MECHANISMS["lop"])
    with pytest.raises(NotCovered, match="replace"):
        private_fit(problem(adjacency="replace"), X, y, mechanism=LOP(1.0, 1e-6, accounting="paper"))


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.5), Multinomial(3)])
def test_qop_covers_every_loss(loss):
    X, y = data()
    labels = {"logistic": np.sign(y), "multinomial": (y > -0.2).astype(float) + (y > 0.2)}.get(loss.name, y)
    release = private_fit(
        Problem(loss, domain=Domain(adjacency="add_remove")),
        X,
        labels,
        mechanism=MECHANISMS["qop"],
        random_state=0,
    )
    assert release.theta.shape == (3, loss.n_outputs)
    assert np.all(np.isfinite(release.theta))


def test_exact_study_mode_is_not_called_private():
    X, y = data()
    release = private_fit(problem(), X, y, mechanism=QOP(1.0, 1e-6, exact=True))
    assert release.privacy.private is False
    assert release.privacy.parameters["sigma_tilde"] == 0.0


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
            release = private_fit(problem(), X, y, mechanism=mechanism, random_state=5)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    privacy = release.privacy
    return (
        stream.getvalue(),
        [str(w.message) for w in caught],
        repr(privacy),
        privacy.to_dict(),
        sorted(vars(release)),
        len(pickle.dumps(privacy)),
        release.theta.shape,
    )


@pytest.mark.parametrize("name", MECHANISMS)
def test_adjacent_data_differ_in_coefficients_only(name):
    X, y = data()
    X2, y2 = np.vstack([X, [[0.5, -0.5, 0.5]]]), np.append(y, 1.0)
    assert observable(MECHANISMS[name], X, y) == observable(MECHANISMS[name], X2, y2)


def test_pickled_guarantee_holds_no_data():
    X, y = data()
    X[7, 1] = 0.123456789
    release = private_fit(problem(), X, y, mechanism=MECHANISMS["qop"], random_state=1)
    assert np.float64(0.123456789).tobytes() not in pickle.dumps(release)


def test_output_noise_keeps_half_a_grid_step_per_coordinate_for_rounding():
    noise = OutputNoise(eta=1e-6, sigma_tilde=1e-4)
    assert noise.tolerance(100) + 0.5 * noise.step * 10 <= 1e-6
    assert noise.steps * noise.step >= 1e-4
    with pytest.raises(InvalidInput, match="larger eta"):
        OutputNoise(eta=1e-12, sigma_tilde=1.0).tolerance(4)


def test_a_missing_certificate_releases_nothing(monkeypatch):
    from curvedp.errors import NotCertified
    from curvedp.mechanisms import output_noise
    from curvedp.solvers import Solution

    monkeypatch.setattr(
        output_noise, "solve", lambda objective, eta: Solution(objective.perturbation.center, 10 * eta)
    )
    X, y = data()
    with pytest.raises(NotCertified):
        private_fit(problem(), X, y, mechanism=MECHANISMS["qop"])


def test_release_lies_on_the_public_grid():
    X, y = data()
    plan = MECHANISMS["qop"].plan(problem(constraint=L2Ball(100.0)), 3)
    rng = np.random.default_rng(0)
    release = plan.release(make_rows(X, y, problem().domain), rng)
    step = OutputNoise(plan.parameters.eta, plan.parameters.sigma_tilde).step
    ratio = release.theta / step
    assert np.array_equal(ratio, np.rint(ratio))
