"""Calibrations: they keep what they promise, spend it, are cached, and refuse what no theorem covers."""

from __future__ import annotations

import math
import time

import pytest

from curvedp.errors import CalibrationFailed, InvalidInput, NotCovered
from curvedp.privacy.calibrate import calibrate_qop, largest, minimise, solve_curvature
from curvedp.privacy.curvature import Directional
from curvedp.privacy.gaussian import Cost, calibrate_mu, hockey_stick
from curvedp.privacy.profiles import CurvatureProfile, GaussianProfile, log_rare_probability
from curvedp_studies.accounting import qop_profile, solve_shift, statistics_profile
from curvedp_studies.mechanisms.lop import calibrate_lop, lop_profile
from curvedp_studies.mechanisms.wishart import MomentAccounting, calibrate_statistics

QOP = {"L": 1.0, "d": 6, "center_sensitivity": 2.0, "radius": 1.5}


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
@pytest.mark.parametrize("accounting", ["auto", "directional", "spectral"])
def test_qop_keeps_and_spends_the_budget(adjacency: str, accounting: str) -> None:
    found = calibrate_qop(0.8, 1e-5, **QOP, eta=1e-6, adjacency=adjacency, accounting=accounting)
    rebuilt = qop_profile(
        L=1.0,
        d=6,
        m=found.m,
        sigma2=found.sigma2,
        sigma0=found.sigma0,
        center_sensitivity=2.0,
        eta=found.eta,
        sigma_tilde=found.sigma_tilde,
        adjacency=adjacency,
        accounting=accounting,
    )
    assert 0.99e-5 <= rebuilt.delta_at(0.8) <= 1e-5
    assert found.profile.delta_at(0.8) <= 1e-5
    assert found.accounting == ("spectral" if accounting == "spectral" else "directional")
    assert found.theorem == {"spectral": "(P-5)"}.get(
        found.accounting, "(P-7j)" if adjacency == "replace" else "(P-6)"
    )
    assert 2 * found.eta / found.sigma_tilde == pytest.approx(0.1 * calibrate_mu(0.8, 1e-5))
    bound = found.m * found.sigma2 / 2 * 1.5**2 + found.sigma0**2 * 6 / (2 * found.sigma2 * (found.m - 7))
    assert found.utility_bound == pytest.approx(bound, rel=1e-6)


