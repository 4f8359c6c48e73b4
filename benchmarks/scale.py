"""Beyond memory: Parquet against Dask's own XᵀX, cost against rows and workers, a model of a larger cluster.

    python -m benchmarks.scale                    # everything, into benchmarks/scale.md: some 10 minutes
    python -m benchmarks.scale --rows 1e6         # the Parquet comparison alone, printed
    python -m benchmarks.scale --persons 1e6      # persons on a cluster against rows alone, printed

Every cost is that of a fresh process, its imports left out; memory is the peak of that process, all included.
On a cluster processor seconds are those of the client and all workers, memory that of the largest worker.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before numpy is loaded: parallelism is over partitions

import numpy as np  # noqa: E402

from benchmarks.tables import Table  # noqa: E402
from curvedp.data.rows.base import FAN_IN  # noqa: E402

D = 50
NAMES = [f"x{j}" for j in range(D)]
FILES, ROW_GROUP = 10, 2**20  # a row group as pyarrow writes it by default
BLOCK = 100_000  # rows of a generated partition
LIMIT = 180.0  # seconds: what would take longer is extrapolated, and said to be
HERE = Path(__file__).parent


def rows(n: int, seed: int) -> tuple[Any, Any]:
    """n generated records: D uniform columns, a linear signal, noise."""
    random = np.random.default_rng(seed)
    X = random.random((n, D), dtype=np.float32) * 2 - 1
    return X, X @ np.linspace(-0.3, 0.3, D, dtype=np.float32) + 0.3 * random.standard_normal(n, np.float32)


def lazy_rows(n: int, block: int = BLOCK) -> tuple[Any, Any]:
    """The generated records as Dask arrays, made in the partitions when they are asked for."""
    import dask.array as da
    from dask.delayed import delayed

    sizes = [min(block, n - start) for start in range(0, n, block)]
    made = [delayed(rows, nout=2)(size, seed) for seed, size in enumerate(sizes)]
    X = [da.from_delayed(x, (size, D), np.float32) for (x, _), size in zip(made, sizes, strict=True)]
    y = [da.from_delayed(t, (size,), np.float32) for (_, t), size in zip(made, sizes, strict=True)]
    return da.concatenate(X), da.concatenate(y)


def write_files(folder: Path, n: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for i in range(FILES):
        X, y = rows(n // FILES, i)
        columns = {name: X[:, j].astype(np.float64) for j, name in enumerate(NAMES)} | {"y": y}
        pq.write_table(
            pa.table(columns), folder / f"{i}.parquet", row_group_size=ROW_GROUP, use_dictionary=False
        )


def model(mechanism: str = "qop") -> Any:
    from curvedp import PrivateLinearRegression

    return PrivateLinearRegression(bounds=(-1, 1), target_bounds=(-3, 3), mechanism=mechanism)


# One job each, in a fresh process.


def dask_gram(folder: str) -> None:
    import dask.dataframe as dd

    X = dd.read_parquet(folder, columns=NAMES).to_dask_array()
    (X.T @ X).compute()


def private_model(folder: str) -> None:
    from curvedp import PrivateLinearRegression
    from curvedp.data import Numeric, Schema

    columns = (*(Numeric(name, -1.0, 1.0) for name in NAMES), Numeric("y", -3.0, 3.0))
    schema = Schema(columns, target="y")
    fitted = PrivateLinearRegression(schema=schema, mechanism="qop")
    fitted.fit(schema.source(folder, engine="dask"))


def generate_only(n: str) -> None:
    import dask

    X, y = lazy_rows(int(n))
    dask.compute(X.sum(), y.sum())


def generate_and_fit(n: str) -> None:
    model().fit(*lazy_rows(int(n)))


def empty_tasks(parts: str) -> float:
    """Seconds of a pass over partitions of one record each, one task for each: all of it is the engine's
    own. Kept partitions would be gathered by worker, and a pass have as many tasks as workers."""
    from curvedp.data.mapping import ColumnMap
    from curvedp.data.rows import dask as rows_of_dask
    from curvedp.data.rows import make_rows
    from curvedp.problems.domain import Domain
    from curvedp.problems.losses import Squared

    rows_of_dask.shares_of_workers = lambda keys, kept: []

    columns = ColumnMap.from_bounds(-np.ones(D), np.ones(D))
    kept = make_rows(*lazy_rows(int(parts), block=1), Domain(columns.norm_bound), columns)
    theta, passes = np.zeros((D + 1, 1)), 5
    kept.gradient_sum(Squared(), theta)
    start = time.perf_counter()
    for _ in range(passes):
        kept.gradient_sum(Squared(), theta)
    return (time.perf_counter() - start) / passes


def visits(seed: int, n: int, persons: int) -> Any:
    """n generated rows of persons, ten of them for each on average, in no order."""
    import pandas as pd

    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (n, len(OF_VISITS)))
    y = X @ np.linspace(-0.3, 0.3, len(OF_VISITS)) + 0.3 * random.standard_normal(n)
    return pd.DataFrame(X, columns=OF_VISITS).assign(y=y, person=random.integers(0, persons, n))


def fit_visits(n: int, unit: str | None) -> None:
    import dask.dataframe as dd

    from curvedp import PrivateLinearRegression
    from curvedp.data import Numeric, Schema

    columns = (*(Numeric(name, -1.0, 1.0) for name in OF_VISITS), Numeric("y", -3.0, 3.0))
    schema = Schema(columns, target="y", unit=unit, adjacency="add_remove")
    parts, size = range(max(n // BLOCK, 2)), min(BLOCK, n // 2)
    table = dd.from_map(visits, parts, n=size, persons=n // 10, meta=visits(0, 1, 1).iloc[:0])
    PrivateLinearRegression(schema=schema, mechanism="recentered").fit(table)


def rows_of_visits(n: str) -> None:
    fit_visits(int(n), None)


def persons_of_visits(n: str) -> None:
    fit_visits(int(n), "person")


OF_VISITS = NAMES[:10]
JOBS: dict[str, Callable[[str], float | None]] = {
    job.__name__: job
    for job in (
        *(dask_gram, private_model, generate_only, generate_and_fit, empty_tasks),
        *(rows_of_visits, persons_of_visits),
    )
}


def child(name: str, argument: str, workers: int) -> None:
    """Run one job, on threads or on worker processes of one thread each, and print what it cost."""
    import dask.dataframe as dd
    import pandas as pd

    def everywhere(work: Callable[[], float]) -> list[float]:
        """work() here, and in the workers, in increasing order."""
        return [work(), *(sorted(client.run(work).values()) if workers else ())]

    def run() -> list[float]:
        # Both sides have loaded what they need, on another shape: no plan is ready.
        X, y = lazy_rows(2000, block=50)
        model().fit(X[:, :3], y)
        small = dd.from_pandas(pd.DataFrame(rows(1000, 0)[0]), npartitions=2).to_dask_array()
        (small.T @ small).compute()
        if name.endswith("_of_visits"):
            JOBS[name]("2000")
        wall, processor = time.perf_counter(), sum(everywhere(time.process_time))
        own = JOBS[name](argument)
        wall, processor = time.perf_counter() - wall, sum(everywhere(time.process_time)) - processor
        return [wall if own is None else own, processor, everywhere(peak_memory)[-1]]

    if workers == 0:
        print(json.dumps(run()))
        return
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as here,
        Client(here) as client,
    ):
        client.run(__import__, "curvedp.data.rows.dask")
        print(json.dumps(run()))


def peak_memory() -> float:
    """MB at the highest, of this process alone; what getrusage says starts from its parent's peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10


