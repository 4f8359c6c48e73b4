"""The parts of an audit against independent computations: bounds, records, densities, samplers, scores."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate as quadrature
from scipy import stats
from scipy.integrate import trapezoid

from curvedp.audit import bounds
from curvedp.audit.densities import LinearNoise, RandomCurvature, integrate
from curvedp.audit.fits import Draws, backend
from curvedp.audit.pairs import Pair, worst_pairs
from curvedp.audit.records import Records, no_records
from curvedp.audit.samplers import Batches, Releases, ShownMoments, density, flat, sampler
from curvedp.audit.scores import LikelihoodRatio, Projection, ScoreCells, learn
from curvedp.budget import Budget
from curvedp.constraints import Box
from curvedp.domain import Domain
from curvedp.errors import InvalidInput, NotCertified
from curvedp.losses import Huber, Logistic, Multinomial, Squared, SquaredHinge
from curvedp.mechanisms.base import Estimate, make_plan
from curvedp.mechanisms.lop import LOP, LOPClip
from curvedp.mechanisms.qop import QOP
from curvedp.mechanisms.statistics import Statistics
from curvedp.privacy.gaussian import hockey_stick
from curvedp.problem import Problem
from curvedp.regularizers import L1, L2
from curvedp.rows import make_rows
from curvedp.rows.base import Layout
from curvedp.solvers import Objective, Perturbation, solve

ADD_REMOVE = Domain(adjacency="add_remove")
BUDGET = Budget(1.0, 1e-2)
CPU = backend("cpu")


def empty(d: int) -> Records:
    return no_records(ADD_REMOVE, d)


def test_proportions_are_those_of_scipy():
    for k, n in ((0, 10), (3, 10), (10, 10), (250, 40_000)):
        for alpha in (0.05, 1e-4):
            exact = stats.binomtest(k, n).proportion_ci(1 - 2 * alpha, method="exact")
            assert float(bounds.proportion_lower(k, n, alpha)) == pytest.approx(exact.low, rel=1e-9)
            assert float(bounds.proportion_upper(k, n, alpha)) == pytest.approx(exact.high, rel=1e-9)


def test_what_two_proportions_refute():
    assert float(bounds.epsilon_bound(np.array(0.3), np.array(0.1), 0.1)) == pytest.approx(math.log(2))
    assert float(bounds.epsilon_bound(np.array(0.05), np.array(0.1), 0.1)) == -math.inf
    assert float(bounds.delta_bound(np.array(0.3), np.array(0.1), math.log(2))) == pytest.approx(0.1)


@pytest.mark.parametrize("shape", ["tail", "middle"])
def test_the_chosen_event_is_the_likelihood_ratio_set(shape):
    """P against Q: a shift (the event is a tail) and a smaller spread (the event is the middle)."""
    edges = np.linspace(-6, 6, 401)
    first, second = (stats.norm(0.7), stats.norm()) if shape == "tail" else (stats.norm(0, 0.5), stats.norm())
    n = 10**8
    p, q = (
        np.rint(n * np.diff(np.concatenate([[0], law.cdf(edges), [1]]))).astype(int)
        for law in (first, second)
    )
    epsilon = 0.3
    _, event = bounds.best_events(p, q, epsilon, 1e-3)
    found = bounds.evidence(p, q, event, epsilon, 1e-3, 1e-3)
    x = np.linspace(-8, 8, 200_001)
    best = trapezoid(np.maximum(first.pdf(x) - math.exp(epsilon) * second.pdf(x), 0), x)
    assert 0.97 * best < found.delta < best


def test_events_tested_on_fresh_counts_rarely_refute_the_truth():
    """Two Gaussians at their exact (ε, δ): 400 small audits, each wrong with probability at most 0.1."""
    rng = np.random.default_rng(1)
    mu, epsilon = 1.0, 0.5
    delta = hockey_stick(epsilon, mu)
    edges = np.linspace(-3, 4, 60)
    wrong = 0
    for _ in range(400):
        samples = [
            np.bincount(np.searchsorted(edges, rng.normal(m, 1, 300)), minlength=61)
            for m in (mu, 0.0, mu, 0.0)
        ]
        events = bounds.best_events(samples[0], samples[1], epsilon, delta)
        found = [bounds.evidence(samples[2], samples[3], e, epsilon, delta, 0.1 / 4) for e in events]
        wrong += any(f.epsilon > epsilon or f.delta > delta for f in found)
    assert wrong <= stats.binom(400, 0.1).ppf(1 - 1e-7)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Huber(0.3), SquaredHinge(), Multinomial(3)])
def test_records_reduce_like_rows(loss):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((4, 3)) / 6
    y = loss.clip_target(rng.uniform(-1, 2, 4), ADD_REMOVE)
    records = Records(x, y, np.array([1.0, 3, 2, 1]), ADD_REMOVE)
    rows = make_rows(np.repeat(x, [1, 3, 2, 1], axis=0), np.repeat(y, [1, 3, 2, 1]), ADD_REMOVE)
    theta = rng.standard_normal((3, loss.n_outputs))
    assert records.count() == rows.count() == 7 and records.layout == rows.layout
    assert records.expanded().layout == rows.layout and records.expanded().count() == 7
    metric = np.diag([1.0, 2.0, 3.0])
    for a, b in ((records, rows), (records.in_metric(metric), rows.in_metric(metric))):
        np.testing.assert_allclose(a.gradient_sum(loss, theta), b.gradient_sum(loss, theta), atol=1e-12)
        np.testing.assert_allclose(
            a.gradient_sum(loss, theta, 0.1), b.gradient_sum(loss, theta, 0.1), atol=1e-12
        )
        np.testing.assert_allclose(
            a.norm_histogram(np.array([0.3, 0.6])), b.norm_histogram(np.array([0.3, 0.6]))
        )
        edges = np.array([0.1, 0.3])
        np.testing.assert_array_equal(
            a.gradient_norm_histogram(loss, theta, edges), b.gradient_norm_histogram(loss, theta, edges)
        )
    np.testing.assert_allclose(records.hessian_sum(loss, theta), rows.hessian_sum(loss, theta), atol=1e-12)
    assert records.value_sum(loss, theta) == pytest.approx(rows.value_sum(loss, theta))
    assert 0 < records.gradient_error(loss, theta) < 1e-12
    bounded = records.in_metric(metric, 0.5).moments(), rows.in_metric(metric, 0.5).moments()
    np.testing.assert_allclose(bounded[0].xx, bounded[1].xx, atol=1e-12)
    if loss.n_outputs == 1:
        assert records.value_sum(loss, theta, 0.1) == pytest.approx(rows.value_sum(loss, theta, 0.1))
        np.testing.assert_allclose(
            records.hessian_sum(loss, theta, 0.1), rows.hessian_sum(loss, theta, 0.1), atol=1e-12
        )
    if loss.name == "squared":
        got, expected = records.moments(), rows.moments()
        for name in ("xx", "xy", "yy"):
            np.testing.assert_allclose(getattr(got, name), getattr(expected, name), atol=1e-12)


def planar() -> Records:
    return empty(2).plus(np.array([1.0, 0.0]), -1.0).plus(np.array([0.3, 0.4]), 1.0, 5.0)


@pytest.mark.parametrize("loss", [Squared(), Logistic()])
def test_the_density_of_qop_in_the_plane_integrates_to_cell_frequencies(loss):
    plan = make_plan(QOP(), Problem(loss, domain=ADD_REMOVE), 2, BUDGET)
    p = replace(plan.parameters, sigma2=0.4, m=7.3, sigma0=1.1)
    plan = replace(plan, parameters=p, center=np.array([[0.1], [-0.2]]))
    pair = Pair("", empty(2), planar(), np.eye(2))
    source, law = sampler(plan, pair, CPU), density(plan)
    assert isinstance(source, Batches) and isinstance(law, RandomCurvature)
    theta = source.sample(1, 200_000, 3)
    cut = np.quantile(theta, np.linspace(0.05, 0.95, 7), axis=0).T
    observed = np.histogram2d(theta[:, 0], theta[:, 1], [cut[0], cut[1]])[0]
    expected = np.empty((6, 6))
    for i in range(6):
        for j in range(6):
            nodes = [
                stats.uniform(c[k], c[k + 1] - c[k]).ppf(_LEGENDRE[0]) for c, k in ((cut[0], i), (cut[1], j))
            ]
            grid = np.stack(np.meshgrid(*nodes, indexing="ij"), axis=-1).reshape(-1, 2)
            f = np.exp(law.log_density(grid, planar(), loss)).reshape(8, 8)
            area = (cut[0, i + 1] - cut[0, i]) * (cut[1, j + 1] - cut[1, j])
            expected[i, j] = area * _LEGENDRE[1] @ f @ _LEGENDRE[1]
    rest = [200_000 - observed.sum(), 200_000 * (1 - expected.sum())]
    counts = np.append(observed.ravel(), rest[0])
    assert stats.chisquare(counts, np.append(200_000 * expected.ravel(), rest[1])).pvalue > 1e-5


_nodes, _weights = np.polynomial.legendre.leggauss(8)
_LEGENDRE = ((_nodes + 1) / 2, _weights / 2)


def test_one_dimensional_densities_against_a_direct_double_integral():
    """p(θ) = ∫ χ²_m(w) N(G + σ²wu; σ0²)(H + σ²w) dw by scipy's quadrature, and the normal law of LOP."""
    records = empty(1).plus(np.ones(1), 0.7, 3.0)
    law = RandomCurvature(0.5, 6.4, 1.3, np.array([0.2]))
    for theta in (-2.0, 0.2, 0.35, 4.0):
        G, H, u = 3 * (theta - 0.7), 3.0, theta - 0.2

        def f(w, G=G, H=H, u=u):
            return stats.chi2(6.4).pdf(w) * stats.norm(0, 1.3).pdf(G + 0.5 * w * u) * (H + 0.5 * w)

        expected = quadrature.quad(f, 0, 200, limit=400, points=[5, 20])[0]
        got = law.log_density(np.array([[theta]]), records, Squared())[0]
        assert math.exp(got) == pytest.approx(expected, rel=1e-7)
    linear = LinearNoise(2.0, 1.5, np.zeros(1))
    theta = np.linspace(-1, 2, 7)[:, None]
    expected = stats.norm(3 * 0.7 / 5, 1.5 / 5).logpdf(theta[:, 0])
    np.testing.assert_allclose(linear.log_density(theta, records, Squared()), expected, atol=1e-12)