def test_no_split_or_degrees_of_freedom_nearby_are_better() -> None:
    """A brute search over (m, share) by the proved accounting ends within one percent of the calibrated
    bound."""
    found = calibrate_qop(1.0, 1e-6, **QOP, adjacency="add_remove")
    ceiling, best = calibrate_mu(1.0, 1e-6), math.inf
    for m in (12.0, 20.0, 30.0, 45.0, 60.0, 90.0):
        law = Directional(6, m, "add_remove")
        for share in (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
            g = solve_curvature(1.0, 1e-6, share * ceiling, law)
            linear = (2.0 / (share * ceiling)) ** 2 * 6 * g / (2 * (m - 7))
            best = min(best, m / g / 2 * 1.5**2 + linear)
    assert found.utility_bound <= 1.01 * best


def test_the_hidden_dimension_may_be_given() -> None:
    free = calibrate_qop(1.0, 1e-6, **QOP, adjacency="add_remove")
    fixed = calibrate_qop(1.0, 1e-6, **QOP, m=100.0, adjacency="add_remove")
    assert fixed.m == 100.0
    assert fixed.profile.delta_at(1.0) <= 1e-6
    assert fixed.utility_bound >= 0.995 * free.utility_bound
    alone = calibrate_qop(
        1.0, 1e-6, L=1.0, d=6, center_sensitivity=0.0, radius=1.0, m=7.0, adjacency="add_remove"
    )
    assert alone.sigma0 == 0.0 and alone.m == 7.0


def test_units_cancel() -> None:
    """L scales σ²; the centre sensitivity and radius scale σ0 and the output noise."""
    one = calibrate_qop(1.0, 1e-6, L=1.0, d=5, center_sensitivity=1.0, radius=1.0, adjacency="add_remove")
    big = calibrate_qop(1.0, 1e-6, L=100.0, d=5, center_sensitivity=100.0, radius=1.0, adjacency="add_remove")
    assert big.sigma2 == pytest.approx(100 * one.sigma2, rel=1e-6)
    assert big.sigma0 == pytest.approx(100 * one.sigma0, rel=1e-6)
    assert big.m == one.m


def test_the_same_calibration_costs_nothing_the_second_time() -> None:
    first = calibrate_qop(0.7, 1e-6, **QOP)
    start = time.perf_counter()
    for _ in range(100):
        assert calibrate_qop(0.7, 1e-6, **QOP) is first
    assert time.perf_counter() - start < 0.5


@pytest.mark.parametrize("accounting", ["auto", "paper"])
def test_a_count_and_rare_draws_are_paid_out_of_the_budget(accounting: str) -> None:
    asked = {**QOP, "eta": 1e-6, "adjacency": "add_remove", "accounting": accounting}
    plain = calibrate_qop(0.5, 1e-5, **asked)
    counted = calibrate_qop(0.5, 1e-5, **asked, count=True, rare=1e-11)
    assert plain.mu_count == 0.0 < counted.mu_count
    assert counted.utility_bound > plain.utility_bound
    assert counted.profile.delta_at(0.5) <= 1e-5
    lop = {"L": 1, "zeta": 2, "d": 5, "radius": 1} | {k: asked[k] for k in ("eta", "adjacency", "accounting")}
    more = calibrate_lop(0.5, 1e-5, **lop, count=True, rare=1e-11)
    assert more.utility_bound > calibrate_lop(0.5, 1e-5, **lop).utility_bound
    assert more.mu_count == counted.mu_count > 0.0 and more.profile.delta_at(0.5) <= 1e-5


def test_the_curve_with_rare_draws_is_flat_beyond_the_level_that_they_are_paid_for() -> None:
    found = calibrate_qop(1.0, 1e-6, **QOP, eta=1e-6, rare=1e-12, adjacency="add_remove")
    plain = calibrate_qop(1.0, 1e-6, **QOP, eta=1e-6, adjacency="add_remove")
    at = found.profile.delta_at
    assert at(4.0) == at(40.0) >= 1e-12 > plain.profile.delta_at(40.0)
    # (1 + e^cap)·p = rare, for every level up to the cap: 2ε + 2
    assert (1 + math.exp(4.0)) * math.exp(log_rare_probability(1.0, 1e-12)) == pytest.approx(1e-12)
    assert GaussianProfile(0.5, 1e-9).gaussian_cost(0.0) == Cost(0.5, 0.0, 1e-9)
    capped = GaussianProfile(0.5, 1e-9, cap=1.0).gaussian_cost(0.0)
    assert capped == Cost(0.5, 0.0, 1e-9 + hockey_stick(1.0, 0.5))


@pytest.mark.parametrize("eta", [0.0, 1e-6])
def test_paper_calibration_is_a_point(eta: float) -> None:
    found = calibrate_qop(0.5, 1e-5, **QOP, accounting="paper", eta=eta)
    assert found.theorem == "Theorem main"
    assert found.profile.delta_at(0.5) == 1e-5
    assert (found.sigma_tilde > 0) == (eta > 0)
    # The sharp accounting agrees that it is private, with room to spare.
    sharp = qop_profile(
        L=1.0,
        d=6,
        m=found.m,
        sigma2=found.sigma2,
        sigma0=found.sigma0,
        center_sensitivity=2.0,
        eta=eta,
        sigma_tilde=found.sigma_tilde,
    )
    assert sharp.delta_at(0.5) < 1e-5
    with pytest.raises(NotCovered, match="epsilon < 1"):
        calibrate_qop(1.0, 1e-5, **QOP, accounting="paper")
    with pytest.raises(InvalidInput, match="leave m out"):
        calibrate_qop(0.5, 1e-5, **QOP, accounting="paper", m=40)


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_statistics_beside_a_shift(adjacency: str) -> None:
    law = MomentAccounting(4, 80.0, adjacency)
    sigma2, _ = calibrate_statistics(1.0, 1e-6, law, L=2.0, mu=0.1)
    profile = statistics_profile(L=2.0, d=4, m=80.0, sigma2=sigma2, mu=0.1, adjacency=adjacency)
    assert 0.99e-6 <= profile.delta_at(1.0) <= 1e-6
    larger, proved = calibrate_statistics(1.0, 1e-6, law, L=2.0, mu=0.92 * calibrate_mu(1.0, 1e-6))
    assert proved.mu == 0.92 * calibrate_mu(1.0, 1e-6) and larger > sigma2
    # Backwards: that curvature leaves that shift.
    assert solve_shift(1.0, 1e-6, law, 2.0 / sigma2) == pytest.approx(0.1, rel=0.01)
    with pytest.raises(InvalidInput, match="delta"):
        calibrate_statistics(1.0, 0.0, law, L=2.0)


def test_a_shift_that_breaks_the_promise_leaves_no_curvature() -> None:
    law = Directional(4, 40.0, "replace")
    with pytest.raises(CalibrationFailed, match="shift alone"):
        solve_curvature(1.0, 1e-6, 1.01 * calibrate_mu(1.0, 1e-6), law)
    with pytest.raises(CalibrationFailed, match="shift"):
        solve_shift(1.0, 1e-6, law, 50.0)


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
@pytest.mark.parametrize("eta", [0.0, 1e-6])
def test_lop_keeps_and_spends_the_budget(adjacency: str, eta: float) -> None:
    found = calibrate_lop(1.0, 1e-6, L=1.0, zeta=2.0, d=5, radius=1.0, adjacency=adjacency, eta=eta)
    profile = lop_profile(
        L=1.0,
        zeta=2.0,
        d=5,
        Delta=found.Delta,
        sigma=found.sigma,
        eta=eta,
        sigma_tilde=found.sigma_tilde,
        adjacency=adjacency,
    )
    assert 0.99e-6 <= profile.delta_at(1.0) <= 1e-6
    assert found.theorem == "(P-8)"
    for factor in (0.7, 1.4):  # a local minimum of the bound in Δ
        Delta = factor * found.Delta
        low, high = found.sigma / 4, found.sigma * 4
        for _ in range(60):
            middle = math.sqrt(low * high)
            fits = lop_profile(
                L=1.0,
                zeta=2.0,
                d=5,
                Delta=Delta,
                sigma=middle,
                eta=eta,
                sigma_tilde=found.sigma_tilde,
                adjacency=adjacency,
            ).delta_at(1.0)
            low, high = (low, middle) if fits <= 1e-6 else (middle, high)
        assert high**2 * 5 / (2 * Delta) + Delta / 2 >= 0.999 * found.utility_bound
    with pytest.raises(InvalidInput, match="accounting"):
        calibrate_lop(1.0, 1e-6, L=1, zeta=2, d=5, radius=1, accounting="spectral")  # type: ignore[arg-type]


def test_paper_lop_is_offered_for_add_remove_only() -> None:
    found = calibrate_lop(
        0.5, 1e-6, L=1, zeta=2, d=5, radius=1, adjacency="add_remove", accounting="paper", eta=1e-6
    )
    assert found.sigma_tilde > 0 and found.profile.delta_at(0.5) == 1e-6
    with pytest.raises(NotCovered, match="replace"):
        calibrate_lop(0.5, 1e-6, L=1, zeta=2, d=5, radius=1, adjacency="replace", accounting="paper")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"L": math.inf}, "L must"),
        ({"radius": 0.0}, "radius"),
        ({"eta": -1e-6}, "eta"),
        ({"rare": math.inf}, "rare"),
        ({"center_sensitivity": math.nan}, "center_sensitivity"),
        ({"m": 6.5}, "m ≥ d\\+1"),
        ({"m": 7.0}, "m > d\\+1"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"accounting": "best"}, "accounting"),
        ({"rank": 2, "accounting": "directional"}, "spectral"),
    ],
)
def test_bad_input_is_refused_with_what_to_pass(changes: dict, message: str) -> None:
    values = {"epsilon": 1.0, "delta": 1e-6, **QOP} | changes
    epsilon, delta = values.pop("epsilon"), values.pop("delta")
    with pytest.raises(InvalidInput, match=message):
        calibrate_qop(epsilon, delta, **values)


