"""Tables by group: without noise they are those of pandas; margins add up; refusals, suppression, outputs."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.catalogue import ADJACENCIES

from curvedp import Boolean, Budget, Categorical, Ledger, Numeric, Schema, describe
from curvedp.analyses.explore.describe import GroupPlan, queries
from curvedp.analyses.explore.description import Group, GroupedDescription, GroupSums
from curvedp.analyses.explore.noisy import ENOUGH, Z
from curvedp.analyses.explore.tallies import ALL, OTHER, TableLayout, row_parts, tallied
from curvedp.data.frames import person_parts
from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import Grid
from curvedp.privacy.budget import Neighbours
from curvedp.randomness import generator
from curvedp.release.door import Released

LOUD: dict[str, Any] = {"epsilon": 1e6, "delta": 0.5, "random_state": 1}  # next to no noise


@pytest.fixture
def noiseless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grid, "add", lambda grid, value, random, name="": value)


REGIONS, SEXES = ("north", "south"), ("female", "male")
COLUMNS = [
    Categorical("region", REGIONS),
    Boolean("sex", words=SEXES),
    Numeric("wage", 0, 100),
    Categorical("job", ("clerk", "farm", "other")),
    Numeric("age", 16, 90),
]


def schema(adjacency: str = "replace", **options: Any) -> Schema:
    return Schema(COLUMNS, "wage", adjacency, **options)


def people(n: int = 3_000, persons: int | None = None) -> pd.DataFrame:
    """Missing cells, undeclared levels and numbers beyond the bounds in every column."""
    random = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "region": random.choice(["north", "south", "west", None], n, p=[0.5, 0.4, 0.06, 0.04]),
            "sex": random.choice(["female", "male", "?"], n, p=[0.48, 0.48, 0.04]),
            "wage": np.where(random.random(n) < 0.1, np.nan, random.gamma(4, 12, n)),
            "job": random.choice(["clerk", "farm", "other", "x"], n, p=[0.5, 0.1, 0.3, 0.1]),
            "age": random.normal(45, 20, n).round(),
        }
    )
    if persons is not None:
        frame["who"] = np.sort(random.integers(0, persons, n))
    return frame


def expected(frame: pd.DataFrame, weights: np.ndarray) -> dict[tuple[str, ...], dict[tuple[str, str], float]]:
    """Every number of every group by its definition, each row with its weight."""
    w = pd.Series(weights)
    region = frame["region"].where(frame["region"].isin(REGIONS), OTHER).fillna(OTHER)
    sex = frame["sex"].where(frame["sex"].isin(SEXES), OTHER)
    found = {}
    for key in itertools.product((*REGIONS, OTHER, ALL), (*SEXES, OTHER, ALL)):
        inside = ((region == key[0]) | (key[0] == ALL)) & ((sex == key[1]) | (key[1] == ALL))
        own, each = frame[inside], w[inside]
        numbers = {("", "count"): each.sum(), ("", "share"): each.sum() / w.sum()}
        for name, low, high in (("wage", 0, 100), ("age", 16, 90)):
            there = own[name].notna()
            numbers[name, "missing"] = each[~there].sum() / each.sum()
            numbers[name, "mean"] = np.average(own[name][there].clip(low, high), weights=each[there])
        for level in ("clerk", "farm", "other"):
            numbers["job", f"share of {level}"] = each[own["job"] == level].sum() / each.sum()
        numbers["job", "missing"] = each[own["job"] == "x"].sum() / each.sum()
        found[key] = numbers
    return found


def numbers_of(group: Group) -> dict[tuple[str, str], float]:
    return {(column, name): number.value for column, name, number in group.statistics}


@pytest.mark.usefixtures("noiseless")
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_without_noise_the_numbers_are_those_of_pandas(adjacency):
    frame = people()
    found = describe(frame, schema(adjacency), by=["region", "sex"], **LOUD)
    wanted = expected(frame, np.ones(len(frame)))
    groups = found.tables["records"]
    assert groups.keys() == wanted.keys()
    for key, numbers in wanted.items():
        assert numbers_of(groups[key]) == pytest.approx(numbers, rel=1e-6, abs=1e-6), key


@pytest.mark.usefixtures("noiseless")
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_persons_and_rows_count_what_they_say(adjacency):
    """Of persons each row counts 1/k; of rows 1, and m/k of those with more than m."""
    frame = people(persons=900)
    found = describe(frame, schema(adjacency, unit="who"), by=["region", "sex"], rows_up_to=3, **LOUD)
    k = frame.groupby("who")["who"].transform("size").to_numpy()
    assert k.max() > 3 and (k < 3).any()
    for counted, weights in (("persons", 1 / k), ("rows", np.minimum(1.0, 3 / k))):
        for key, numbers in expected(frame, weights).items():
            told = numbers_of(found.tables[counted][key])
            assert told == pytest.approx(numbers, rel=5e-4, abs=1e-4), (counted, key)  # parts are
    rows = found.tables["rows"][ALL, ALL]
    assert abs(rows["wage"]["mean"].value - found[ALL, ALL]["wage"]["mean"].value) > 0.01
    assert rows.count.value == pytest.approx(np.minimum(1.0, 3 / k).sum(), abs=0.1)
    alone = describe(frame, schema(adjacency, unit="who"), rows_up_to=3, **LOUD)
    assert alone.by == () and alone.tables["rows"][()].count.value == pytest.approx(rows.count.value, abs=0.1)


def test_a_row_counts_one_of_m_and_a_person_one_at_most():
    codes = np.repeat([0, 1, 2, 3, -1], [1, 3, 7, 70_000, 2])
    for m in (1, 3, 7, 10, 65_536):
        each = row_parts(person_parts(codes), m)
        sums = np.bincount(codes[codes >= 0], each[codes >= 0])
        assert sums.max() <= 1.0 and np.array_equal(each * 2**16, np.round(each * 2**16))
        assert each[-1] == 0 and each[0] == (2**16 // m) / 2**16
        assert sums == pytest.approx(np.minimum(np.array([1, 3, 7, 70_000]) / m, 1.0), rel=1.1 * m / 2**16)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("unit", [None, "who"])
def test_margins_and_the_total_are_exactly_the_sums_of_cells(adjacency, unit):
    frame = people(persons=2_000)
    made = describe(
        frame, schema(adjacency, unit=unit), by=["sex", "region"], epsilon=0.7, rows_up_to=4 if unit else None
    )
    for groups in made.tables.values():
        for (sex, region), group in groups.items():
            cells = [
                other.count.value
                for key, other in groups.items()
                if ALL not in key and sex in (ALL, key[0]) and region in (ALL, key[1])
            ]
            assert group.count.value == sum(cells)
    if adjacency == "replace":
        assert (
            made.everyone.count.value
            == made.everyone.count.low
            == (3_000 if unit is None else frame["who"].nunique())
        )


def oracle(sums: GroupSums, K: int) -> tuple[np.ndarray, np.ndarray]:
    """(estimate, covariance/σ²) of all cells by least squares on the null space of the constraints."""
    sizes = sums.layout.cell_sizes
    width, starts = sum(sizes), np.cumsum([0, *sizes])
    rows = []
    for g in range(K):
        for c in range(1, len(sizes)):
            row = np.zeros((K, width))
            row[g, starts[c] : starts[c + 1]], row[g, 0] = 1.0, -1.0
            rows.append((row.ravel(), 0.0))
    if sums.total is not None:
        row = np.zeros((K, width))
        row[:, 0] = 1.0
        rows.append((row.ravel(), sums.total))
    A, b = np.array([row for row, _ in rows]), np.array([value for _, value in rows])
    y = sums.values["cells"].ravel()
    pinned = np.linalg.pinv(A)
    return (y + pinned @ (b - A @ y)).reshape(K, width), np.eye(y.size) - pinned @ A


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_counts_are_the_least_squares_ones_with_their_deviations(adjacency):
    layout = TableLayout(tuple(COLUMNS[:4]), Neighbours(adjacency), ("region", "sex"))
    random, K = np.random.default_rng(0), 9
    cells = random.normal(300, 9, (K, sum(layout.cell_sizes)))
    values = {"cells": cells, "sums": random.normal(0, 9, (K, 1)), "squares": np.zeros((K, 1))}
    total = 2_700.0 if adjacency == "replace" else None
    sums = GroupSums(layout, values, {"cells": 9.0, "sums": 9.0, "squares": 5.0}, total=total)
    estimate, covariance = oracle(sums, K)
    assert sums.counts.counts == pytest.approx(estimate[:, 0], abs=1e-5)
    width = cells.shape[1]
    for key, group in sums.groups().items():
        inside = np.zeros((3, 3), bool)
        inside[
            slice(None) if key[0] == ALL else (*REGIONS, OTHER).index(key[0]),
            slice(None) if key[1] == ALL else (*SEXES, OTHER).index(key[1]),
        ] = True
        a = np.zeros((K, width))
        a[inside.ravel(), 0] = 1.0
        deviation = 9.0 * math.sqrt(max(a.ravel() @ covariance @ a.ravel(), 0.0))
        assert group.count.value == pytest.approx(estimate[inside.ravel(), 0].sum(), abs=1e-4)
        assert group.count.high - group.count.value == pytest.approx(Z * deviation, abs=1e-4)
        N, farm = group.count.value, estimate[inside.ravel(), 4].sum()
        assert group["job"]["share of farm"].value == pytest.approx(farm / N, abs=1e-6)
        b = np.zeros((K, width))
        b[inside.ravel(), 4] = 1.0
        lowest = group["job"]["share of farm"].low
        gap, chance = b - lowest * a, (N + 0.5 * deviation) * lowest * (1 - lowest)
        reach = Z * math.sqrt(81.0 * gap.ravel() @ covariance @ gap.ravel() + chance)
        assert farm - lowest * N == pytest.approx(reach, rel=1e-5)  # an end of Fieller's interval


def test_groups_cost_what_one_does():
    """Noise does not grow with the number of groups; rows beside persons cost a factor of √2."""

    def scales(by: tuple[str, ...], **more: Any) -> dict[str, float]:
        neighbours = Neighbours("replace", "who" if more else None)
        layout = TableLayout(
            tuple(c for c in COLUMNS if c.name in {"wage", "job", *by}), neighbours, by, **more
        )
        return {
            name: grid.sigma for name, grid in GroupPlan.calibrated(layout, Budget(1.0, 1e-6)).grids.items()
        }

    one, many, rows = scales(()), scales(("region", "sex")), scales(("region",), rows_up_to=5)
    assert many == pytest.approx(one, rel=1e-4)
    assert rows == pytest.approx({name: math.sqrt(2) * sigma for name, sigma in one.items()}, rel=1e-4)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_sensitivities_are_those_of_the_worst_records(adjacency):
    layout = TableLayout((COLUMNS[0], *COLUMNS[2:4]), Neighbours(adjacency), ("region",), quartiles=True)
    found = queries(layout)

    def added(region: int, wage: float | None, job: int) -> dict[str, np.ndarray]:
        block, x = np.eye(3)[region], 0.0 if wage is None else wage
        there = float(wage is not None)
        places = np.zeros((4, 3))
        if wage is not None:
            places[:, int(wage) + 1] = 1.0
        return {
            "cells": np.kron(block, [1.0, there, 1.0 - there, *np.eye(4)[job]]),
            "sums": np.kron(block, [x]),
            "squares": np.kron(block, [there * (x * x - 0.5)]),
            "nodes": np.kron(block, [*places.ravel(), 2.0 * (1.0 - there)]),
        }

    records = [added(*z) for z in itertools.product(range(3), (-1.0, 0.0, 1.0, None), range(4))]
    for part, query in found.items():
        rows = np.array([record[part] for record in records])
        apart = rows[:, None] - rows[None, :] if adjacency == "replace" else rows
        assert np.linalg.norm(apart, axis=-1).max() == pytest.approx(query.sensitivity, rel=0.01), part


def test_quartiles_of_groups_are_released_on_request_and_hold():
    frame = people(20_000)
    found = describe(frame, schema(), by=["sex"], columns=["age", "wage"], quartiles=True, epsilon=3.0)
    plain = describe(frame, schema(), by=["sex"], columns=["age", "wage"], epsilon=3.0)
    assert set(plain["male"]["wage"]) == {"missing", "mean"} and set(plain["male"].columns) == {"age", "wage"}
    for sex in SEXES:
        cells = frame.loc[frame["sex"] == sex, "wage"].dropna().clip(0, 100)
        for name, q in (("lower_quartile", 0.25), ("median", 0.5), ("upper_quartile", 0.75)):
            told = found[sex]["wage"][name]
            assert told.resolved and told.low - 2 <= cells.quantile(q) <= told.high + 2
            assert told.high - told.low < 15


def test_what_noise_hides_is_suppressed_with_a_reason():
    frame = people()
    found = describe(frame, schema("add_remove"), by=["region", "job"], epsilon=0.05, random_state=1)
    few = found["south", "farm"]
    assert few.suppressed.startswith("too few for the noise") and not few.count.resolved
    assert not any(number.resolved for column in few.columns.values() for number in column.values())
    deviation = (few.count.high - few.count.value) / Z
    for group in found.tables["records"].values():
        if group.count.high - group.count.value == pytest.approx(few.count.high - few.count.value):
            assert bool(group.suppressed) == (group.count.value <= ENOUGH * deviation)
    text = " ".join(str(found).split())
    assert "suppressed" in text and "at most" in text and "noise and chance of the sample" in text
    assert "groups of no declared level" in text


def test_released_numbers_alone_decide_what_is_suppressed():
    """The same noisy sums of two tables give the same words: nothing else is looked at."""
    source = tallied(people(), schema(), by=("region",))
    plan = GroupPlan.calibrated(source.layout, Budget(0.5, 1e-6))
    sums = plan.release(source, generator(4))
    told = GroupedDescription.of(Released(sums, plan.guarantee))
    again = GroupSums(sums.layout, sums.values, sums.scales, total=sums.public_count)
    assert again.groups() == told.tables["records"]
    assert vars(sums).keys() == {"layout", "values", "scales", "public_count"}


def test_a_table_a_document_and_a_notebook():
    found = describe(people(persons=900), schema(unit="who"), by=["region"], rows_up_to=3, **LOUD)
    table = pd.DataFrame(found.table())
    assert list(table.columns)[:4] == ["region", "counted", "column", "statistic"]
    one = table.query("region == 'south' and counted == 'rows' and column == 'wage' and statistic == 'mean'")
    assert one["value"].item() == found.tables["rows"]["south",]["wage"]["mean"].value
    document = json.loads(json.dumps(found.to_dict()))
    assert document["by"] == ["region"] and document["rows_up_to"] == 3
    assert {name: len(groups) for name, groups in document["tables"].items()} == {"persons": 4, "rows": 4}
    assert document["tables"]["rows"][1]["levels"] == ["north"]
    html = found._repr_html_()
    assert "persons: mean" in html and "rows: mean" in html and "(missing or other)" in html
    text = " ".join(str(found).split())
    assert "Every person counts once" in text and "a person with more than 3 count as 3 in all" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": ["wage"]}, "'wage' is no category.*declare a column of levels"),
        ({"by": ["nobody"]}, "no column 'nobody' is declared"),
        ({"by": ["who"]}, "no column 'who' is declared"),
        ({"by": ["sex", "sex"]}, "'sex' is named twice"),
        ({"by": ["sex"], "columns": ["sex"]}, "'sex' is named twice"),
        ({"by": "sex"}, "must be a list of names"),
        ({"columns": ["who"]}, "no column 'who' is declared"),
        ({"by": ["sex"], "rows_up_to": 0}, "whole number from 1"),
        ({"by": ["sex"], "rows_up_to": 2.5}, "whole number from 1"),
        ({"quartiles": True}, "are those of groups"),
        ({"by": ["region"], "epsilon": 1e-3}, "fewer than"),
    ],
    ids=str,
)
def test_what_was_not_declared_is_refused_before_the_charge(options, words, tmp_path):
    ledger = Ledger.create(tmp_path / "budget.db", epsilon=3.0, delta=1e-5, unit="who")
    with pytest.raises(InvalidInput, match=words):
        describe(people(persons=50), schema(unit="who"), **{"epsilon": 1.0, "ledger": ledger, **options})
    assert ledger.state().charges == 0
    describe(people(persons=900), schema(unit="who"), by=["sex"], epsilon=1.0, ledger=ledger)
    assert [charge.label for charge in ledger.history()] == ["describe"]


def test_rows_need_a_unit_and_too_many_groups_are_refused():
    with pytest.raises(InvalidInput, match="name a unit"):
        describe(people(), schema(), by=["sex"], rows_up_to=3, epsilon=1.0)
    one = schema(unit="who", rows_per_person="one")
    with pytest.raises(InvalidInput, match="all of its rows"):
        describe(people(persons=900), one, by=["sex"], rows_up_to=3, epsilon=1.0)
    many = Schema([Categorical(name, tuple(map(str, range(150)))) for name in "ab"])
    with pytest.raises(InvalidInput, match="22,801 groups"):
        describe({"a": ["1"], "b": ["2"]}, many, by=["a", "b"], epsilon=1.0)
    taken = Schema([Categorical("a", (ALL, "x"))])
    with pytest.raises(InvalidInput, match="rename it"):
        describe({"a": ["x"]}, taken, by=["a"], epsilon=1.0)


def test_every_container_gives_the_same_groups(tmp_path):
    import dask.dataframe as dd
    import polars as pl

    frame = people(persons=900)
    at, asked = schema(unit="who"), {"by": ["region"], "rows_up_to": 3, "epsilon": 1.0, "random_state": 5}
    wanted = describe(frame, at, **asked).to_dict()["tables"]
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    tables = (pl.from_pandas(frame), tmp_path / "t.csv", tmp_path / "t.parquet", dd.from_pandas(frame, 1))
    for table in tables:
        assert describe(table, at, **asked).to_dict()["tables"] == wanted, type(table)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_table_of_nobody_is_released_like_any_other(adjacency):
    source = tallied(people().iloc[:0], schema(adjacency), by=("sex",), quartiles=True)
    plan = GroupPlan.calibrated(source.layout, Budget(1.0, 1e-6))
    sums = plan.release(source, generator(0))
    assert GroupedDescription.of(Released(sums, plan.guarantee))["male"].suppressed


def test_only_the_columns_asked_for_are_described():
    frame = people()
    less = describe(frame, schema(), columns=["wage"], epsilon=1.0)
    assert [column.name for column in less] == ["wage"]
    assert less["wage"].mean.noise < 0.75 * describe(frame, schema(), epsilon=1.0)["wage"].mean.noise
