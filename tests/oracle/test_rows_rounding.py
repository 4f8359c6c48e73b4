"""The stated rounding errors of `Rows` hold against exact arithmetic on small hostile inputs."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy import sparse

from curvedp.domain import ColumnMap, Domain
from curvedp.losses import Huber, Logistic, Multinomial, OneVsRest, Poisson, Squared, SquaredHinge
from curvedp.rows import ChunkedRows, DenseRows, SparseRows

N, P = 60, 4
exact = np.vectorize(mpmath.mpf, otypes=[object])


def hostile(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Records over many magnitudes, nearly cancelling in pairs, many beyond the bound."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(N, P)) * 10.0 ** random.uniform(-6, 2, size=(N, 1))
    X[1::2] = -X[::2] * (1 + 1e-9 * random.normal(size=(N // 2, 1)))
    X[random.random((N, P)) < 0.2] = 0.0
    return X, random.choice([-1.0, 1.0], N) * random.uniform(0.2, 3.0, N)


def storages(X, y, domain, columns):
    yield DenseRows(X, y, domain, columns)
    yield SparseRows(sparse.csr_array(X), y, domain, columns)
    yield ChunkedRows(lambda: ((X[i : i + 7], y[i : i + 7]) for i in range(0, N, 7)), domain, columns)


def records(rows):
    """The records as exact numbers, from the very floats that the reductions start from."""
    parts, targets = [], []
    for load in rows.loads(keep=False):
        block, y = load()
        if isinstance(rows, SparseRows):
            X = exact(block.A.toarray()) + exact(block.b)
            if block.c:
                X = np.hstack([X, np.full((len(X), 1), mpmath.mpf(block.c))])
        else:
            X = exact(block.X)
        if block.factors is not None:
            X = X * exact(block.factors)[:, None]
        parts.append(X)
        targets.append(y[:, 0])
    return np.vstack(parts), np.concatenate(targets)


def norm(v) -> mpmath.mpf:
    return mpmath.sqrt(mpmath.fsum(x * x for x in np.ravel(v)))


def exact_slopes(loss, s, y):
    """φ' in exact arithmetic, one row of margins at a time."""
    if loss.name == "multinomial":
        powers = [mpmath.exp(v) for v in s]
        return np.array([p / mpmath.fsum(powers) - (k == int(y)) for k, p in enumerate(powers)])
    if loss.name.startswith("one_vs_rest"):
        signs = [1 if k == int(y) else -1 for k in range(loss.n_classes)]
        return np.concatenate([exact_slopes(loss.base, [v], t) for v, t in zip(s, signs, strict=True)])
    margin, t = s[0], mpmath.mpf(y)
    return np.array(
        [
            {
                "squared": lambda: margin - t,
                "huber": lambda: max(min(margin - t, mpmath.mpf(0.3)), mpmath.mpf(-0.3)),
                "logistic": lambda: -t / (1 + mpmath.exp(t * margin)),
                "squared_hinge": lambda: -t * max(mpmath.mpf(0), 1 - t * margin),
                "poisson": lambda: mpmath.exp(margin) - t,
            }[loss.name]()
        ]
    )


DOMAIN = Domain(x_norm=2.0, y_bound=1.5)
COLUMNS = [None, ColumnMap.from_bounds([-1.0, -50.0, 0.5, -1e-3], [1.0, 20.0, 3.0, 1e-3], intercept=0.5)]


@pytest.mark.parametrize("columns", COLUMNS, ids=["plain", "mapped"])
@pytest.mark.parametrize("seed", range(3))
def test_moments_err_by_no_more_than_they_say(columns, seed):
    X, y = hostile(seed)
    with mpmath.workdps(50):
        for rows in storages(X, y, DOMAIN, columns):
            m = rows.moments()
            Z, t = records(rows)
            t = exact(np.clip(t, -1.5, 1.5))
            wrong_xx, wrong_xy = exact(m.xx) - Z.T @ Z, exact(m.xy[:, 0]) - Z.T @ t
            assert norm(wrong_xx) <= m.error and norm(wrong_xy) <= m.error
            # and no wilder than the size of the sums allows
            assert m.error <= 1e-12 * max(np.trace(m.xx), 1) * 10


LOSSES = [
    Squared(),
    Logistic(),
    Huber(0.3),
    SquaredHinge(),
    Poisson(),
    Multinomial(3),
    OneVsRest(SquaredHinge(), 3),
]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("columns", COLUMNS, ids=["plain", "mapped"])
def test_gradient_sums_err_by_no_more_than_they_say(loss, columns):
    X, y = hostile(7)
    if loss.n_outputs > 1:
        y = np.arange(N) % 3.0
    with mpmath.workdps(50):
        for rows in storages(X, y, DOMAIN, columns):
            Z, t = records(rows)
            t = loss.clip_target(t, DOMAIN)
            for scale in (0.0, 1.0, 30.0):
                theta = np.random.default_rng(1).normal(size=(rows.d, loss.n_outputs)) * scale
                S = Z @ exact(theta)
                slopes = np.array([exact_slopes(loss, s, target) for s, target in zip(S, t, strict=True)])
                stated = rows.gradient_error(loss, theta)
                assert norm(exact(rows.gradient_sum(loss, theta)) - Z.T @ slopes) <= stated
                lengths = np.array([norm(x) * norm(g) for x, g in zip(Z, slopes, strict=True)])
                clip = 0.37
                shorter = (
                    slopes
                    * np.array([min(1, clip / max(v, mpmath.mpf(10) ** -99)) for v in lengths])[:, None]
                )
                assert norm(exact(rows.gradient_sum(loss, theta, clip)) - Z.T @ shorter) <= stated
                mass = float(mpmath.fsum(lengths)) + N * (1 + scale) * loss.curvature(DOMAIN, 7 * scale)
                assert stated <= 1e-11 * mass
