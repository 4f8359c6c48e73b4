"""Every loss against Clarabel on random and hostile problems: the certificate is true, η is always reached.

Clarabel gives the point and its face; the point is then polished with gradients in extended precision, and
its own error is bounded there, so that distances far below Clarabel's accuracy are put to the test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from tests.quadratics import solve_quadratic

from curvedp.data.rows import ArrayRows
from curvedp.problems import Problem
from curvedp.problems.constraints import Affine, Box, L1Ball, L2Ball, Reals, Simplex
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Huber, Logistic, Loss, Multinomial, Poisson, Squared, SquaredHinge
from curvedp.problems.regularizers import ElasticNet, GroupL2, L2Norm, NoRegularizer
from curvedp.solvers.glm import Objective, Perturbation, solve

# Before 1.8 cvxpy throws an answer away that Clarabel could not polish to 1e-12; here it is polished further.
cp = pytest.importorskip("cvxpy", minversion="1.8")


pytestmark = pytest.mark.filterwarnings("ignore:Solution may be inaccurate:UserWarning")

ETA = 1e-6  # 1e-6·radius, radius 1
WIDTH = 0.3
EXTENDED = np.longdouble
ULP = float(np.finfo(EXTENDED).eps)


@dataclass(frozen=True)
class Oracle:
    """A loss written twice: for Clarabel, and as margins' derivatives in any floating type."""

    loss: Loss
    expression: Callable[[cp.Expression, np.ndarray, np.ndarray], cp.Expression]  # (margins, y, slope bounds)
    derivative: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    curvature: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    clip: float | None = None


def _softmax(s):
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _one_hot(y, K):
    return np.eye(K)[y.astype(int)]


def _multinomial_curvature(s, y, _):
    p = _softmax(s)
    return p[:, :, None] * (np.eye(s.shape[1])[None] - p[:, None, :])


def _column(values):
    return np.asarray(values)[:, None, None]


LOSSES = {
    "squared": Oracle(
        Squared(),
        lambda s, y, _: 0.5 * cp.sum_squares(s[:, 0] - y),
        lambda s, y, _: s - y[:, None],
        lambda s, y, _: _column(np.ones(len(y))),
    ),
    "logistic": Oracle(
        Logistic(),
        lambda s, y, _: cp.sum(cp.logistic(-cp.multiply(y, s[:, 0]))),
        lambda s, y, _: -y[:, None] / (1 + np.exp(y[:, None] * s)),
        lambda s, y, _: _column(1 / (2 + np.exp(s[:, 0]) + np.exp(-s[:, 0]))),
    ),
    "huber": Oracle(
        Huber(WIDTH),
        lambda s, y, _: 0.5 * cp.sum(cp.huber(s[:, 0] - y, WIDTH)),
        lambda s, y, _: np.clip(s - y[:, None], -EXTENDED(WIDTH), EXTENDED(WIDTH)),
        lambda s, y, _: _column(np.abs(s[:, 0] - y) < WIDTH),
    ),
    "squared_hinge": Oracle(
        SquaredHinge(),
        lambda s, y, _: 0.5 * cp.sum_squares(cp.pos(1 - cp.multiply(y, s[:, 0]))),
        lambda s, y, _: -y[:, None] * np.maximum(1 - y[:, None] * s, 0),
        lambda s, y, _: _column(y * s[:, 0] < 1),
    ),
    "poisson": Oracle(
        Poisson(),
        lambda s, y, _: cp.sum(cp.exp(s[:, 0]) - cp.multiply(y, s[:, 0])),
        lambda s, y, _: np.exp(s) - y[:, None],
        lambda s, y, _: _column(np.exp(s[:, 0])),
    ),
    "multinomial": Oracle(
        Multinomial(3),
        lambda s, y, _: cp.sum(cp.log_sum_exp(s, axis=1)) - cp.sum(cp.multiply(_one_hot(y, 3), s)),
        lambda s, y, _: _softmax(s) - _one_hot(y, 3),
        _multinomial_curvature,
    ),
    "squared, clipped": Oracle(
        Squared(),
        lambda s, y, M: 0.5 * cp.sum(cp.multiply(M**2, cp.huber(cp.multiply(1 / M, s[:, 0] - y), 1))),
        lambda s, y, M: np.clip(s - y[:, None], -M[:, None], M[:, None]),
        lambda s, y, M: _column(np.abs(s[:, 0] - y) < M),
        clip=0.3,
    ),
}