def test_integration_gives_the_gaussian_hockey_stick():
    """Squared loss under LOP when y alone changes: two Gaussians of one variance."""
    left, right = (empty(1).plus(np.ones(1), y) for y in (-1.0, 1.0))
    grid = integrate(LinearNoise(1.0, 4.0, np.zeros(1)), left, right, Squared(), 0.0, 1.0)
    for epsilon in (0.0, 0.3, 1.0):
        for delta in grid.deltas(epsilon):
            assert delta == pytest.approx(hockey_stick(epsilon, 0.5), rel=1e-4)
    with pytest.raises(InvalidInput, match="mass"):
        integrate(LinearNoise(1.0, 4.0, np.zeros(1)), left, right, Squared(), 0.0, 1e-6)


PLANS = {
    "qop squared": (QOP(), Problem(Squared(), domain=ADD_REMOVE)),
    "qop lasso in a box": (QOP(), Problem(Squared(), L1(0.5), Box(0.3), ADD_REMOVE)),
    "qop logistic": (QOP(), Problem(Logistic(), domain=ADD_REMOVE)),
    "qop hinge": (QOP(), Problem(SquaredHinge(), domain=ADD_REMOVE)),
    "lop huber": (LOP(), Problem(Huber(0.3), domain=ADD_REMOVE)),
    "lop ridge in a box": (LOP(), Problem(Squared(), L2(0.7), Box(1.0), ADD_REMOVE)),
    "lop clip": (LOPClip(clip=0.2), Problem(Squared(), domain=ADD_REMOVE)),
}


