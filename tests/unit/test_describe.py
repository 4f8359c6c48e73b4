"""A private description: its sums, what is derived from them, the coverage of its intervals, refusals."""

from __future__ import annotations

import doctest
import json
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
from causaldata import cps_mixtape
from scipy import sparse

from curvedp import Budget, Ledger
from curvedp.analyses.explore import describe
from curvedp.analyses.explore.describe import DescribePlan
from curvedp.analyses.explore.description import Description, pooled_total, valid_correlations
from curvedp.analyses.explore.noisy import (
    Bins,
    CellCounts,
    Estimate,
    LevelCounts,
    Z,
    quantile,
    ratio,
    tree,
)
from curvedp.analyses.explore.tallies import TalliedTable, tallied
from curvedp.data import Categorical, Numeric, Schema, delimited
from curvedp.errors import BudgetExceeded, DataError, InvalidInput
from curvedp.privacy.budget import Neighbours
from curvedp.randomness import generator
from curvedp.release.door import Released

SCHEMA = Schema(
    [Numeric("age", 0, 100), Categorical("union", ["no", "yes"]), Numeric("wage", 0, 50.5)],
    "wage",
    "add_remove",
)
QUARTILES = {"lower_quartile": 0.25, "median": 0.5, "upper_quartile": 0.75}