class Cost(NamedTuple):
    """Wall-clock and processor seconds (all threads), and the peak memory of the process in MB."""

    wall: float
    processor: float
    memory: float


def measure(name: str, argument: object = "", best_of: int = 1, workers: int = 0) -> Cost:
    """The fastest of some fresh processes; of their memory the largest."""
    command = [sys.executable, "-m", "benchmarks.scale", "--child", name, str(argument), str(workers)]
    found = [
        Cost(*json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=HERE.parent).stdout))
        for _ in range(best_of)
    ]
    return Cost(*(min(cost[i] for cost in found) for i in range(2)), max(cost.memory for cost in found))


def parquet_table(n: int, best_of: int) -> tuple[Table, float]:
    """Dask's own pass against a private fit, on the same files; and processor seconds of one of our rows."""
    table = Table(
        f"From Parquet: {n:.0e} rows, {D} float64 columns, {FILES} files",
        "Dask reads the files and forms XᵀX; curvedp reads them, encodes, maps and clips every row, and "
        "releases a private linear model. Two threads.",
        ("", "seconds", "processor seconds", "peak memory, MB"),
    )
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), n)
        theirs = measure("dask_gram", folder, best_of)
        ours = measure("private_model", folder, best_of)
    for label, cost in (("Dask: read, XᵀX", theirs), ("curvedp: private fit", ours)):
        table.add(label, f"{cost.wall:.2f}", f"{cost.processor:.2f}", f"{cost.memory:.0f}")
    table.add("ratio", *(f"{own / other:.2f}" for own, other in zip(ours, theirs, strict=True)))
    return table, ours.processor / n