@pytest.mark.parametrize("name", PLANS)
def test_batches_and_releases_are_the_same_fits(name):
    """For the same W and a the batched fit is the certified one, and fresh outputs have the same law."""
    mechanism, problem = PLANS[name]
    plan = make_plan(mechanism, problem, 2, BUDGET)
    y = problem.loss.clip_target(np.array([-1.0, 1.0]), ADD_REMOVE)
    records = empty(2).plus(np.array([0.8, 0.1]), y[0], 4.0).plus(np.array([0.1, -0.9]), y[1], 6.0)
    pair = Pair("", records, records, np.eye(2))
    fast = sampler(plan, pair, CPU)
    assert isinstance(fast, Batches)
    rng = np.random.default_rng(4)
    noise = fast.fits[0].noise
    factor = np.tril(rng.standard_normal((6, 2, 2)), -1)
    for j in range(2):
        factor[:, j, j] = np.sqrt(rng.chisquare(max(noise.m, 3.0) - j, 6))
    draws = Draws(factor, rng.standard_normal((6, 2)))
    got = CPU.solve_draws(fast.fits[0], draws)
    for f in range(6):
        Q = noise.sigma2 * factor[f] @ factor[f].T
        if noise.sigma2 == 0:
            Q = plan.parameters.Delta * np.eye(2)
        perturbation = Perturbation(plan.center, noise.sigma0 * draws.normal[f][:, None], Q)
        solution = solve(Objective(problem, records, perturbation, getattr(plan, "clip", None)), 1e-11)
        np.testing.assert_allclose(got[f], solution.theta[:, 0], atol=1e-10)
    slow = Releases(plan, (records, records)).sample(0, 250, 5)
    many = fast.sample(0, 20_000, 6)
    for direction in (np.array([1.0, 0.0]), np.array([0.6, -0.8])):
        assert stats.ks_2samp(slow @ direction, many @ direction).pvalue > 1e-4


