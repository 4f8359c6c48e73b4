"""δ falls with ε and with every noise; inverses agree; calibrations are never weaker than asked."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvedp.privacy.calibrate import calibrate_qop, solve_curvature
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.profiles import Curve
from curvedp_studies.accounting import qop_profile, statistics_profile
from curvedp_studies.mechanisms.lop import calibrate_lop, lop_profile
from curvedp_studies.mechanisms.wishart import MomentAccounting, calibrate_statistics

SLACK = 1.004  # bins differ from one noise level to the next: each δ is rounded up by a little more or less

adjacencies = st.sampled_from(["replace", "add_remove"])
levels = st.floats(0.0, 5.0)
budgets = st.tuples(st.floats(0.05, 4.0), st.floats(-9, -2).map(lambda t: 10**t))


@st.composite
def qop(draw: st.DrawFn) -> dict:
    d = draw(st.integers(1, 40))
    return {
        "L": 1.0,
        "d": d,
        "m": d + 1 + draw(st.floats(0.0, 3.0)) * d,
        "sigma2": math.exp(draw(st.floats(-2.5, 3.0))),
        "sigma0": math.exp(draw(st.floats(0.0, 4.0))),
        "center_sensitivity": draw(st.sampled_from([0.0, 1.0])),
        "adjacency": draw(adjacencies),
        "accounting": draw(st.sampled_from(["directional", "spectral"])) if d > 1 else "directional",
    }


def never_rises(values: list[float]) -> bool:
    return all(b <= a * SLACK + 1e-22 for a, b in pairwise(values))


@settings(max_examples=15, deadline=None)
@given(qop(), st.lists(levels, min_size=2, max_size=4))
def test_delta_falls_with_epsilon(arguments: dict, points: list[float]) -> None:
    profile = qop_profile(**arguments)
    values = [profile.delta_at(e) for e in sorted(points)]
    assert all(0 <= v <= 1 for v in values)
    assert sorted(values, reverse=True) == values


@settings(max_examples=12, deadline=None)
@given(qop(), st.floats(0.0, 2.0), st.floats(1.02, 3.0))
def test_delta_falls_with_every_noise(arguments: dict, epsilon: float, factor: float) -> None:
    for name in ("sigma2", "sigma0"):
        more = arguments | {name: factor * arguments[name]}
        assert never_rises(
            [qop_profile(**arguments).delta_at(epsilon), qop_profile(**more).delta_at(epsilon)]
        )
    with_output = arguments | {"eta": 1e-6, "sigma_tilde": 1e-5}
    less_output = arguments | {"eta": 1e-6, "sigma_tilde": factor * 1e-5}
    assert never_rises([qop_profile(**v).delta_at(epsilon) for v in (with_output, less_output, arguments)])


@settings(max_examples=6, deadline=None)
@given(
    st.integers(1, 30), st.floats(0.2, 3), st.floats(0, 1), st.floats(1.02, 3), adjacencies, st.floats(0, 2)
)
def test_statistics_delta_falls_with_every_noise(
    d: int, sigma2: float, mu: float, factor: float, adjacency: str, epsilon: float
) -> None:
    def delta(s: float, shift: float) -> float:
        return statistics_profile(
            L=1.0, d=d, m=4.0 * d + 4, sigma2=s, mu=shift, adjacency=adjacency
        ).delta_at(epsilon)

    assert never_rises([delta(sigma2, mu), delta(factor * sigma2, mu)])
    assert never_rises([delta(sigma2, mu), delta(sigma2, mu / factor)])


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.3, 50), st.floats(0.3, 30), st.floats(1.01, 3), adjacencies, st.floats(0, 3), st.booleans()
)
def test_lop_delta_falls_with_every_noise(
    Delta: float, sigma: float, factor: float, adjacency: str, epsilon: float, output: bool
) -> None:
    extra = {"eta": 1e-3, "sigma_tilde": 1e-2} if output else {}

    def delta(a: float, b: float) -> float:
        return lop_profile(L=1, zeta=1, Delta=a, sigma=b, adjacency=adjacency, **extra).delta_at(epsilon)

    assert never_rises([delta(Delta, sigma), delta(factor * Delta, sigma)])
    assert never_rises([delta(Delta, sigma), delta(Delta, factor * sigma)])


@settings(max_examples=10, deadline=None)
@given(qop(), st.floats(-8, -1))
def test_epsilon_and_delta_are_inverse(arguments: dict, log_delta: float) -> None:
    profile: Curve = qop_profile(**arguments)
    delta = 10**log_delta
    epsilon = profile.epsilon_at(delta)
    if epsilon == math.inf:
        assert profile.delta_at(100.0) > delta
        return
    assert profile.delta_at(epsilon) <= delta
    if epsilon > 0:
        assert profile.delta_at(epsilon * (1 - 1e-6)) > delta * (1 - 1e-3)


@settings(max_examples=4, deadline=None)
@given(budgets, st.integers(1, 25), st.floats(0.1, 3), adjacencies, st.sampled_from([0.0, 1e-6]))
def test_qop_is_never_weaker_than_asked(
    budget: tuple[float, float], d: int, sensitivity: float, adjacency: str, eta: float
) -> None:
    epsilon, delta = budget
    found = calibrate_qop(
        epsilon, delta, L=1.0, d=d, center_sensitivity=sensitivity, radius=1.0, eta=eta, adjacency=adjacency
    )
    profile = qop_profile(
        L=1.0,
        d=d,
        m=found.m,
        sigma2=found.sigma2,
        sigma0=found.sigma0,
        center_sensitivity=sensitivity,
        eta=eta,
        sigma_tilde=found.sigma_tilde,
        adjacency=adjacency,
    )
    assert 0.98 * delta <= profile.delta_at(epsilon) <= delta


@settings(max_examples=30, deadline=None)
@given(budgets, st.floats(0.1, 10), st.integers(1, 100), adjacencies, st.sampled_from([0.0, 1e-6]))
def test_lop_is_never_weaker_than_asked(
    budget: tuple[float, float], zeta: float, d: int, adjacency: str, eta: float
) -> None:
    epsilon, delta = budget
    found = calibrate_lop(epsilon, delta, L=1.0, zeta=zeta, d=d, radius=1.0, adjacency=adjacency, eta=eta)
    assert found.profile.delta_at(epsilon) <= delta
    assert found.profile.delta_at(epsilon) >= 0.98 * delta


@settings(max_examples=12, deadline=None)
@given(budgets, st.integers(1, 20), st.floats(0.05, 0.95))
def test_statistics_are_never_weaker_than_asked(budget: tuple[float, float], d: int, share: float) -> None:
    epsilon, delta = budget
    law = MomentAccounting(d, 20.0 * d, "add_remove")
    _, profile = calibrate_statistics(
        epsilon, delta, law, L=1.0, mu=math.sqrt(share) * calibrate_mu(epsilon, delta)
    )
    assert profile.delta_at(epsilon) <= delta


@pytest.mark.parametrize("mu", [0.0, 0.05, 0.12, 0.2])
def test_more_shift_leaves_less_curvature(mu: float) -> None:
    law = MomentAccounting(8, 160.0, "add_remove")
    assert solve_curvature(1.0, 1e-6, mu, law) > solve_curvature(1.0, 1e-6, mu + 0.02, law)
