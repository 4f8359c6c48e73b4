"""The stated rounding errors of `Rows` hold against exact arithmetic on small hostile inputs."""

from __future__ import annotations

import math
from fractions import Fraction

import dask.array as da
import mpmath
import numpy as np
import pytest
from scipy import sparse

from curvedp.arrays import ROWS_AT_MOST
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import ArrayRows, ChunkedRows, blocks, make_rows
from curvedp.data.rows.base import (
    LEVELS_AT_MOST,
    SUM_SLACK,
    Total,
    additions_at_most,
    gradient_error_bound,
    moments_error_bound,
    relative_error,
    tree_sum,
)
from curvedp.data.rows.blocks import SparseBlock, stays_sparse
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Huber, Logistic, Multinomial, OneVsRest, Poisson, Squared, SquaredHinge

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
    yield ArrayRows(X, y, domain, columns)
    yield ArrayRows(sparse.csr_array(X), y, domain, columns)
    yield ChunkedRows(lambda: ((X[i : i + 7], y[i : i + 7]) for i in range(0, N, 7)), domain, columns)


def records(rows):
    """The records as exact numbers, from the very floats that the reductions start from."""
    parts, targets = [], []
    for load in rows.loads(keep=False):
        block, y = load()
        if isinstance(block, SparseBlock):
            stored = np.zeros((len(y), rows.d))
            stored[:, : block.A.shape[1]] = block.A.toarray()
            X = exact(stored) + exact(block.g)[:, None] * exact(block.b)
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


def adversarial(n: int, d: int) -> np.ndarray:
    """One large entry and many equal small ones: a long chain loses the same last bits again and again."""
    X = np.full((n, d), 1.0 + 2.0**-30)
    X[::2, ::2] *= -1.0
    X[0] = 2.0**24
    return X


@pytest.mark.parametrize(("n", "d"), [(4096, 3), (4096, 101), (1500, 100), (257, 5), (1, 2)])
def test_stepped_products_err_by_no_more_than_their_chain(n, d):
    X, w = adversarial(n, d), 1.0 + np.arange(n) / n
    gamma = relative_error(blocks.chain(n, d))
    columns = [[Fraction(v) for v in X[:, j].tolist()] for j in range(3 if d > 3 else d)]
    weights = [Fraction(v) for v in w.tolist()]
    G, total = blocks.gram(X), blocks.combination(X, w[:, None])
    several = blocks.combination(X, np.column_stack([w, -w]))
    assert np.array_equal(G, G.T)
    for j, a in enumerate(columns):
        for k, b in enumerate(columns):
            terms = [x * y for x, y in zip(a, b, strict=True)]
            assert abs(Fraction(G[j, k]) - sum(terms)) <= gamma * float(sum(map(abs, terms)))
        terms = [x * y for x, y in zip(a, weights, strict=True)]
        for found in (total[j, 0], several[j, 0], -several[j, 1]):
            assert abs(Fraction(found) - sum(terms)) <= gamma * float(sum(map(abs, terms)))


X_NORM = 2e-3


def centred(n: int, p: int) -> tuple[sparse.csr_array, np.ndarray, ColumnMap]:
    """Stored entries that undo the centring up to their last digits: sizes a thousand times the bound."""
    random = np.random.default_rng(0)
    X = 1.0 + 1e-4 * random.normal(size=(n, p))
    X[::7] = 2.0
    X[::11] = 0.0
    columns = ColumnMap.from_bounds([0.0] * p, [2.0] * p, intercept=0.0, x_norm=X_NORM)
    return sparse.csr_array(X), random.choice([-1.0, 1.0], n), columns


def test_sparse_sums_keep_what_remains_when_entries_undo_the_centring():
    X, y, columns = centred(300, 8)
    domain = Domain(X_NORM)
    rows, dense = ArrayRows(X, y, domain, columns), ArrayRows(X.toarray(), y, domain, columns)
    with mpmath.workdps(60):
        Z, t = records(rows)
        assert max(norm(z) for z in Z) <= X_NORM
        m = rows.moments()
        assert norm(exact(m.xx) - Z.T @ Z) <= m.error
        assert norm(exact(m.xy[:, 0]) - Z.T @ exact(t)) <= m.error
        theta = np.random.default_rng(1).normal(size=(8, 1))
        slopes = np.array([exact_slopes(Squared(), s, v) for s, v in zip(Z @ exact(theta), t, strict=True)])
        stated = rows.gradient_error(Squared(), theta)
        assert norm(exact(rows.gradient_sum(Squared(), theta)) - Z.T @ slopes) <= stated
    assert m.error <= 2 * dense.moments().error and stated <= 2 * dense.gradient_error(Squared(), theta)
    np.testing.assert_allclose(m.xx, dense.moments().xx, atol=1e-9 * np.trace(dense.moments().xx))


def doors(X, y, domain, columns):
    yield ArrayRows(X, y, domain, columns)
    yield ArrayRows(sparse.csr_array(X), y, domain, columns)
    yield ChunkedRows(lambda: ((X[i : i + 7], y[i : i + 7]) for i in range(0, len(X), 7)), domain, columns)
    csr = sparse.csr_array(X)
    yield ChunkedRows(lambda: ((csr[i : i + 7], y[i : i + 7]) for i in range(0, len(y), 7)), domain, columns)
    yield make_rows(da.from_array(X, chunks=(11, -1)), da.from_array(y, chunks=11), domain, columns)
    yield make_rows(
        da.from_array(X, chunks=(20, -1)).map_blocks(sparse.csr_array, meta=sparse.csr_array((0, 0))),
        da.from_array(y, chunks=20),
        domain,
        columns,
    )