@pytest.mark.parametrize("noise", ["gaussian", "wishart"])
def test_released_moments_show_what_the_release_shows(noise):
    problem = Problem(Squared(), domain=ADD_REMOVE)
    plan = make_plan(Statistics(noise=noise), problem, 3, BUDGET)
    records = empty(3).plus(np.array([0.5, 0.5, 0.1]), 0.8, 9.0)
    pair = Pair("", records, records, np.eye(3)[:2])
    source = sampler(plan, pair, CPU)
    assert isinstance(source, ShownMoments)
    many = source.sample(0, 20_000, 1)
    rng = np.random.default_rng(2)
    shown = []
    for _ in range(300):
        released = plan.release_moments(records, rng)
        xx = released.xx
        if noise == "wishart":
            xx = np.linalg.inv(np.linalg.inv(xx + plan.gram.sigma2 * plan.gram.m * np.eye(3))[:2, :2])
        shown.append([xx[0, 0], xx[0, 1], xx[1, 1], *released.xy[:2, 0]])
    for column in range(5):
        assert stats.ks_2samp(np.abs(many[:, column]), np.abs(np.array(shown)[:, column])).pvalue > 1e-4


def test_a_refusal_is_an_output():
    class Refusing:
        def release(self, rows, generator):
            if rows.count() == 0:
                raise NotCertified("nothing is released")
            return Estimate(np.ones((2, 1)))

    rows = empty(2), empty(2).plus(np.ones(2), 1.0)
    source = Releases(Refusing(), rows)
    assert np.isnan(source.sample(0, 3, 0)).all()
    np.testing.assert_array_equal(source.sample(1, 3, 0), np.ones((3, 2)))


def test_every_number_of_a_released_value_is_an_output():
    assert flat(Estimate(np.arange(4.0).reshape(2, 2))).tolist() == [0, 1, 2, 3]
    assert flat((Estimate(np.ones((1, 1))), 2, None, [np.array([3.0, 4.0])])).tolist() == [1, 2, 3, 4]
    assert flat(()).shape == (0,)


def test_worst_pairs_are_adjacent_and_inside_the_domain():
    for adjacency in ("replace", "add_remove"):
        domain = Domain(x_norm=2.0, y_bound=3.0, adjacency=adjacency)
        for loss in (Squared(), Logistic(), Multinomial(3)):
            problem = Problem(loss, domain=domain)
            for d in (1, 3):
                found = worst_pairs(problem, d, [5.0, 50.0])
                assert len({pair.name for pair in found}) == len(found)
                for pair in found:
                    assert _distance(pair.left, pair.right) == domain.neighbours.moves
                    for side in (pair.left, pair.right):
                        assert side.layout == Layout(domain, d)
                        assert np.all(np.linalg.norm(side.x, axis=1) <= 2.0)
                        np.testing.assert_array_equal(loss.clip_target(side.y, domain), side.y)
                    np.testing.assert_allclose(np.linalg.norm(pair.directions, axis=1), 1.0)