def test_large_dimension_and_several_outputs() -> None:
    big = calibrate_qop(1.0, 1e-6, L=1.0, d=1000, center_sensitivity=1.0, radius=1.0, adjacency="add_remove")
    assert big.profile.delta_at(1.0) <= 1e-6
    several = calibrate_qop(1.0, 1e-6, L=0.5, d=30, center_sensitivity=1.0, radius=1.0, rank=2, classes=3)
    plain = calibrate_qop(1.0, 1e-6, L=0.5, d=30, center_sensitivity=1.0, radius=1.0, rank=2)
    assert several.accounting == "spectral"
    assert several.utility_bound < plain.utility_bound


def test_generous_and_tiny_budgets() -> None:
    for epsilon, delta, adjacency in (
        (20.0, 0.1, "replace"),
        (8.0, 1e-9, "add_remove"),
        (0.01, 1e-3, "add_remove"),
        (0.05, 1e-12, "replace"),
    ):
        found = calibrate_qop(
            epsilon, delta, L=1.0, d=3, center_sensitivity=1.0, radius=1.0, adjacency=adjacency
        )
        assert 0.97 * delta <= found.profile.delta_at(epsilon) <= delta


def test_a_delta_below_the_cost_of_the_grid_is_refused() -> None:
    for accounting in ("auto", "paper"):
        with pytest.raises(CalibrationFailed, match="grid of the output noise"):
            calibrate_qop(0.5, 1e-14, **QOP, eta=1e-6, accounting=accounting)
        with pytest.raises(CalibrationFailed, match="grid of the output noise"):
            calibrate_lop(
                0.5,
                1e-14,
                L=1,
                zeta=1,
                d=5,
                radius=1,
                eta=1e-6,
                adjacency="add_remove",
                accounting=accounting,
            )
    assert calibrate_qop(0.5, 1e-14, **QOP, adjacency="add_remove").profile.delta_at(0.5) <= 1e-14