@pytest.mark.parametrize("columns", COLUMNS, ids=["plain", "mapped"])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_what_rows_say_is_within_what_was_public_before(columns, loss):
    """Scaled up to the largest table: the error per record is at most its share of the public bound."""
    X, y = hostile(3)
    X[:20] = 1e9  # at the edge of the domain
    if loss.n_outputs > 1:
        y = np.arange(N) % 3.0
    for rows in doors(X, y, DOMAIN, columns):
        share = N / ROWS_AT_MOST
        assert 0 < rows.moments().error <= share * moments_error_bound(rows.layout, rows.magnitude)
        for scale in (0.0, 0.3, 5.0):
            theta = np.random.default_rng(1).normal(size=(rows.d, loss.n_outputs)) * scale
            public = gradient_error_bound(rows.layout, loss, float(np.linalg.norm(theta)), rows.magnitude)
            assert 0 < rows.gradient_error(loss, theta) <= share * public
        for view in (rows, rows.in_metric(np.diag(np.arange(1.0, rows.d + 1)), 1.0)):
            assert view.moments().error <= share * moments_error_bound(rows.layout, rows.magnitude)
            blocks = [load()[0] for load in view.loads(False)] if hasattr(view, "loads") else []
            assert all(block.magnitudes.max() <= 1.0004 * rows.magnitude for block in blocks)
            assert all(block.additions <= additions_at_most(rows.d) - LEVELS_AT_MOST for block in blocks)


def test_public_bounds_are_small_enough_to_plan_with():
    layout = ArrayRows(np.zeros((1, 20)), np.zeros(1), Domain(1.0, 1.0)).layout
    assert moments_error_bound(layout, 1.0) <= 3e-4
    assert gradient_error_bound(layout, Logistic(), 1.0, 1.0) <= 5e-4
    assert SUM_SLACK <= 1e-3


def test_no_tree_is_deeper_than_what_the_public_bound_counts():
    """10^10 blocks in one partition, or in 10^10 partitions: the additions that each tree counts."""
    blocks = tree_sum(Total((np.array(1.0),), 0) for _ in range(1025))
    assert blocks is not None and blocks.additions == 11  # ⌈log₂⌉
    assert math.ceil(math.log2(ROWS_AT_MOST)) + 3 * math.ceil(math.log(ROWS_AT_MOST, 8)) <= LEVELS_AT_MOST
    X, y = np.ones((700, 2)), np.ones(700)
    rows = make_rows(da.from_array(X, chunks=(1, 2)), da.from_array(y, chunks=1), Domain(2.0))
    assert rows.moments().error <= relative_error(1 + 3 * math.ceil(math.log(700, 8))) * 1400 * 1.001


def test_neighbouring_sums_differ_by_no_more_than_the_slack_allows():
    """What rounding does to a sum of 20000 clipped gradients stays within its share of SUM_SLACK."""
    random = np.random.default_rng(5)
    X = random.normal(size=(20_000, 3))
    y = random.choice([-1.0, 1.0], len(X))
    c, theta = 0.1, np.ones((3, 1))
    whole = ArrayRows(X, y, Domain(1.0)).gradient_sum(Logistic(), theta, c)
    for gone in (0, 1, 5000, 19_999):
        keep = np.arange(len(X)) != gone
        rest = ArrayRows(X[keep], y[keep], Domain(1.0)).gradient_sum(Logistic(), theta, c)
        assert np.linalg.norm(whole - rest) <= (1.0 + SUM_SLACK * len(X) / ROWS_AT_MOST) * c


def test_sparse_rows_far_from_centred_are_made_dense():
    """Their entries undo a centring 1e5 times as long as a record: its last digits are all that remains."""
    columns = ColumnMap.from_bounds([0.0] * 64, [2.0] * 64, intercept=0.0, x_norm=1e-5)
    random = np.random.default_rng(0)
    X, y = random.choice([0.0, 1.0, 1.0 + 1e-9, 2.0], size=(500, 64)), random.choice([-1.0, 1.0], 500)
    X[:100] = 1.0
    assert not stays_sparse(64, columns, 1e-5) and stays_sparse(64, columns, 1.0)
    dense = ArrayRows(X, y, Domain(1.0), columns)
    csr = sparse.csr_array(X)
    for rows in (
        ArrayRows(csr, y, Domain(1.0), columns),
        ChunkedRows(
            lambda: ((csr[i : i + 90], y[i : i + 90]) for i in range(0, 500, 90)), Domain(1.0), columns
        ),
    ):
        assert rows.moments().error <= 1.5 * dense.moments().error
        np.testing.assert_allclose(rows.moments().xx, dense.moments().xx, atol=1e-20)
        blocks = [load()[0] for load in rows.loads(False)]
        assert max(block.magnitudes.max() for block in blocks) <= 1e-5 == rows.magnitude
