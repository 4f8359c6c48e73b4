import math

import numpy as np
import pytest

from curvedp.errors import InvalidInput, NotCovered
from curvedp_studies import paper

FIGURE = {"L": 1.0, "d": 12, "n": 10, "distance2": 1.0, "tau": 1.0, "rho": 1, "G": 1.0}


@pytest.mark.parametrize(
    ("d", "m", "delta", "value"),
    [
        (12, 24, 0.001, 231.78995723371327),
        (70, 140, 0.01 / 3, 98.83953422631014),
        (100, 312, 5e-7, 61.060582976540985),
    ],
)
def test_golden_sigma2(d, m, delta, value):
    assert paper.sigma2(1.0, 0.25, delta, delta, d, m, 1) == pytest.approx(value, rel=1e-10)
    assert paper.sigma2(3.0, 0.25, delta, delta, d, m, 1) == pytest.approx(3 * value, rel=1e-10)


def test_sigma2_is_the_larger_of_its_two_terms():
    constants = paper.wishart_constants(12, 24, 1e-3, 1e-3)
    ratio_term = constants.f2 + 2 * (2 * 2 + 2) / constants.alpha
    assert paper.sigma2(1.0, 0.5, 1e-3, 1e-3, 12, 24, 2) == pytest.approx(4 * ratio_term)
    assert paper.sigma2(1.0, 1e4, 1e-3, 1e-3, 12, 24, 2) == pytest.approx(2 / constants.alpha1)


def test_gaussian_noises():
    assert paper.sigma0(2.0, 0.5, 1e-3) == pytest.approx(4 * math.sqrt(2 * math.log(1250)))
    assert paper.sigma0(0.0, 0.0, 0.0) == 0
    tilde = paper.sigma_tilde(0.5, 0.25, 1e-4, alpha=2.0, sigma2=8.0)
    assert tilde == pytest.approx(8 * 0.25 * math.sqrt(2 * math.log(12500)))
    assert paper.sigma_tilde(0.0, 0.0, 0.0, alpha=2.0, sigma2=8.0) == 0


def test_utility_bounds_by_hand():
    exact = paper.utility_bound_exact(sigma0=3.0, sigma2=2.0, d=4, m=11, distance2=0.5)
    assert exact == pytest.approx(11 * 2 / 2 * 0.5 + 9 * 4 / 6 / (2 * 2))
    inexact = paper.utility_bound(
        sigma0=3.0, sigma2=2.0, sigma_tilde=0.1, L=2.0, d=4, m=11, n=100, tau=0.25, distance2=0.5, G=5.0
    )
    assert inexact == pytest.approx(exact + 100 * 4 * 2 * 0.01 / 2 + 5 * 2 * 0.1 + 0.25)


def test_experiment_split_of_the_paper():
    found = paper.experiment_parameters(
        0.5, 0.01, L=70 * 25.0, d=70, rho=1, center_sensitivity=10 * math.sqrt(70)
    )
    assert found.m == 140
    assert found.sigma2 / (70 * 25) == pytest.approx(98.83953422631014, rel=1e-10)
    assert found.sigma2 * found.m / (70 * 25) == pytest.approx(1.384e4, rel=1e-3)
    assert found.sigma0 == pytest.approx(
        10 * math.sqrt(70) / 0.25 * math.sqrt(2 * math.log(1.25 / (0.01 / 3)))
    )
    assert found.sigma_tilde == 0
    assert found.split.epsilon == pytest.approx(0.5) and found.split.delta == pytest.approx(0.01)


def test_lop_by_hand():
    lop = paper.lop_parameters(0.5, 1e-3, L=2.0, zeta=3.0)
    assert lop.sigma2 == pytest.approx(9 * (8 * math.log(2000) + 2) / 0.25)
    assert lop.Delta == 8
    assert paper.lop_utility_bound(lop, d=7, norm2=4.0) == pytest.approx(2 * lop.sigma2 * 7 / 8 + 16)


def test_optimum_spends_the_whole_budget_and_not_more():
    for center, tau in [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)]:
        best = paper.optimal_parameters(0.7, 1e-4, **{**FIGURE, "tau": tau}, center_sensitivity=center)
        assert best.split.epsilon <= 0.7 and best.split.delta <= 1e-4
        assert best.split.epsilon == pytest.approx(0.7, rel=1e-10)
        assert best.split.delta == pytest.approx(1e-4, rel=1e-10)
        assert (best.sigma0 == 0) == (center == 0) and (best.sigma_tilde == 0) == (tau == 0)
        # both terms of the maximum in σ² meet
        by_ratio = 2 / best.split.eps1 * (best.constants.f2 + 8 / best.constants.alpha)
        assert by_ratio == pytest.approx(2 / best.constants.alpha1, rel=1e-8)