def test_searches_end_on_the_safe_side() -> None:
    calls = []

    def excess(x: float) -> float:
        calls.append(x)
        return 5 * math.log(x / 3.0) + math.tanh(x - 3)

    x = largest(excess, 1e-3, 1e3, start=0.01, what="x")
    assert excess(x) <= 0 and x == pytest.approx(3.0, rel=1e-3)
    assert len(calls) < 25
    assert largest(lambda x: -1.0, 1e-3, 1e3, start=0.5, what="x") == pytest.approx(1e3)
    with pytest.raises(CalibrationFailed, match="no x"):
        largest(lambda x: 1.0, 1e-3, 1e3, start=0.5, what="x")
    step = largest(lambda x: -4.0 if x < 2 else 9.0, 1e-3, 1e3, start=0.5, what="x")
    assert step < 2 and step == pytest.approx(2.0, rel=1e-6)
    assert minimise(lambda t: (t - 0.3) ** 2, -4.0, 4.0) == pytest.approx(0.3, abs=0.05)
    with pytest.raises(CalibrationFailed):
        minimise(lambda t: math.inf, 0.0, 1.0)


def test_a_shift_at_zero_curvature_is_the_gaussian_one() -> None:
    law = Directional(4, 40.0, "replace")
    assert solve_shift(1.0, 1e-6, law, 1e-6) == pytest.approx(calibrate_mu(1.0, 1e-6), rel=2e-3)
    assert CurvatureProfile(law, 1e-6, 0.1).delta_at(1.0) <= 1e-6
