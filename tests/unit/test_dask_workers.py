"""Passes over kept records on threads: one task per thread, whatever the number of partitions."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from dask.callbacks import Callback

from curvedp.data.graphs import Failure
from curvedp.data.rows import ArrayRows, make_rows
from curvedp.data.rows.dask import DaskRows, KeptRows, gather, keep
from curvedp.problems.domain import Domain
from curvedp.problems.losses import Logistic

N, P, PARTS = 2400, 3, 24
DOMAIN = Domain(2.0)
CLOSE = {"rtol": 1e-11, "atol": 1e-11}


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(5)
    X = random.uniform(-1, 1, size=(N, P))
    return X, np.sign(X @ [0.6, -0.5, 0.2] + random.normal(0, 0.3, N))


def lazy(table) -> DaskRows:
    X, y = table
    return make_rows(da.from_array(X, chunks=(N // PARTS, P)), da.from_array(y, chunks=N // PARTS), DOMAIN)


class Tasks(Callback):
    """How many tasks ran."""

    def __init__(self) -> None:
        self.count = 0

    def _pretask(self, key, graph, state) -> None:
        self.count += 1


@pytest.mark.parametrize(("scheduler", "threads"), [("threads", 3), ("sync", 1)])
def test_a_pass_over_kept_records_has_one_task_per_thread(table, scheduler, threads):
    rows, theta = lazy(table), np.ones((P, 1))
    metric = np.diag([1.0, 2.0, 3.0])
    with dask.config.set(scheduler=scheduler, num_workers=threads):
        with Tasks() as first:
            found = rows.gradient_sum(Logistic(), theta)
        seen = rows.in_metric(metric)
        seen.gradient_sum(Logistic(), theta, 0.1)
        with Tasks() as later:
            again, clipped = rows.gradient_sum(Logistic(), theta), seen.gradient_sum(Logistic(), theta, 0.1)
    assert first.count >= PARTS
    assert later.count <= 2 * (threads + 2)  # two passes: a join each, and what all tasks need
    plain = ArrayRows(*table, DOMAIN)
    np.testing.assert_array_equal(again, found)
    np.testing.assert_allclose(found, plain.gradient_sum(Logistic(), theta), **CLOSE)
    np.testing.assert_allclose(clipped, plain.in_metric(metric).gradient_sum(Logistic(), theta, 0.1), **CLOSE)


def test_what_is_gathered_is_summed_in_one_order_by_any_number_of_threads(table):
    X, y = table
    cuts = [slice(i * 100, (i + 1) * 100) for i in range(PARTS)]
    parts = [keep(ArrayRows(X[cut], y[cut], DOMAIN, threads=1)) for cut in cuts]

    def count_and_sum(block, targets):
        return (np.asarray(float(len(targets))), block.combine(targets))

    totals = [gather(threads, parts).total(count_and_sum, keep=False) for threads in (1, 2, 5)]
    assert totals[0].parts[0] == N
    for total in totals[1:]:
        np.testing.assert_array_equal(total.parts[1], totals[0].parts[1])
    whole = gather(4, parts)
    assert isinstance(whole, KeptRows) and whole.count() == N and whole.threads == 4
    assert whole.__sizeof__() == sum(part.__sizeof__() for part in parts)
    assert whole.blocks[0][0].X is parts[0].blocks[0][0].X  # nothing is copied
    failure = Failure("partition 2 of 3 cannot be read")
    assert gather(2, [parts[0], failure, parts[1]]) is failure