@dataclass(frozen=True)
class Case:
    X: np.ndarray
    y: np.ndarray
    center: np.ndarray
    linear: np.ndarray
    Q: np.ndarray
    l1: float
    l2: float
    kappa: float


def make_case(name: str, seed: int) -> Case:
    """Hostile by turns: every feature of the list below is drawn on its own."""
    rng = np.random.default_rng([sorted(LOSSES).index(name), seed])
    K = LOSSES[name].loss.n_outputs
    d = int(rng.choice([1, 2, 3, 5] if K == 1 else [1, 2, 3]))
    n = int(rng.choice([1, 2, 10, 40]))  # n < d among them
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-3, 0, d if rng.random() < 0.3 else 1)
    if rng.random() < 0.2:
        X[:, rng.integers(d)] = 0.0
    if rng.random() < 0.2:
        X[:, rng.integers(d)] = X[:, 0]
    if rng.random() < 0.2:
        X[rng.integers(n)] = 0.0
    X /= max(1.0, np.linalg.norm(X, axis=1).max())
    if name == "multinomial":
        y = rng.integers(0, 3, n).astype(float)
    elif name in ("logistic", "squared_hinge"):
        y = rng.choice([-1.0, 1.0], n)
    elif name == "poisson":
        y = rng.integers(0, 2, n).astype(float)
    else:
        y = np.round(rng.uniform(-1, 1, n), 1)
    size = d * K
    spread = rng.choice([0.0, 3.0, 6.0, 9.0])
    basis, _ = np.linalg.qr(rng.standard_normal((size, size)))
    Q = (basis * 10.0 ** (rng.uniform(-1, 1) + np.linspace(0, spread, size))) @ basis.T
    Q = 0.5 * (Q + Q.T)
    center = np.round(rng.standard_normal((d, K)), 2) * (rng.random() < 0.3)
    target = rng.standard_normal(size) * (rng.random(size) < 0.5)
    linear = -(Q @ (target - center.ravel())) + rng.standard_normal(size) * 10.0 ** rng.uniform(-2, 1)
    l1 = 0.0 if rng.random() < 0.2 else 10.0 ** rng.uniform(-2, 1)
    if name == "squared" and rng.random() < 0.2:
        # Ties: the gradient at θ_c = 0 is exactly ±ω, so that 0 is optimal and every kink is on its edge.
        center, l1 = np.zeros((d, K)), 1.0
        X, y = np.round(X * 4) / 4, np.round(y)
        X[np.linalg.norm(X, axis=1) > 1] = 0.0
        linear = (X.T @ y) + rng.choice([-1.0, 1.0], size)
    kappas = [0.3, 1.0, 2.0, 0.0] if name == "poisson" else [0.3, 1.0, np.inf, 0.0]
    return Case(
        X, y, center, linear.reshape(d, K), Q, l1, float(rng.choice([0.0, 1.0])), float(rng.choice(kappas))
    )


def clarabel(oracle: Oracle, case: Case, slopes: np.ndarray) -> np.ndarray:
    """The minimiser as Clarabel sees it, at the tightest tolerances it takes."""
    d, K = case.center.shape
    theta = cp.Variable((d, K))
    u = cp.vec(theta - case.center, order="C")
    factor = np.linalg.cholesky(case.Q)
    objective = oracle.expression(case.X @ theta, case.y, slopes) + case.linear.ravel() @ u
    objective += 0.5 * cp.sum_squares(factor.T @ u)
    objective += case.l1 * cp.sum(cp.abs(theta)) + 0.5 * case.l2 * cp.sum_squares(theta)
    constraints = [cp.abs(theta) <= case.kappa] if np.isfinite(case.kappa) else []
    problem = cp.Problem(cp.Minimize(objective), constraints)
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas", "tol_ktratio"), 1e-12)
    problem.solve(solver=cp.CLARABEL, accept_unknown=True, **tight)
    return np.clip(theta.value.ravel(), -case.kappa, case.kappa)


