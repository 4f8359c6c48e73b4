"""Memory maps are read in passes: what a fit allocates does not grow with the number of rows."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from curvedp import private_fit
from curvedp.data.mapping import ColumnMap
from curvedp.mechanisms import QOP
from curvedp.privacy.budget import Budget
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic, Squared

P = 32
OPTIONS = {"budget": Budget(1.0, 1e-6), "mechanism": QOP(accounting="spectral"), "random_state": 1}
COLUMNS = ColumnMap.from_bounds(-np.ones(P), np.ones(P))


def mapped(folder: Path, n: int) -> tuple[np.memmap, np.memmap]:
    """n generated rows on disk."""
    X = np.memmap(folder / f"X{n}", np.float32, "w+", shape=(n, P))
    y = np.memmap(folder / f"y{n}", np.float32, "w+", shape=(n,))
    random = np.random.default_rng(0)
    for start in range(0, n, 50_000):
        rows = slice(start, start + 50_000)
        X[rows] = random.uniform(-1, 1, size=X[rows].shape)
        y[rows] = np.sign(X[rows, 0] + random.normal(size=len(X[rows])))
    return X, y


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=["squared", "logistic"])
def test_memory_is_constant_in_the_number_of_rows(loss, tmp_path):
    problem = Problem(loss, domain=Domain(x_norm=COLUMNS.norm_bound))
    peaks, thetas = [], []
    for n in (20_000, 20_000, 160_000):  # the first fit also loads what later ones find ready
        X, y = mapped(tmp_path, n)
        tracemalloc.start()
        released = private_fit(problem, X, y, columns=COLUMNS, **OPTIONS)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        thetas.append(released.value.theta)
    assert peaks[2] < 2.0 * peaks[1] + 2**20  # eight times the rows; threads may overlap more or less
    assert peaks[2] < 160_000 * P * 8 / 4
    in_memory = private_fit(
        problem,
        np.asarray(X, dtype=np.float64),
        np.asarray(y, dtype=np.float64),
        columns=COLUMNS,
        **OPTIONS,
    )
    np.testing.assert_allclose(thetas[2], in_memory.value.theta, rtol=1e-9)
