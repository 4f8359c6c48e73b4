"""Profiles and laws: structure, consistency, and clear refusals."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from curvedp import Budget, Domain, Problem
from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms import make_plan
from curvedp.mechanisms.statistics import gaussian_sensitivity, gram_sensitivity
from curvedp.privacy import quadrature
from curvedp.privacy.budget import Adjacency, Neighbours
from curvedp.privacy.curvature import Directional, Replaced, Spectral, added_law, removed_law
from curvedp.privacy.gaussian import hockey_stick
from curvedp.privacy.profiles import CurvatureProfile, GaussianProfile
from curvedp.privacy.quadrature import (
    _ANGLES,
    CELLS,
    RESOLUTIONS,
    LossGrid,
    LossLaw,
    MassBins,
    _chords,
    angle_bound,
    body_bins,
    cell_law,
    corner_max,
    form_over,
    inverse_chi_square_bins,
    student_bins,
    tail_edges,
)
from curvedp.problems.losses import Squared
from curvedp.release.catalogue import mechanism
from curvedp_studies.accounting import qop_profile, statistics_profile
from curvedp_studies.mechanisms.lop import half_normal_bins, lop_profile
from curvedp_studies.mechanisms.wishart import MomentAccounting, MomentReplaced

Grid = np.ndarray
QOP = {"L": 1.0, "d": 4, "m": 20.0, "sigma2": 2.0, "sigma0": 3.0, "center_sensitivity": 1.0}


@pytest.mark.parametrize("n", [2.0, 3.5, 40.0, 2000.0])
def test_bins_account_for_all_mass_and_for_the_mean(n: float) -> None:
    for bins in (inverse_chi_square_bins(n, tail_edges(n, tail=0.4, body=0.5)), body_bins(n, step=0.5)):
        assert bins.mass.sum() + bins.outside == pytest.approx(1.0, abs=1e-12)
        assert np.all(bins.mass >= 0) and np.all(np.diff(bins.edges) > 0)
        if n > 2.5:  # E[1/χ] = 1/(n−2); for n = 2 it is infinite
            assert bins.mass @ bins.mean == pytest.approx(1 / (n - 2), rel=1e-6)
    w = student_bins(n, step=0.3)
    assert w.mass.sum() + w.outside == pytest.approx(1.0, abs=1e-12)
    assert w.mass @ w.mean == pytest.approx(0.0, abs=1e-12)
    z = half_normal_bins(step=0.1)
    assert z.mass @ z.mean == pytest.approx(math.sqrt(2 / math.pi), rel=1e-12)


def test_a_chord_keeps_the_mean_of_the_exponential_and_dominates() -> None:
    rng = np.random.default_rng(0)
    low, width = rng.uniform(0, 2, 500), rng.uniform(1e-6, 0.5, 500)
    high, mass = low + width, rng.dirichlet(np.ones(500))
    points = low[:, None] + width[:, None] * rng.uniform(size=(500, 5))
    mean = points.mean(axis=1)
    true = LossLaw(points.ravel(), np.repeat(mass / 5, 5), 0.0)
    binned = LossLaw.of_bins(mass, low, high, mean, 0.0)
    grid = LossGrid(0.003)
    collected = grid.law(grid.collect(mass, low, high, mean), 0.0)
    levels = np.linspace(0, 3, 61)
    for law in (binned, collected):
        assert law.probabilities.sum() == pytest.approx(1.0)
        assert law.probabilities @ np.exp(-law.losses) == pytest.approx(mass @ np.exp(-mean), rel=1e-9)
        for mu in (0.0, 0.2):
            assert np.all(law.divergence(levels, mu) >= true.divergence(levels, mu) * (1 - 1e-12))


def test_losses_beyond_the_grid_count_as_delta() -> None:
    one = np.ones(1)
    law = LossLaw.of_bins(one, 150.0 * one, 250.0 * one, 160.0 * one, 0.0)
    assert law.infinite == 1.0 and law.losses.size == 0
    grid = LossGrid(0.01)
    assert grid.law(grid.collect(one, 150.0 * one, 250.0 * one, 160.0 * one), 0.0).infinite > 0


def test_losses_too_small_for_doubles_keep_their_mass() -> None:
    """exp(−ℓ) is 1 at both ends of such a bin: its mass counts at the larger loss, and is not dropped."""
    mass, tiny = np.full(4, 0.25), 1e-40 * np.arange(1.0, 5.0)
    for step in (1e-60, 1e-42, 1e-20):
        grid = LossGrid(step)
        law = grid.law(grid.collect(mass, tiny, 2.0 * tiny, 1.5 * tiny), 0.0)
        assert law.probabilities.sum() == pytest.approx(1.0) and np.isfinite(law.losses).all()
        assert law.divergence(np.zeros(1), 0.3)[0] == pytest.approx(hockey_stick(0.0, 0.3))


@pytest.mark.parametrize("adjacency", ["add_remove", pytest.param("replace", marks=pytest.mark.full)])
def test_the_smallest_curvature_is_accounted_like_none(adjacency: Adjacency) -> None:
    curve = [
        make_plan(
            mechanism("qop"), Problem(Squared(), domain=Domain(B, 1.0, adjacency)), 2, Budget(1.0, 1e-6)
        ).guarantee.profile
        for B in (1e-8, 1e-12, 1e-20, 1e-60)
    ]
    for profile in curve:
        assert profile.delta_at(0.5) == pytest.approx(curve[0].delta_at(0.5), rel=1e-6)


def test_the_cells_cover_every_angle() -> None:
    assert len(_ANGLES) == CELLS + 1 == 17
    assert _ANGLES[0] == 0.0 and _ANGLES[-1] == pytest.approx(math.pi / 2, rel=1e-15)
    assert np.all(np.diff(_ANGLES) > 0)


@pytest.mark.parametrize("cell", [(0.0, 0.1), (0.6, 0.75), (1.4, math.pi / 2)])
def test_the_range_of_the_form_over_a_cell_is_exact(cell: tuple[float, float]) -> None:
    s, r, w = (
        np.geomspace(1e-3, 1, 9)[:, None, None],
        np.geomspace(1e-3, 1, 7)[:, None],
        np.linspace(-3, 3, 31),
    )
    form = form_over(s, r, w, cell)
    psi = np.linspace(*cell, 4001)[:, None, None, None]
    values = s * (np.cos(psi) - w * np.sin(psi)) ** 2 + r * (1 + w * w) * np.sin(psi) ** 2
    assert np.allclose(form.low, values.min(axis=0), rtol=1e-5)
    assert np.all(form.low <= values.min(axis=0) * (1 + 1e-12))
    assert np.allclose(form.high, values.max(axis=0), rtol=1e-5)
    assert np.all(form.high >= values.max(axis=0) * (1 - 1e-12))


def true_loss(loss: Replaced | MomentReplaced, s: Grid, r: Grid, w: Grid, psi: Grid) -> Grid:
    """A(χ') + R(χ) of (P-6), or the four terms of (S-1), written out."""
    g, k = loss.g, loss.n / 2 - 1
    across = np.cos(psi) - w * np.sin(psi)
    tau, tau_new = g * s, g * (s * across**2 + r * (1 + w**2) * np.sin(psi) ** 2)
    if isinstance(loss, Replaced):
        gone = np.maximum(0.0, -(k + 1) * np.log1p(-tau) - g / 2)
        return gone + np.maximum(np.log1p(tau_new), g / 2 - k * np.log1p(tau_new))
    both = -k * np.log((1 + tau_new) * (1 - tau) + (tau * across) ** 2)
    alone = np.maximum(g / 2 - k * np.log1p(tau_new), -k * np.log1p(-tau) - g / 2)
    return np.maximum(np.maximum(alone, both), 0.0)


@pytest.mark.parametrize(
    "loss", [Replaced(12.0, 0.8), MomentReplaced(12.0, 0.8), Replaced(5.0, 2.5), MomentReplaced(60.0, 4.0)]
)
def test_majorants_bound_the_loss_and_its_mean_on_every_box(loss: Replaced | MomentReplaced) -> None:
    """Uniform s, r, w in each box: the largest loss over the cell, its mean and range, on a grid."""
    edges = np.linspace(0.02, 0.9, 6) / loss.g, np.linspace(0.01, 0.5, 6), np.linspace(-1.5, 1.5, 9)
    bins = [MassBins(e, np.ones(e.size - 1), np.full(e.size - 1, 0.5), 0.0) for e in edges]
    inner = [e[:-1, None] + np.diff(e)[:, None] * (np.arange(8) + 0.5) / 8 for e in edges]
    s, r, w = (v.reshape([-1 if axis == i else 1 for axis in range(3)]) for i, v in enumerate(inner))
    shape = (edges[0].size - 1, 8, edges[1].size - 1, 8, edges[2].size - 1, 8)
    for cell in pairwise(_ANGLES):
        grid = edges[0][:, None, None], edges[1][:, None], edges[2]
        (rise, floor), (fall, low), bend = loss.boxes(*grid, cell)
        pad = bend * np.diff(edges[2]) ** 2 / 8
        mean = _chords(fall, *bins) + pad + np.log1p(_chords(rise, *bins))
        high, low = corner_max(fall) + pad + np.log1p(corner_max(rise)), low + np.log1p(floor)
        worst = np.maximum.reduce([true_loss(loss, s, r, w, psi) for psi in np.linspace(*cell, 7)]).reshape(
            shape
        )
        assert np.all(worst.mean(axis=(1, 3, 5)) <= mean + 1e-12)
        assert np.all(worst.max(axis=(1, 3, 5)) <= high + 1e-12)
        assert np.all(low <= mean + 1e-12) and np.all(mean <= high + 1e-12)


@pytest.mark.parametrize("loss", [Replaced(12.0, 0.8), MomentReplaced(12.0, 0.8), Replaced(2.0, 0.1)])
def test_finer_bins_only_lower_the_bound(
    loss: Replaced | MomentReplaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = np.array([0.1, 0.5, 1.0])
    for cell in (0, 7, 15):
        values = [cell_law(loss, cell, depth).divergence(levels, 0.1) for depth in range(len(RESOLUTIONS))]
        assert np.all(values[0] >= values[1] * 0.98) and np.all(values[1] >= values[2] * 0.98)
    by_depth = []
    for depths in (1, 2, 3):
        monkeypatch.setattr(quadrature, "RESOLUTIONS", RESOLUTIONS[:depths])
        by_depth.append(angle_bound(loss, levels, 0.1))
    assert np.all(by_depth[0] >= by_depth[1]) and np.all(by_depth[1] >= by_depth[2])


def test_many_levels_at_once_agree_with_one_at_a_time() -> None:
    profile = qop_profile(**QOP)
    levels = np.linspace(0, 3, 100)
    together = profile.deltas(levels)
    assert np.allclose(together[::20], [profile.delta_at(e) for e in levels[::20]], rtol=1e-9)
    assert np.all(np.diff(together) <= 0)


def test_parallel_records_are_one_of_the_angles() -> None:
    """Dimension one is the angle 0 of dimension two with as many degrees of freedom."""
    one = Directional(1, 12.0, "replace").divergence(0.5, np.array([0.5, 1.0]), 0.0)
    two = Directional(2, 13.0, "replace").divergence(0.5, np.array([0.5, 1.0]), 0.0)
    assert np.all(one <= two)
    moments = [
        MomentAccounting(d, 11.0 + d, "replace").divergence(0.5, np.array([0.5, 1.0]), 0.0) for d in (1, 2)
    ]
    assert np.all(moments[0] <= moments[1])


def test_statistics_cost_no_more_than_the_minimiser() -> None:
    """No determinant: (S-1) lies below (P-6), for both adjacencies."""
    for adjacency in ("replace", "add_remove"):
        moments = CurvatureProfile(MomentAccounting(5, 30.0, adjacency), 0.7, 0.1)
        solved = CurvatureProfile(Directional(5, 30.0, adjacency), 0.7, 0.1)
        for epsilon in (0.2, 0.7, 1.5):
            assert moments.delta_at(epsilon) <= solved.delta_at(epsilon)


def test_no_curvature_is_the_gaussian_mechanism() -> None:
    tiny = qop_profile(**(QOP | {"sigma2": 1e12}))
    for epsilon in (0.1, 1.0):
        assert tiny.delta_at(epsilon) == pytest.approx(hockey_stick(epsilon, 1 / 3), rel=1e-3)
    assert GaussianProfile(0.4).delta_at(0.5) == hockey_stick(0.5, 0.4)


def test_output_noise_adds_its_shift_and_its_discreteness() -> None:
    plain = qop_profile(**QOP)
    noisy = qop_profile(**QOP, eta=1e-6, sigma_tilde=1e-4)
    assert noisy.mu == pytest.approx(math.hypot(plain.mu, 0.02))
    assert 0 < noisy.excess < 1e-11
    assert noisy.delta_at(1.0) > plain.delta_at(1.0)


def test_two_sided_lop_is_the_mean_over_the_normal() -> None:
    """(P-8) with and without output noise, against direct sums over z."""
    z = np.linspace(-9, 9, 200_001)
    weight = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    for zeta, sigma in ((1.0, 4.0), (1.0, 0.4)):
        M = 2 * zeta / sigma
        loss = M * np.abs(z) + M * M / 2 + math.log1p(1 / 5)
        for epsilon in (0.05, 0.3, 1.0, 3.0):
            plain = lop_profile(L=1, zeta=zeta, Delta=5, sigma=sigma)
            assert plain.delta_at(epsilon) == pytest.approx(
                float(weight @ -np.expm1(np.minimum(epsilon - loss, 0))), rel=1e-4, abs=1e-12
            )
            noisy = lop_profile(L=1, zeta=zeta, Delta=5, sigma=sigma, eta=0.1, sigma_tilde=1.0)
            direct = float(weight @ np.asarray(hockey_stick(epsilon - loss, 0.2)))
            assert direct * (1 - 1e-6) <= noisy.delta_at(epsilon) <= direct * 1.01 + 1e-12


def test_sensitivities_of_second_moments() -> None:
    """(S-2) against random pairs: never exceeded, and nearly reached."""
    rng = np.random.default_rng(1)
    for B, Y, weight in ((1.0, 1.0, 1.0), (2.0, 0.5, 1.0), (0.5, 3.0, 0.7), (1.0, 2.0, 1.5)):
        largest = {"add_remove": 0.0, "replace": 0.0}
        for _ in range(2500):
            x, x_new = (B * v / np.linalg.norm(v) for v in rng.normal(size=(2, 2)))
            y, y_new = Y * rng.choice([-1, 1], 2)
            gram, gram_new = np.outer(x, x), np.outer(x_new, x_new)
            one = np.sum(gram**2) + weight**2 * np.sum((x * y) ** 2)
            two = np.sum((gram - gram_new) ** 2) + weight**2 * np.sum((x * y - x_new * y_new) ** 2)
            largest = {
                "add_remove": max(largest["add_remove"], math.sqrt(one)),
                "replace": max(largest["replace"], math.sqrt(two)),
            }
        for adjacency, seen in largest.items():
            bound = gaussian_sensitivity(B, Y, weight, Neighbours(adjacency))
            assert seen <= bound * (1 + 1e-12)
            assert seen >= 0.998 * bound
    assert gram_sensitivity(2.0, Neighbours("add_remove")) == 4.0
    assert gram_sensitivity(2.0, Neighbours("replace")) == pytest.approx(4 * math.sqrt(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"m": 4.5}, "m ≥ d\\+1"),
        ({"m": math.nan}, "hidden dimension"),
        ({"d": 0}, "dimension d"),
        ({"L": 0.0}, "L must be"),
        ({"sigma2": -1.0}, "sigma2"),
        ({"sigma0": 0.0}, "sigma0 > 0"),
        ({"eta": 1e-6}, "sigma_tilde > 0"),
        ({"center_sensitivity": "1"}, "center_sensitivity"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"accounting": "paper"}, "calibrate_qop"),
        ({"accounting": "directional", "rank": 2}, "spectral"),
        ({"accounting": "directional", "classes": 2}, "spectral"),
    ],
)
def test_bad_input_is_refused_with_what_to_pass(changes: dict, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        qop_profile(**(QOP | changes))


def test_more_refusals() -> None:
    profile = qop_profile(**QOP)
    for epsilon in (-0.1, math.nan, "1"):
        with pytest.raises(InvalidInput, match="epsilon"):
            profile.delta_at(epsilon)  # type: ignore[arg-type]
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidInput, match="delta"):
            profile.epsilon_at(delta)
    with pytest.raises(NotCovered, match="d ≥ 2"):
        Spectral(1, 5.0, 1, "replace")
    with pytest.raises(InvalidInput, match="mu"):
        statistics_profile(L=1, d=2, m=9, sigma2=1, mu=-1.0)
    with pytest.raises(InvalidInput, match="adjacency"):
        lop_profile(L=1, zeta=1, Delta=1, sigma=1, adjacency="swap")  # type: ignore[arg-type]


def test_a_curve_that_never_falls_has_no_epsilon() -> None:
    hopeless = qop_profile(**(QOP | {"sigma2": 1e-3}))
    assert hopeless.delta_at(5.0) > 0.5
    assert hopeless.epsilon_at(1e-9) == math.inf


def test_auto_is_directional_for_one_output_and_spectral_for_several() -> None:
    assert isinstance(qop_profile(**QOP).accounting, Directional)
    assert isinstance(qop_profile(**(QOP | {"rank": 2})).accounting, Spectral)
    several = qop_profile(**(QOP | {"classes": 2})).accounting
    assert isinstance(several, Spectral) and several.ensemble.d == 4
    one_record = qop_profile(**(QOP | {"classes": 2, "adjacency": "add_remove"})).accounting
    assert isinstance(one_record, Spectral) and (one_record.ensemble.d, one_record.ensemble.m) == (2, 18.0)


def test_laws_are_shared_between_profiles() -> None:
    assert added_law(17.0, 0.5) is added_law(17.0, 0.5)
    assert removed_law(17.0, 0.5) is removed_law(17.0, 0.5)