def persons_table(n: int) -> Table:
    """What it costs to protect persons, on a cluster."""
    table = Table(
        f"Persons on a cluster: {n:.0e} rows of {n // 10:.0e} persons, {len(OF_VISITS)} columns",
        "A private linear model (recentered) of generated rows, in partitions of 100,000 and in no order, on "
        "a local cluster of two worker processes with one thread each: each row protected, then each person, "
        "whose rows meet by the cluster's shuffle first. Memory is the peak of the larger worker.",
        ("", "seconds", "processor seconds", "peak memory, MB"),
    )
    costs = [measure(f"{who}_of_visits", n, workers=2) for who in ("rows", "persons")]
    for label, cost in zip(("rows", "persons"), costs, strict=True):
        table.add(label, f"{cost.wall:.2f}", f"{cost.processor:.2f}", f"{cost.memory:.0f}")
    table.add("ratio", *(f"{own / other:.2f}" for other, own in zip(*costs, strict=True)))
    return table


def rows_table() -> Table:
    """Cost against n, rows made when they are asked for."""
    table = Table(
        f"Against rows: {D} columns, generated in the partitions, 100,000 rows each",
        "A private linear model (QOP, one pass), out of core on two threads; beside it the generator alone. "
        f"What would take more than {LIMIT:.0f} s is extrapolated from the row above.",
        ("rows", "fit, s", "generator alone, s", "fit, µs a row", "peak memory, MB"),
    )
    last: tuple[int, Cost, Cost] | None = None
    for n in (10**5, 10**6, 10**7, 10**8):
        if last is not None and last[1].wall * n / last[0] > LIMIT:
            scale = n / last[0]
            walls = [f"≈ {cost.wall * scale:.0f} (extrapolated)" for cost in last[1:]]
            table.add(f"{n:.0e}", *walls, f"{1e6 * last[1].wall / last[0]:.2f}", f"{last[1].memory:.0f}")
            continue
        fit, made = (measure(job, n) for job in ("generate_and_fit", "generate_only"))
        per_row = f"{1e6 * fit.wall / n:.2f}"
        table.add(f"{n:.0e}", f"{fit.wall:.2f}", f"{made.wall:.2f}", per_row, f"{fit.memory:.0f}")
        last = n, fit, made
    return table


def workers_table(n: int = 10_000_000, parts: int = 300) -> tuple[Table, float]:
    """Cost against worker processes; and the engine's seconds per task."""
    table = Table(
        f"Against workers: {n:.0e} generated rows, {D} columns",
        "A local cluster of worker processes with one thread each, on two cores that they share with the "
        "scheduler and the client. The last column is the engine's own cost, in a pass with one task for "
        "each kept partition.",
        ("workers", "fit, s", "faster", "ms a task"),
    )
    first, per_task = 0.0, math.inf
    for workers in (1, 2):
        wall = measure("generate_and_fit", n, best_of=2, workers=workers).wall
        own = measure("empty_tasks", parts, best_of=2, workers=workers).wall / parts
        first, per_task = first or wall, min(per_task, own)
        table.add(str(workers), f"{wall:.2f}", f"{first / wall:.2f}×", f"{1e3 * own:.2f}")
    return table, per_task


class Passes(NamedTuple):
    """How often a mechanism asks for the records, and processor seconds of a row in a pass over kept ones."""

    count: int
    per_row: float