def people(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    """With 10 % of ages missing, some beyond the bounds, and undeclared levels."""
    random = np.random.default_rng(seed)
    age = np.where(random.random(n) < 0.1, np.nan, random.normal(45, 20, n))
    union = random.choice(np.array(["no", "yes", "maybe"]), n, p=[0.6, 0.3, 0.1])
    wage = np.clip(random.gamma(4, 4, n) + 0.1 * np.nan_to_num(age, nan=50.0), 0, 50.5)
    return {"age": age, "union": union, "wage": wage}


def truth(table: dict[str, np.ndarray], schema: Schema) -> dict[tuple[str, str], float]:
    """Every statistic without noise, by the definitions."""
    n, found, encoded = len(next(iter(table.values()))), {}, {}
    found["", "count"] = float(n)
    for column in schema.columns:
        cells = table[column.name]
        if isinstance(column, Numeric):
            there = np.clip(cells[~np.isnan(cells)], column.low, column.high)
            found[column.name, "missing"] = 1 - len(there) / n
            found[column.name, "mean"], found[column.name, "deviation"] = there.mean(), there.std()
            for name, q in QUARTILES.items():
                found[column.name, name] = np.quantile(there, q, method="inverted_cdf")
            middle = (column.low + column.high) / 2
            encoded[column.name] = np.clip(np.nan_to_num(cells, nan=middle), column.low, column.high)
        else:
            found[column.name, "missing"] = 1 - np.isin(cells, column.levels).mean()
            for level in column.levels:
                found[column.name, f"share of {level}"] = (cells == level).mean()
    for a, x in encoded.items():
        for b, y in encoded.items():
            if a != b:
                found[a, f"correlation with {b}"] = np.corrcoef(x, y)[0, 1]
    return {key: float(value) for key, value in found.items()}


class TestBins:
    def test_leaves_cover_the_bounds_and_nan_is_the_last_cell(self):
        for low, high in [(0.0, 1.5), (-3.25, 1e9), (1.0, 1.0 + 1e-12), (-1e150, 1e150), (0.0, 5e-324)]:
            bins = Bins.between(low, high)
            cells = bins.cells(np.array([low, high, -np.inf, np.inf, np.nan]))
            assert cells.tolist()[::2][:2] == [0, 0] and cells[4] == bins.size
            assert cells[1] == cells[3] <= bins.size - 1
            assert bins.edges[0] == low and (bins.edges[-1] >= high * (1 - 1e-12) or high < 1e-100)

    @pytest.mark.parametrize(("low", "high"), [(0, 120), (1, 16), (0, 1), (-7, 99_999), (0, 10**9)])
    def test_between_whole_bounds_wide_bars_hold_equally_many_whole_numbers(self, low, high):
        bins = Bins.between(float(low), float(high))
        assert 128 < bins.size <= 256 and math.log2(bins.width).is_integer()
        assert 8 <= len(bins.bars) <= 32 or high - low < 8
        widths = {end - start for start, end in map(bins.ends, bins.bars[:-1])}
        assert len(widths) == 1 and (min(widths).is_integer() or high - low < 8)
        values = np.arange(low, min(high, low + 5000) + 1, dtype=float)
        starts = bins.start + bins.width * bins.cells(values)
        assert np.all(starts <= values) and np.all(values < starts + bins.width)

    def test_edges_and_cells_agree(self):
        bins = Bins.between(0.3, 7.7)
        values = np.random.default_rng(0).uniform(0.3, 7.7, 10_000)
        cells = bins.cells(values)
        assert np.all(bins.edges[cells] <= values + 1e-12) and np.all(values <= bins.edges[cells + 1] + 1e-12)


class TestCells:
    def test_the_histogram_is_the_least_squares_fit_with_its_covariance(self):
        size, sigma = 150, 3.0
        random = np.random.default_rng(1)
        truth = random.integers(0, 50, size + 1).astype(float)
        A = tree(size)
        assert A.sum(axis=0).tolist() == [4.0] * size + [2.0]
        noisy = A @ truth + sigma * random.normal(size=len(A))
        cells = CellCounts.of_tree(noisy, size, sigma)
        fit, *_ = np.linalg.lstsq(A, noisy, rcond=None)
        np.testing.assert_allclose(cells.counts, fit, atol=1e-8)
        covariance = sigma**2 * np.linalg.inv(A.T @ A)
        np.testing.assert_allclose(cells.root @ cells.root.T, covariance, atol=1e-8)

    @pytest.mark.parametrize("public", [None, 700.0])
    def test_agreed_counts_are_the_joint_least_squares_fit(self, public):
        """Two columns of one table as one linear model with the constraint that both count every record."""
        random, sigma = np.random.default_rng(2), [2.0, 3.0]
        designs = [np.eye(4), tree(130)]
        noisy = [random.normal(100, 20, len(A)) for A in designs]
        columns = [
            LevelCounts.of_levels(noisy[0], sigma[0]),
            CellCounts.of_tree(noisy[1], 130, sigma[1]),
        ]
        total, deviation = pooled_total(columns) if public is None else (public, 0.0)
        agreed = [column.given_total(total, deviation) for column in columns]
        sizes = [A.shape[1] for A in designs]
        weights = np.block(
            [
                [designs[0] / sigma[0], np.zeros((len(designs[0]), sizes[1]))],
                [np.zeros((len(designs[1]), sizes[0])), designs[1] / sigma[1]],
            ]
        )
        ones = [np.concatenate([np.ones(sizes[0]), np.zeros(sizes[1])])]
        ones.append(1.0 - ones[0])
        rows = [ones[0] - ones[1]] if public is None else ones
        values = [0.0] if public is None else [public, public]
        H, C = weights.T @ weights, np.array(rows)
        kkt = np.block([[H, C.T], [C, np.zeros((len(rows), len(rows)))]])
        score = weights.T @ np.concatenate([n / s for n, s in zip(noisy, sigma, strict=True)])
        joint = np.linalg.solve(kkt, np.concatenate([score, values]))[: sum(sizes)]
        covariance = np.linalg.inv(kkt)[: sum(sizes), : sum(sizes)]
        np.testing.assert_allclose(np.concatenate([a.counts for a in agreed]), joint, rtol=1e-8, atol=1e-7)
        levels, tree_cells = agreed
        np.testing.assert_allclose(tree_cells.root @ tree_cells.root.T, covariance[4:, 4:], atol=1e-7)
        for column, own in ((levels, covariance[:4, :4]), (tree_cells, covariance[4:, 4:])):
            found = [column.of_cell(cell) for cell in range(len(own))]
            np.testing.assert_allclose(found, np.column_stack([np.diag(own), own.sum(axis=1)]), atol=1e-7)
            assert column.total_deviation == pytest.approx(math.sqrt(max(own.sum(), 0.0)), abs=1e-3)

    def test_long_ranges_have_less_noise_than_as_many_leaves(self):
        cells = CellCounts.of_tree(np.zeros(len(tree(256))), 256, 2.0)  # four widths: 2 for 1 of a flat one
        half = np.concatenate([np.full(128, 0.5), np.full(128, -0.5), [0.0]])
        assert float(cells.deviation(half)) < 0.45 * 0.5 * math.sqrt(256)


class TestQuantiles:
    def noisy(self, values: np.ndarray, bins: Bins, sigma: float, seed: int) -> CellCounts:
        exact = np.bincount(bins.cells(values), minlength=bins.size + 1)
        noise = sigma * np.random.default_rng(seed).normal(size=len(tree(bins.size)))
        return CellCounts.of_tree(tree(bins.size) @ exact + noise, bins.size, sigma)

    def test_without_noise_they_are_the_quantiles_to_a_leaf(self):
        values, bins = np.random.default_rng(0).normal(5, 1, 9999), Bins.between(0.0, 10.1)
        cells = self.noisy(values, bins, 1e-9, 0)
        for q in (0.1, 0.25, 0.5, 0.9):
            found, exact = quantile(cells, bins, q), np.quantile(values, q, method="inverted_cdf")
            assert abs(found.value - exact) < bins.width and found.low <= exact <= found.high
            assert found.high - found.low <= 2.001 * bins.width

    def test_they_cover_and_increase(self):
        values, bins = np.random.default_rng(1).gamma(2, 3, 3000), Bins.between(0.0, 60.5)
        missed = 0
        for seed in range(300):
            cells = self.noisy(values, bins, 40.0, seed)
            found = [quantile(cells, bins, q) for q in (0.25, 0.5, 0.75)]
            assert found[0].value <= found[1].value <= found[2].value
            assert all(f.low <= f.value <= f.high for f in found)
            exact = np.quantile(values, 0.5, method="inverted_cdf")
            missed += not found[1].low <= exact <= found[1].high
        assert missed <= 0.05 * 300 + 3 * math.sqrt(300 * 0.05 * 0.95)

    def test_intervals_for_a_quarter_of_the_noise_fail(self):
        """The bug that the test above would see; to the edges of leaves, half of the noise nearly holds."""
        bins = Bins.between(0.0, 255.0)
        values = np.repeat(np.arange(256.0), 4)
        missed = 0
        for seed in range(300):
            cells = self.noisy(values, bins, 20.0, seed)
            found = quantile(replace(cells, root=cells.root / 4), bins, 0.5)
            missed += not found.low <= 127.0 <= found.high
        assert missed > 0.05 * 300 + 3 * math.sqrt(300 * 0.05 * 0.95)

    def test_between_whole_bounds_they_are_whole_numbers_where_a_leaf_holds_one(self):
        values, bins = np.random.default_rng(2).binomial(80, 0.5, 5000).astype(float), Bins.between(0.0, 80.0)
        found = [quantile(self.noisy(values, bins, 5.0, seed), bins, 0.5).value for seed in range(20)]
        assert found == [40.0] * 20

    def test_nothing_but_noise_leaves_everything_open(self):
        bins = Bins.between(0.0, 10.5)
        found = quantile(self.noisy(np.empty(0), bins, 50.0, 0), bins, 0.5)
        assert (found.low, found.high, found.resolved) == (0.0, 10.5, False)


class TestEstimates:
    def test_a_ratio_is_covered_95_times_of_100_even_where_it_is_far_from_normal(self):
        random, covered = np.random.default_rng(3), 0
        covariance = np.array([[25.0, 6.0], [6.0, 9.0]])
        for top, bottom in random.multivariate_normal([4.0, 10.0], covariance, 4000):
            found = ratio(top, bottom, (25.0, 9.0, 6.0), (-100.0, 100.0))
            covered += found.low <= 0.4 <= found.high
        assert 0.94 < covered / 4000 < 0.97

    def test_what_is_cut_keeps_the_length_of_its_interval(self):
        assert Estimate.within(-0.2, -0.3, -0.1, (0.0, 1.0)) == Estimate(0.0, 0.0, pytest.approx(0.1))
        assert Estimate.within(0.5, 0.2, 0.8, (0.0, 1.0)).resolved is False

    def test_words_have_the_digits_of_the_noise(self):
        assert Estimate(12345.678, 12300.0, 12400.0).words() == "12,346 ±54"
        assert Estimate(0.123456, 0.12, 0.1263).words(0.01, " %") == "12.35 ±0.35 %"
        assert Estimate(190_512.0, 188_600.0, 192_424.0).words() == "190,500 ±1,900"
        assert Estimate(-0.00001, -0.2, 0.2).words() == "0.00 ±0.20"
        assert Estimate(20433.0, 20433.0, 20433.0).words() == "20,433"
        assert Estimate(1.0, 0.0, 9.0, resolved=False).words() == "not resolved"
        assert Estimate(12345.678, 12300.0, 12400.0).interval() == "12,300 to 12,400"

    def test_a_matrix_becomes_a_correlation_matrix_within_its_intervals(self):
        r = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
        reach = np.array([[0, 0.05, 1.9], [0.05, 0, 0.05], [1.9, 0.05, 0]])
        found = valid_correlations(r, np.clip(r - reach, -1, 1), np.clip(r + reach, -1, 1))
        assert np.linalg.eigvalsh(found)[0] > -1e-9 and np.allclose(np.diag(found), 1.0)
        assert abs(found[0, 1] - 0.9) < 0.051 and found[0, 2] > 0.44  # the uncertain entry gives way
        sound = np.array([[1.0, 0.3], [0.3, 1.0]])
        np.testing.assert_allclose(valid_correlations(sound, sound - 0.1, np.minimum(sound + 0.1, 1)), sound)


class TestTallies:
    @pytest.mark.parametrize("kind", ["csv", "pandas", "polars", "dask", "rows"])
    def test_every_entrance_gives_the_same_sums(self, kind, tmp_path, monkeypatch):
        table = people(9000)
        frame = pd.DataFrame(table)
        everything = SCHEMA.with_target(None)
        monkeypatch.setattr(delimited, "CHUNK_ROWS", 2000)
        frame.to_csv(tmp_path / "data.csv", index=False)
        given = {
            "csv": tmp_path / "data.csv",
            "pandas": frame,
            "polars": pl.DataFrame(table),
            "dask": dd.from_pandas(frame, npartitions=3),
            "rows": frame.to_numpy(dtype=object).tolist(),
        }[kind]
        schema = everything if kind in ("encoded", "rows") else SCHEMA
        found = tallied(given, schema).sums()
        x = np.clip(np.nan_to_num(table["age"], nan=50.0), 0, 100) / 50 - 1
        y = table["wage"] / 25.25 - 1
        present = table["age"][~np.isnan(table["age"])]
        np.testing.assert_allclose(found["sums"], [x.sum(), y.sum()], atol=1e-6)
        squares = [x @ x - 0.5 * len(present), y @ y - 0.5 * 9000]
        np.testing.assert_allclose([*found["squares"], *found["pairs"]], [*squares, x @ y], atol=1e-6)
        counts = [np.sum(table["union"] == level) for level in ("no", "yes", "maybe")]
        assert found["levels"].tolist() == counts
        bins = Bins.between(0.0, 100.0)
        edges = bins.start + bins.width * np.arange(bins.size + 1)
        expected = np.histogram(np.clip(present, 0, 100), edges)[0]
        assert found["nodes"][: bins.size].tolist() == expected.tolist()
        assert found["nodes"][bins.nodes - 1] == 2 * (9000 - len(present))

    def test_sparse_matrices_and_arrays(self):
        dense = np.random.default_rng(0).binomial(1, 0.2, (5000, 3)) * 0.5
        schema = Schema([Numeric(f"x{j}", -1, 1) for j in range(3)])
        a, b = (tallied(X, schema).sums() for X in (dense, sparse.csr_array(dense)))
        for part in ("sums", "squares", "pairs"):
            np.testing.assert_allclose(a[part], b[part])
        assert a["nodes"].tolist() == b["nodes"].tolist()


class TestDescribe:
    @pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
    def test_at_a_large_epsilon_it_is_the_truth(self, adjacency):
        table, schema = people(4000), replace(SCHEMA, adjacency=adjacency)
        found = describe(table, schema, epsilon=1e6, delta=0.1, random_state=0)
        exact = truth(table, schema)
        rows = found.table()
        assert len(rows["value"]) == len(exact) - 1  # a correlation is listed once
        for column, name, value in zip(rows["column"], rows["statistic"], rows["value"], strict=True):
            leaf = 0.5 if name in QUARTILES else 0.0
            assert abs(value - exact[column, name]) <= leaf + 2e-3 * max(abs(exact[column, name]), 1.0), name
        bars = found["age"].histogram
        assert sum(bar.count.value for bar in bars) == pytest.approx(
            4000 * (1 - exact["age", "missing"]), rel=1e-3
        )
        assert found.privacy.private is False and found.privacy.theorem == "(D-1)"

    def test_the_charge_is_one_and_comes_first(self, tmp_path):
        ledger = Ledger.create(tmp_path / "b.db", epsilon=1.0, delta=1e-5, adjacency="add_remove")
        describe(people(500), SCHEMA, epsilon=0.7, ledger=tmp_path / "b.db")
        assert [(c.mechanism, c.epsilon, c.delta) for c in ledger.history()] == [("describe", 0.7, 1e-6)]
        assert ledger.history()[0].mu > 0  # Gaussian throughout
        with pytest.raises(BudgetExceeded):
            describe(people(500), SCHEMA, epsilon=0.9, ledger=ledger)

    @pytest.mark.parametrize(
        ("change", "options", "error", "words"),
        [
            ({}, {"delta": 0.0}, InvalidInput, "delta > 0"),
            ({}, {"epsilon": -1.0}, InvalidInput, "epsilon"),
            ({"age": None}, {}, DataError, "no column 'age'"),
            ({"wage": None}, {}, DataError, "no column 'wage'"),
            ({"age": pd.date_range("2020", periods=50)}, {}, DataError, "dates"),
        ],
    )
    def test_what_is_publicly_wrong_is_refused_before_the_charge(
        self, tmp_path, change, options, error, words
    ):
        ledger = Ledger.create(tmp_path / "b.db", epsilon=1.0, delta=1e-5, adjacency="add_remove")
        table = {k: v for k, v in {**people(50), **change}.items() if v is not None}
        for given in (pd.DataFrame(table), self.written(table, tmp_path)):
            if given is not None and not ("dates" in words and isinstance(given, Path)):
                with pytest.raises(error, match=words):
                    describe(given, SCHEMA, **{"epsilon": 0.5, "ledger": ledger, **options})
        assert ledger.history() == []

    @staticmethod
    def written(table, folder: Path) -> Path:
        pd.DataFrame(table).to_csv(folder / "t.csv", index=False)
        return folder / "t.csv"

    @pytest.mark.parametrize("n", [0, 1])
    def test_a_private_number_of_rows_refuses_nothing(self, n):
        table = {name: cells[:n] for name, cells in people(5).items()}
        found = describe(table, SCHEMA, epsilon=0.1)
        assert not found["wage"].median.resolved and np.isnan(found.correlations.values[0, 1])
        assert json.dumps(found.to_dict()) and str(found) and found._repr_html_()

    def test_a_public_number_of_rows_that_the_noise_would_hide_is_refused_before_the_charge(self, tmp_path):
        schema = replace(SCHEMA, adjacency="replace")
        ledger = Ledger.create(tmp_path / "b.db", epsilon=1.0, delta=1e-5)
        plan = DescribePlan.calibrated(tallied(people(5), schema).layout, Budget(0.5, 1e-6))
        few = people(plan.fewest_rows - 1)
        for table in (few, self.written(few, tmp_path)):
            with pytest.raises(InvalidInput, match=f"fewer than {plan.fewest_rows} rows"):
                describe(table, schema, epsilon=0.5, ledger=ledger)
        assert ledger.history() == []
        enough = people(plan.fewest_rows)
        found = describe(self.written(enough, tmp_path), schema, epsilon=0.5, ledger=ledger)
        assert found.count.value == plan.fewest_rows and len(ledger.history()) == 1

    @pytest.mark.parametrize("columns", [SCHEMA.columns[:1], SCHEMA.columns[1:2], SCHEMA.columns[1:]])
    def test_few_columns(self, columns):
        found = describe(people(3000), Schema(columns), epsilon=1.0)
        assert [column.name for column in found] == [column.name for column in columns]
        assert len(found.correlations.pairs) == 0 and found.count.value == 3000 == found.count.high
        assert sum(found.privacy.parameters[f"sigma_{p}"] > 0 for p in ("levels", "nodes") if
                   f"sigma_{p}" in found.privacy.parameters) == len({type(c) for c in columns})  # fmt: skip

    def test_names_are_shown_as_they_are_and_escaped(self):
        schema = Schema([Categorical("a<b>[red]", ["<i>", "&"]), Numeric("x", 0, 1)], adjacency="add_remove")
        found = describe({"a<b>[red]": ["<i>"] * 50, "x": [0.5] * 50}, schema, epsilon=1.0)
        assert "a<b>[red]" in str(found) and "<i>" in str(found)
        html = found._repr_html_()
        assert "a&lt;b&gt;[red]" in html and "<i>" not in html and "&lt;i&gt;" in html

    def test_a_frame_can_be_made_of_it(self):
        frame = pd.DataFrame(describe(people(2000), SCHEMA, epsilon=1.0).table())
        assert list(frame.columns) == ["column", "statistic", "value", "low", "high", "resolved"]
        assert (frame.low <= frame.value).all() and (frame.value <= frame.high).all()


CPS = Schema(
    [
        Numeric("age", 16, 60),
        Numeric("educ", 0, 18),
        *(Categorical(name, ["0", "1"]) for name in ("marr", "black", "hisp", "nodegree")),
        Numeric("re74", 0, 30_000),
        Numeric("re75", 0, 30_000),
        Numeric("re78", 0, 30_000),
    ],
    target="re78",
)


@pytest.fixture(scope="module")
def cps() -> tuple[dict[str, np.ndarray], TalliedTable]:
    """15,992 people; tallied once."""
    frame = cps_mixtape.load_pandas().data
    table = {
        c.name: frame[c.name].to_numpy(dtype=float)
        if isinstance(c, Numeric)
        else frame[c.name].astype(int).astype(str).to_numpy()
        for c in CPS.columns
    }
    return table, tallied(table, CPS)


def coverage(cps, adjacency: str, stated: float = 1.0, releases: int = 200) -> dict[str, float]:
    """Of the intervals at ε = 0.5, by kind of statistic; `stated` scales the noise that they are told."""
    table, source = cps
    layout = replace(source.layout, neighbours=Neighbours(adjacency))
    known = source.sums()

    class Known(TalliedTable):
        def sums(self):
            return known

    plan = DescribePlan.calibrated(layout, Budget(0.5, 1e-6))
    exact, covered = truth(table, CPS), defaultdict(list)
    for seed in range(releases):
        sums = plan.release(Known(layout, source.source), generator(seed))
        told = replace(sums, scales={part: stated * scale for part, scale in sums.scales.items()})
        rows = Description.of(Released(told, plan.guarantee)).table()
        for column, name, low, high in zip(
            *(rows[k] for k in ("column", "statistic", "low", "high")), strict=True
        ):
            slack = 1e-9 * max(abs(exact[column, name]), 1.0)
            covered[name.split()[0]].append(low - slack <= exact[column, name] <= high + slack)
    return {kind: float(np.mean(inside)) for kind, inside in covered.items()}


@pytest.mark.parametrize("adjacency", ["add_remove", pytest.param("replace", marks=pytest.mark.full)])
def test_the_intervals_hold_95_times_of_100_on_real_people(cps, adjacency):
    found = coverage(cps, adjacency)
    for kind in ("mean", "deviation", "share", "correlation"):
        assert 0.93 <= found[kind] <= 0.98, (kind, found)
    assert adjacency == "replace" or 0.91 <= found["count"] <= 0.99  # 200 numbers: ± 3 deviations
    assert found["missing"] >= 0.95  # nothing is missing: cut at 0, one side never fails
    assert min(found[name] for name in QUARTILES) >= 0.95  # to the edges of leaves


def test_intervals_that_are_told_half_of_the_noise_do_not_hold(cps):
    found = coverage(cps, "add_remove", stated=0.5, releases=60)
    assert max(found[kind] for kind in ("mean", "deviation", "share", "correlation")) < 0.8


def test_the_errors_on_real_people_are_small(cps):
    table, _ = cps
    exact = truth(table, CPS)
    errors = defaultdict(list)
    for seed in range(20):
        found = describe(table, CPS, epsilon=0.5, random_state=seed)
        for column in found.numeric:
            scale = exact[column.name, "deviation"]
            errors["mean"].append(abs(column.mean.value - exact[column.name, "mean"]) / scale)
            errors["deviation"].append(abs(column.deviation.value / scale - 1))
            cells = np.sort(table[column.name])
            for name, q in QUARTILES.items():
                value = getattr(column, name).value
                near = np.searchsorted(cells, [value - 120, value + 120]) / len(cells)  # a leaf of re74
                errors["rank"].append(max(near[0] - q, q - near[1], 0.0))
        errors["share"].append(abs(found["marr"].shares["1"].value - exact["marr", "share of 1"]))
    medians = {name: float(np.median(found)) for name, found in errors.items()}
    assert medians["mean"] < 0.02 and medians["deviation"] < 0.03
    assert medians["rank"] < 0.01 and medians["share"] < 0.005


def test_the_example_of_the_docstring_runs():
    tests = doctest.DocTestFinder(recurse=False).find(describe, "describe", globs={})
    assert tests[0].examples and doctest.DocTestRunner().run(tests[0]).failed == 0


def test_z_is_that_of_the_level():
    from scipy.stats import norm

    assert pytest.approx(norm.ppf(0.975), rel=1e-15) == Z


def test_deviations_are_told_to_be_noise():
    """Reports list the noise of a release by this."""
    told = DescribePlan.calibrated(
        tallied(people(200), SCHEMA).layout, Budget(1.0, 1e-6)
    ).guarantee.parameters
    assert told.described and all(parameter.is_noise for parameter in told.described)