@pytest.mark.parametrize(
    "center_sensitivity", [0.0, 3.0, *(pytest.param(value, marks=pytest.mark.full) for value in (0.1, 100.0))]
)
def test_optimum_is_smooth_and_monotone(center_sensitivity):
    deltas = np.geomspace(1e-5, 1e-2, 13)
    curves = np.array(
        [
            [
                paper.optimal_utility_bound(e, x, **FIGURE, center_sensitivity=center_sensitivity)
                for x in deltas
            ]
            for e in (0.2, 0.9)
        ]
    )
    assert (np.diff(curves, axis=1) < 0).all()  # in δ
    assert (np.diff(curves, axis=0) < 0).all()  # in ε
    # Scatter shows as noise in high differences (×32 in the fifth); a smooth curve has none.
    assert np.abs(np.diff(np.log(curves), n=3, axis=1)).max() < 1e-3
    assert np.abs(np.diff(np.log(curves), n=5, axis=1)).max() < 1e-4


def test_optimum_increases_with_the_center_sensitivity():
    values = [
        paper.optimal_utility_bound(0.5, 1e-3, **FIGURE, center_sensitivity=c)
        for c in (0.0, 1e-3, 0.1, 1.0, 10.0, 1000.0)
    ]
    assert (np.diff(values) > 0).all()


def test_epsilon_of_one_or_more_is_refused_by_name():
    calls = [
        lambda e: paper.optimal_utility_bound(e, 1e-3, **FIGURE, center_sensitivity=1.0),
        lambda e: paper.experiment_parameters(e, 1e-3, L=1.0, d=3, rho=1, center_sensitivity=1.0),
        lambda e: paper.sigma0(1.0, e, 1e-3),
    ]
    for call in calls:
        for epsilon in (1.0, 2.5):
            with pytest.raises(NotCovered, match=r"epsilon < 1.*directional.*spectral"):
                call(epsilon)


@pytest.mark.parametrize("bad", [0.0, -0.5, math.nan, math.inf, "0.5", None, True])
def test_bad_epsilon(bad):
    with pytest.raises(InvalidInput, match="epsilon"):
        paper.optimal_utility_bound(bad, 1e-3, **FIGURE, center_sensitivity=1.0)
    with pytest.raises(InvalidInput, match="epsilon"):
        paper.minimal_curvature(bad, 1e-3, L=1.0, d=3)
    with pytest.raises(InvalidInput, match="epsilon"):
        paper.lop_parameters(bad, 1e-3, L=1.0, zeta=1.0)
    with pytest.raises(InvalidInput, match="eps1"):
        paper.sigma2(1.0, bad, 1e-3, 1e-3, 3, 7, 1)


@pytest.mark.parametrize("bad", [0.0, 1.0, -1e-3, math.nan, "1e-3", None])
def test_bad_delta(bad):
    with pytest.raises(InvalidInput, match="delta"):
        paper.optimal_utility_bound(0.5, bad, **FIGURE, center_sensitivity=1.0)
    with pytest.raises(InvalidInput, match="delta1"):
        paper.sigma2(1.0, 0.5, bad, 1e-3, 3, 7, 1)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("L", 0.0),
        ("L", math.nan),
        ("distance2", 0.0),
        ("center_sensitivity", -1.0),
        ("tau", -1.0),
        ("tau", math.inf),
        ("n", math.nan),
        ("G", -1.0),
        ("rho", 0),
        ("rho", 1.5),
        ("d", 0),
        ("d", 2.5),
    ],
)
def test_bad_public_constants(name, bad):
    arguments = {**FIGURE, "center_sensitivity": 1.0, name: bad}
    with pytest.raises(InvalidInput, match=name if name != "d" else "dimension d"):
        paper.optimal_utility_bound(0.5, 1e-3, **arguments)


def test_hidden_dimension_below_d_plus_one_is_refused():
    with pytest.raises(InvalidInput, match=r"m ≥ d\+1"):
        paper.sigma2(1.0, 0.5, 1e-3, 1e-3, 5, 5.5, 1)
    with pytest.raises(InvalidInput, match=r"m ≥ d\+1"):
        paper.wishart_constants(5, 5.5, 1e-3, 1e-3)
