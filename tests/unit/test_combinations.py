"""Every line of the table of combinations, tried: what it allows works, what it refuses costs nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from tests.catalogue import MECHANISMS, adjacencies_of, problem_for
from tests.combinations import Combination, markdown
from tests.combinations import combinations as lines

from curvedp import Budget, Ledger, PrivateLinearRegression, PrivateRidge, Schema, check, private_fit
from curvedp.analyses.explore import describe, private_bounds
from curvedp.analyses.scores import private_scores
from curvedp.analyses.search import PrivateSearch
from curvedp.data import Categorical, Numeric
from curvedp.errors import CurvedpError
from curvedp.mechanisms import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.problems.losses import Weighted
from curvedp.release.fit import PrivateStatistics

FEATURES = [frozenset(s) for s in chain(*(combinations(("unit", "weights"), k) for k in range(3)))]
QUICK = Recentered(Rule(rounds=6, first_rounds=3))
PERSONS, ROWS = 200, 3
NOT_CHARGED = ("exponential", "pure_lop", "input")  # for studies: no ledger takes them


def table() -> pd.DataFrame:
    random, n = np.random.default_rng(0), PERSONS * ROWS
    a, b = random.uniform(-1, 1, (2, n))
    person, w = np.repeat(np.arange(PERSONS), ROWS), random.uniform(0, 2, n)
    return pd.DataFrame({"a": a, "b": b, "y": 0.4 * a, "w": w, "person": person})


def schema(features: frozenset[str]) -> Schema:
    columns = [Numeric("a", -1, 1), Numeric("b", -1, 1), Numeric("y", -1, 1)]
    if "weights" in features:
        columns.append(Numeric("w", 0, 2))
    unit, weight = ("person" if "unit" in features else None), ("w" if "weights" in features else None)
    return Schema(columns, target="y", unit=unit, weight=weight)


def fit(data, features, ledger, **options):
    model = {"schema": schema(features), "mechanism": QUICK, "ledger": ledger, **options}
    return PrivateRidge(**model).fit(data)


def of_mechanism(name: str, features: frozenset[str], ledger: Ledger) -> None:
    problem = problem_for(name, ledger.state().adjacency)
    domain = replace(problem.domain, unit=ledger.state().unit, weighted="weights" in features)
    loss = Weighted(problem.loss) if domain.weighted else problem.loss
    problem, data = replace(problem, loss=loss, domain=domain), table()
    y = np.where(data["y"] > 0, 1.0, -1.0) if problem.loss.name.endswith("logistic") else data["y"].to_numpy()
    target = np.column_stack([y, data["w"] / 2]) if domain.weighted else y
    unit = data["person"].to_numpy() if "unit" in features else None
    private_fit(
        problem,
        data[["a", "b"]].to_numpy() / 2,
        target,
        unit=unit,
        budget=Budget(1.0, 1e-5),
        mechanism=MECHANISMS[name],
        ledger=None if name in NOT_CHARGED else ledger,
    )


def bounds(features, ledger):
    private_bounds(table(), ["a"], epsilon=1.0, unit=schema(features).unit, ledger=ledger)


def groups(features, ledger):
    data, own = table().assign(c="x"), schema(features)
    own = replace(own, columns=(*own.columns, Categorical("c", ("x", "z"))))
    rows = 2 if "unit" in features else None
    describe(data, own, epsilon=1.0, delta=1e-6, by=["c"], rows_up_to=rows, ledger=ledger)


def statistics(features, ledger):
    data, domain = table(), problem_for("statistics", "replace").domain
    domain = replace(domain, unit=ledger.state().unit, weighted="weights" in features)
    X, y = data[["a", "b"]].to_numpy() / 2, data["y"].to_numpy()
    unit = data["person"].to_numpy() if "unit" in features else None
    targets = np.column_stack([y, y]) if domain.weighted else y
    PrivateStatistics.release(X, targets, unit=unit, budget=Budget(1.0, 1e-6), domain=domain, ledger=ledger)


def free(features, ledger):
    model = fit(table(), features, ledger)
    model.refit(alpha=2.0, trust=1e9)
    model.path([1.0, 2.0])


def mapped(features, ledger, folder: Path):
    data = table()
    X = np.memmap(folder / "X.bin", np.float64, "w+", shape=(len(data), 2))
    X[:] = data[["a", "b"]]
    options = {"sample_weight": data["w"]} if "weights" in features else {}
    weight_max = 2.0 if "weights" in features else None
    model = PrivateRidge(
        bounds=(-1, 1), target_bounds=(-1, 1), mechanism=QUICK, ledger=ledger, weight_max=weight_max
    )
    model.fit(X, data["y"], unit=data["person"] if "unit" in features else None, **options)


def on_cluster(features, ledger):
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as workers, Client(workers):
        fit(dd.from_pandas(table(), npartitions=2), features, ledger)


def parquet(features, ledger, folder: Path):
    table().to_parquet(folder / "table.parquet", index=False)
    fit(schema(features).source(folder / "table.parquet", engine="dask"), features, ledger)


def score(features, ledger):
    model = fit(table(), features, None)
    private_scores(model, table(), epsilon=1.0, delta=1e-6, ledger=ledger)


def infer(features, ledger):
    PrivateLinearRegression(schema=schema(features), epsilon=5.0).fit(table()).conf_int()
    PrivateLinearRegression(schema=schema(features), ledger=ledger).fit(table())


def search(features, ledger):
    PrivateSearch(PrivateRidge(schema=schema(features)), {"alpha": [1.0, 2.0]}, ledger=ledger).fit(table())


TRIED = {
    "inference": lambda f, l, p: infer(f, l),
    "refit and path": lambda f, l, p: free(f, l),
    "search": lambda f, l, p: search(f, l),
    "scores": lambda f, l, p: score(f, l),
    "check": lambda f, l, p: check(schema(f), table(), epsilon=1.0, ledger=l),
    "describe": lambda f, l, p: describe(table(), schema(f), epsilon=1.0, delta=1e-6, ledger=l),
    "tables by group": lambda f, l, p: groups(f, l),
    "bounds": lambda f, l, p: bounds(f, l),
    "PrivateStatistics": lambda f, l, p: statistics(f, l),
    "array, data frame, sparse matrix or CSV file": lambda f, l, p: fit(table(), f, l),
    "memory map": lambda f, l, p: mapped(f, l, p),
    "Dask on one machine": lambda f, l, p: fit(dd.from_pandas(table(), npartitions=3), f, l),
    "Dask on a cluster": lambda f, l, p: on_cluster(f, l),
    "Parquet files by --engine dask": lambda f, l, p: parquet(f, l, p),
}


@pytest.mark.parametrize("features", FEATURES, ids=lambda f: "+".join(sorted(f)) or "plain")
@pytest.mark.parametrize("line", list(lines()), ids=lambda line: line.name)
def test_a_line_of_the_table_holds(line: Combination, features: frozenset, tmp_path) -> None:
    adjacency = adjacencies_of(line.name)[0] if line.kind == "mechanism" else "replace"
    unit = "person" if "unit" in features else None
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=1e3, delta=0.1, adjacency=adjacency, unit=unit)
    tried = TRIED.get(line.name) or (lambda f, l, p: of_mechanism(line.name, f, l))
    if line.allows(features):
        tried(features, ledger, tmp_path)
        assert ledger.state().charges > 0 or line.name in NOT_CHARGED
    else:
        with pytest.raises(CurvedpError) as refusal:
            tried(features, ledger, tmp_path)
        assert ledger.state().charges == 0
        assert len(str(refusal.value)) > 30  # a reason, and what to do


def test_the_page_shows_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "combinations.md").read_text("utf-8")
    assert markdown() in page
