"""Where the linear noise dominates (Δ_c ≫ L·radius), curvature beyond what privacy asks for pays."""

import pytest

from curvedp.privacy.calibrate import calibrate_qop

CASE = {"epsilon": 0.9, "delta": 1e-3, "L": 1.0, "d": 12, "center_sensitivity": 100.0, "radius": 1.0}


def test_the_sharper_accounting_gives_the_smaller_bound():
    spectral, directional = (
        calibrate_qop(**CASE, eta=1e-6, accounting=name) for name in ("spectral", "directional")
    )
    assert directional.utility_bound < 0.95 * spectral.utility_bound
    for found in (spectral, directional):
        assert found.profile.delta_at(0.9) <= 1e-3


@pytest.mark.parametrize("center", [1000.0, 1e5])
def test_the_two_terms_of_the_bound_are_balanced(center):
    """mσ²/2·radius² and σ0² d/(2σ²(m−d−1)) are equal at the best σ², when privacy asks for less."""
    found = calibrate_qop(**{**CASE, "center_sensitivity": center}, accounting="spectral")
    curvature = found.m * found.sigma2 / 2
    noise = found.sigma0**2 * CASE["d"] / (2 * found.sigma2 * (found.m - CASE["d"] - 1))
    assert noise <= curvature * (1 + 1e-9)
    assert found.utility_bound == pytest.approx(curvature + noise, rel=1e-9)