def smooth_gradient(oracle: Oracle, case: Case, slopes: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """∇ of everything but the kinks, in extended precision."""
    X, y = case.X.astype(EXTENDED), case.y.astype(EXTENDED)
    data = X.T @ oracle.derivative(X @ theta.reshape(case.center.shape), y, slopes.astype(EXTENDED))
    u = theta - case.center.ravel()
    return data.ravel() + case.linear.ravel() + case.Q.astype(EXTENDED) @ u + EXTENDED(case.l2) * theta


def kkt(case: Case, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Smallest element, from one-sided derivatives of the function of each coordinate."""
    up = gradient + np.where(theta >= 0, case.l1, -case.l1)
    down = gradient + np.where(theta <= 0, -case.l1, case.l1)
    up = np.where(theta >= case.kappa, np.inf, up)
    down = np.where(theta <= -case.kappa, -np.inf, down)
    return np.where(up < 0, up, np.where(down > 0, down, EXTENDED(0)))


def polish(oracle: Oracle, case: Case, slopes: np.ndarray, guess: np.ndarray) -> tuple[np.ndarray, float]:
    """(oracle point, bound of its distance to the optimum), by a primal active-set method from the guess.

    Newton steps on the free coordinates, cut at the first kink or bound; once they are done, the coordinate
    with the largest residual is set free.
    """
    theta = guess.astype(EXTENDED)
    scale = 1e-5 * (1 + float(np.abs(theta).max()))
    theta[(np.abs(theta) < scale) & (case.l1 > 0)] = 0
    bound = np.abs(theta) > case.kappa - scale
    theta[bound] = np.sign(theta[bound]) * EXTENDED(case.kappa)
    curvature = 0.999 * float(np.linalg.eigvalsh(case.Q)[0]) + case.l2
    best, best_error, settled = theta, np.inf, np.inf
    for _ in range(100):
        gradient = smooth_gradient(oracle, case, slopes, theta)
        s = kkt(case, theta, gradient)
        u = np.abs(theta - case.center.ravel())
        rounding = 16 * ULP * float(np.linalg.norm(np.abs(case.Q) @ u + np.abs(case.linear.ravel())))
        rounding += 200 * ULP * (len(case.y) + case.l1)
        error = float(np.linalg.norm(s) + rounding) / curvature
        if error < best_error:
            best, best_error = theta, error
        if float(np.linalg.norm(s)) <= rounding:
            break
        free = ((theta != 0) | (case.l1 == 0)) & (np.abs(theta) < case.kappa)
        inner = float(np.linalg.norm(s[free]))
        if inner <= rounding or inner >= 0.5 * settled:
            free[np.argmax(np.where(free, 0, np.abs(s)))] = True
            settled = np.inf
        else:
            settled = inner
        step = np.zeros_like(theta)
        H = hessian(oracle, case, slopes, theta)[np.ix_(free, free)]
        step[free] = -np.linalg.solve(H, s[free].astype(float))
        walls = np.concatenate(
            [np.zeros((int(case.l1 > 0), theta.size)), np.outer([-1, 1], np.full(theta.size, case.kappa))]
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            hits = (walls - theta) / step
        hits[~(hits > 0)] = np.inf
        wall, j = np.unravel_index(np.argmin(hits), hits.shape)
        t = min(EXTENDED(1), hits[wall, j])
        theta = np.clip(theta + t * step, -EXTENDED(case.kappa), EXTENDED(case.kappa))
        if t < 1:
            theta[j] = walls[wall, j]
    return best, best_error


def hessian(oracle: Oracle, case: Case, slopes: np.ndarray, theta: np.ndarray) -> np.ndarray:
    margins = (case.X @ theta.reshape(case.center.shape)).astype(float)
    blocks = np.asarray(oracle.curvature(margins, case.y, slopes), dtype=float)
    data = np.einsum("ia,ikl,ib->akbl", case.X, blocks, case.X).reshape(theta.size, -1)
    return data + case.Q + case.l2 * np.eye(theta.size)


def check(name: str, seeds: range) -> None:
    oracle = LOSSES[name]
    sharp = 0
    for seed in seeds:
        case = make_case(name, seed)
        norms = np.linalg.norm(case.X, axis=1)
        slopes = np.full(len(norms), 1e6)
        if oracle.clip is not None:
            np.divide(oracle.clip, norms, out=slopes, where=norms > 1e-6 * oracle.clip)
        domain = Domain(x_norm=1.0, y_bound=1.0)
        ratio = case.l1 / (case.l1 + case.l2) if case.l1 + case.l2 > 0 else 1.0
        problem = Problem(oracle.loss, ElasticNet(case.l1 + case.l2, ratio), Box(case.kappa), domain)
        weights = problem.regularizer.separable(*case.center.shape)
        case = Case(
            case.X, case.y, case.center, case.linear, case.Q, weights[0][0, 0], weights[1][0, 0], case.kappa
        )
        rows = ArrayRows(case.X, case.y, domain, threads=1)
        solution = solve(
            Objective(problem, rows, Perturbation(case.center, case.linear, case.Q), oracle.clip), ETA
        )
        assert solution.distance <= ETA, (name, seed)
        point, error = polish(oracle, case, slopes, clarabel(oracle, case, slopes))
        away = float(np.linalg.norm(solution.theta.ravel() - point))
        assert away <= solution.distance + error, (name, seed, away, solution.distance, error)
        sharp += error <= 1e-8
    assert sharp >= 0.98 * len(seeds)  # the oracle itself is exact enough to mean something


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_certificates_are_true_and_eta_is_reached(name):
    check(name, range(50))


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_certificates_are_true_and_eta_is_reached_at_length(name):
    check(name, range(50, 2050))


GROUPS = ((0, 1), (2, 3))
EQUATIONS = np.random.default_rng(12).standard_normal((2, 5))
COUPLED_R = {
    "none": (NoRegularizer(), lambda theta: 0.0),
    "l1": (ElasticNet(2.0, 1.0), lambda theta: 2.0 * cp.norm1(theta)),
    "elastic net": (ElasticNet(2.0, 0.5), lambda theta: cp.norm1(theta) + 0.5 * cp.sum_squares(theta)),
    "norm": (L2Norm(1.5), lambda theta: 1.5 * cp.norm2(theta)),
    "groups": (GroupL2(1.0, GROUPS), lambda theta: sum(cp.norm2(theta[list(group)]) for group in GROUPS)),
}
COUPLED_C = {
    "reals": (Reals(), lambda theta: []),
    "box": (Box(0.3), lambda theta: [cp.abs(theta) <= 0.3]),
    "ball": (L2Ball(0.5), lambda theta: [cp.norm2(theta) <= 0.5]),
    "l1 ball": (L1Ball(0.7), lambda theta: [cp.norm1(theta) <= 0.7]),
    "simplex": (Simplex(1.0), lambda theta: [theta >= 0, cp.sum(theta) == 1]),
    "affine": (Affine(EQUATIONS, np.ones(2)), lambda theta: [EQUATIONS @ theta == 1]),
}


@pytest.mark.parametrize("r", COUPLED_R)
@pytest.mark.parametrize("C", COUPLED_C)
def test_pairs_that_couple_coordinates(r, C):
    """Clarabel's point is as near as the root of its gap, about 1e-5; ours as near as it certifies."""
    (regularizer, r_of), (constraint, C_of) = COUPLED_R[r], COUPLED_C[C]
    for seed in range(3):
        rng = np.random.default_rng([13, seed])
        basis, _ = np.linalg.qr(rng.standard_normal((5, 5)))
        H = (basis * np.geomspace(1.0, 10.0**seed, 5)) @ basis.T
        H, g = 0.5 * (H + H.T), 2.0 * rng.standard_normal(5)
        solution = solve_quadratic(H, g, np.zeros((5, 1)), regularizer, constraint, ETA)
        theta = cp.Variable(5)
        objective = 0.5 * cp.sum_squares(np.linalg.cholesky(H).T @ theta) + g @ theta + r_of(theta)
        problem = cp.Problem(cp.Minimize(objective), C_of(theta))
        problem.solve(solver=cp.CLARABEL, **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-11))
        assert np.linalg.norm(solution.theta[:, 0] - theta.value) <= solution.distance + 5e-5