def _distance(left: Records, right: Records) -> float:
    """Records in one dataset and not in the other."""
    total: dict[tuple[float, ...], float] = {}
    for side, sign in ((left, 1), (right, -1)):
        for x, y, count in zip(side.x, side.y, side.counts, strict=True):
            key = (*map(float, x), float(y))
            total[key] = total.get(key, 0.0) + sign * count
    return sum(abs(v) for v in total.values())


def test_the_shared_gradient_has_the_size_it_says():
    problem = Problem(Logistic(), domain=ADD_REMOVE)
    sizes = make_plan(QOP(), problem, 2, BUDGET).pulls()
    pair = worst_pairs(problem, 2, sizes)[0]
    gradient = pair.left.gradient_sum(Logistic(), np.zeros((2, 1)))[:, 0]
    np.testing.assert_allclose(np.linalg.norm(gradient), sizes[0], rtol=1e-4)
    assert np.linalg.norm(pair.left.hessian_sum(Logistic(), np.zeros((2, 1)))) < 1e-3 * sizes[0]


def test_learned_scores_separate_what_they_should():
    rng = np.random.default_rng(3)
    pair = Pair("", empty(4), empty(4), np.eye(4)[:1])
    shifted = rng.standard_normal((2000, 4)), rng.standard_normal((2000, 4)) + np.array([0, 2.0, 0, 0])
    spread = rng.standard_normal((2000, 4)), 3 * rng.standard_normal((2000, 4))
    auc = {}
    for name, (left, right) in (("shifted", shifted), ("spread", spread)):
        for score in learn(pair, left[:1000], right[:1000]):
            a, b = score(left[1000:]), score(right[1000:])
            auc[name, score.name] = stats.mannwhitneyu(b, a).statistic / 1e6
    assert auc["shifted", "projection 1"] < 0.6
    assert auc["shifted", "linear discriminant"] > 0.9
    assert min(auc[kind, "quadratic"] for kind in ("shifted", "spread")) > 0.9
    assert min(auc[kind, "nearest neighbours"] for kind in ("shifted", "spread")) > 0.85


def test_the_exact_likelihood_ratio_is_the_best_score():
    """δ at ε = 0 of the likelihood-ratio score equals the total variation distance by integration."""
    problem = Problem(Squared(), domain=ADD_REMOVE)
    plan = make_plan(QOP(m=30.0), problem, 1, Budget(3.0, 1e-2))
    pair = worst_pairs(problem, 1, plan.pulls())[0]
    law = density(plan)
    source = sampler(plan, pair, CPU)
    left, right = source.sample(0, 50_000, 1), source.sample(1, 50_000, 2)
    low, high = np.quantile(left, [0.16, 0.84])
    exact = integrate(law, pair.left, pair.right, Squared(), float(np.median(left)), float(high - low) / 4)
    score = LikelihoodRatio(law, pair, Squared())
    shown = float(np.mean(score(right) > 0) - np.mean(score(left) > 0))
    assert shown == pytest.approx(exact.deltas(0.0)[0], abs=0.012)


def test_cells_keep_atoms_apart_and_count_everything():
    values = np.concatenate([np.zeros(500), np.ones(300), np.random.default_rng(0).standard_normal(200)])
    cells = ScoreCells.of(values)
    counts = cells.histogram(np.concatenate([values, [np.nan, np.inf, -np.inf]]))
    assert counts.sum() == 1003 and counts[-1] == 1
    zero = cells.histogram(np.zeros(7)).argmax()
    assert zero != cells.histogram(np.array([1e-9])).argmax()
    assert zero != cells.histogram(np.array([-1e-9])).argmax()
    assert ScoreCells.of(np.full(5, np.nan)).histogram(np.full(5, np.nan)).tolist() == [0, 5]
    np.testing.assert_array_equal(np.isnan(Projection("", np.ones(2))(np.full((3, 1), np.nan))), True)