def passes_of(mechanism: str, n: int = 200_000) -> Passes:
    """Counted on records in memory, which go through the same reductions."""
    from curvedp.data.rows.blocked import BlockRows

    counted: list[float] = []
    plain = BlockRows.total

    def total(self: Any, reduction: Any, keep: bool) -> Any:
        start = time.process_time()
        result = plain(self, reduction, keep)
        counted.append(time.process_time() - start)
        return result

    BlockRows.total = total  # type: ignore[method-assign]
    try:
        model(mechanism).fit(*rows(n, 0))
    finally:
        BlockRows.total = plain  # type: ignore[method-assign]
    return Passes(len(counted), float(np.median(counted)) / n)


def model_table(per_row: float, per_task: float, passes: dict[str, Passes]) -> Table:
    """Where the time would go on 100 machines of 16 cores, from what was measured here."""
    machines, cores, partition, latency = 100, 1600, 10**6, 0.005
    joins = [machines]
    while joins[-1] > 1:
        joins.append(math.ceil(joins[-1] / FAN_IN))
    table = Table(
        "A model of 100 machines with 16 cores each",
        MODEL.format(
            read=1e6 * per_row,
            task=1e3 * per_task,
            cores=cores,
            latency=1e3 * latency,
            rows=partition,
            tasks=sum(joins),
            machines=machines,
            joins=sum(joins[1:]),
        ),
        ("rows", "mechanism", "passes", "reading, s", "later passes, s", "tasks, s", "tree, s", "in all, s"),
    )
    for mechanism, found in passes.items():
        for n in (10**8, 10**9, 10**10):
            parts = max(n // partition, cores)
            terms = (
                n * per_row / cores,
                (found.count - 1) * n * found.per_row / cores,
                (parts * FAN_IN / (FAN_IN - 1) + (found.count - 1) * sum(joins)) * per_task,
                found.count * math.log(machines, FAN_IN) * latency,
            )
            cells = (f"{term:.1f}" for term in (*terms, sum(terms)))
            table.add(f"{n:.0e}", mechanism, str(found.count), *cells)
    return table


MODEL = """Seconds = reading and first pass (n·{read:.2f} µs / {cores}) + later passes over kept rows
(n·c / {cores}) + tasks ({task:.2f} ms each: the scheduler is one process) + tree (passes·log₁₆
{machines}·{latency:.0f} ms). Partitions of {rows:.0e} rows, at least one per core: one task for each in the
first pass, which reads them. Every machine runs one worker of 16 threads: a later pass has one task for each
worker, which goes over all that it keeps, and {joins} that join their sums: {tasks}. The costs of a row
and of a task are those measured here, where client, scheduler and workers share two cores; the latency is
assumed. Nothing of this was measured on such a cluster."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=lambda text: int(float(text)))
    parser.add_argument("--persons", type=lambda text: int(float(text)))
    parser.add_argument("--child", nargs=3)
    options = parser.parse_args()
    if options.child:
        name, argument, workers = options.child
        child(name, argument, int(workers))
        return
    if options.rows:
        print(parquet_table(options.rows, best_of=2)[0].markdown())
        return
    if options.persons:
        print(persons_table(options.persons).markdown())
        return
    parquet, per_row = parquet_table(10**7, best_of=2)
    by_workers, per_task = workers_table()
    passes = {name: passes_of(name) for name in ("qop", "recentered")}
    passes["recentered, 40 passes"] = passes["recentered"]._replace(count=40)
    tables = [parquet, rows_table(), by_workers, persons_table(10**7), model_table(per_row, per_task, passes)]
    text = "\n".join(["# Scale", "", HEAD, "", *(table.markdown() for table in tables), TAIL, ""])
    (HERE / "scale.md").write_text(text)
    print(text)


HEAD = "Written by `python -m benchmarks.scale`. Two shared cores: read ratios before seconds."
TAIL = """What the model says: a pass over a billion rows takes seconds, and an iterative mechanism waits for
its records, not for the engine. One scheduler process hands out all tasks; run one worker per machine with as
many threads as cores, since every worker is a task of every pass. Only sums of d or d² numbers travel, so the
network does not appear."""


if __name__ == "__main__":
    main()
