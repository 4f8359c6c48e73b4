"""`schema.check`: kinds of cells, counts through every entrance, verdicts, and what is refused first."""

from __future__ import annotations

import doctest
import math
from datetime import date

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from scipy.stats import binom, norm

from curvedp import Budget, Ledger, PrivateRidge
from curvedp.analyses.explore import check as looks
from curvedp.analyses.explore.check import CONFIDENCE, CellLayout, cells_of, check, interpret, look, plan
from curvedp.analyses.explore.describe import check_page
from curvedp.data import Categorical, Ignored, Numeric, Schema, delimited, source
from curvedp.data.cells import LEVEL_KINDS, NUMBER_KINDS, Cells
from curvedp.errors import CurvedpError, DataError, InvalidInput, LedgerRefused
from curvedp.randomness import generator
from curvedp.release.door import Released, execute

BUDGET = Budget(1.0, 1e-6)
SCHEMA = Schema(
    [Numeric("a", 0, 10), Ignored("id"), Categorical("b", ["x", "1"]), Categorical("y", ["no", "yes"])],
    target="y",
)

# What every cell is, written by hand.
NUMBERS = {
    "ok": [0, 10, 3.5, "7", " 1e1 ", True, "true", b"2", np.float32(1), "1_0"],
    "below": [-1, "-0.001", -math.inf, -(10**400), "-inf"],
    "above": [10.5, "11", math.inf, 10**400, "1e999"],
    "missing": [
        None,
        "",
        "  ",
        math.nan,
        "nan",
        "NA",
        "n/a",
        "NULL",
        "None",
        "-",
        ".",
        "?",
        pd.NA,
        pd.NaT,
        [],
    ],
    "decimal comma": ["1,5", "-0,25", "1.234,50", "1 234,5", ",5", "+3,0e2", b"1,5", " 2,5 ", "1'000,0"],
    "unreadable": ["x", "12 kg", "1,234.5", "1,2,3", "1.2.3", "€ 3", date(2020, 1, 2), 1 + 2j, "1,", ","],
}
LEVELS = {
    "x": ["x", " x ", b"x"],
    "1": [1, "1", 1.0, "01", True, "true"],
    "missing": [None, "", "NA", "null", math.nan, pd.NA, (1, 2), "-"],
    "undeclared": ["X", "y", 2, "1,0", date(2020, 1, 2), "x x"],
}


def kinds_of_numbers(cells):
    return cells.number_kinds(cells.numbers(), 0, 10)


def kinds_of_levels(cells, keys):
    return cells.level_kinds(cells.positions(keys))


@pytest.mark.parametrize(
    ("kind", "cell"), [(kind, cell) for kind, cells in NUMBERS.items() for cell in cells]
)
def test_the_kind_of_a_number(kind, cell):
    (found,) = kinds_of_numbers(Cells([cell], "any"))
    assert (NUMBER_KINDS[found] if found >= 0 else "ok") == kind


@pytest.mark.parametrize(("kind", "cell"), [(k, cell) for k, cells in LEVELS.items() for cell in cells])
def test_the_kind_of_a_level(kind, cell):
    (found,) = kinds_of_levels(Cells([cell], "any"), {"x": 0, "1": 1})
    assert (*LEVEL_KINDS, "x", "1")[found] == kind


def test_a_word_for_a_missing_value_may_be_a_declared_level():
    assert kinds_of_levels(Cells(["NA", "-", ""], "any"), {"NA": 0}).tolist() == [2, 0, 0]


def test_arrays_of_numbers_have_the_kinds_of_their_cells():
    values = np.array([-1.0, 11.0, np.nan, 5.0, np.inf, 1.0])
    as_array, as_list = Cells(values, "numbers"), Cells(values.tolist(), "any")
    assert np.array_equal(kinds_of_numbers(as_array), kinds_of_numbers(as_list))
    keys = {"x": 0, "1": 1}
    assert np.array_equal(kinds_of_levels(as_array, keys), kinds_of_levels(as_list, keys))


TEXTS = {
    "id": ["secret"] * 8,
    "a": ["5", "-1", "11", "", "1,5", "x", "7", "3"],
    "b": ["x", "1", "NA", "z", "x", "x", "", "w"],
    "y": ["no", "yes", "no", "maybe", "", "no", "no", "no"],
}
EXPECTED = [1, 1, 1, 1, 1, 2, 2, 1, 1, 5, 1, 8]  # a, b, y, rows


def written(tmp_path, name="data.csv", delimiter=";"):
    path = tmp_path / name
    lines = [delimiter.join(TEXTS)] + [delimiter.join(row) for row in zip(*TEXTS.values(), strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def parquet(tmp_path):
    for part in (0, 1):
        rows = slice(5 * part, 5 * part + 5)
        table = pa.table({k: v[rows] for k, v in TEXTS.items()})
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=2)
    return tmp_path


ROWS = [list(row) for row in zip(TEXTS["a"], TEXTS["b"], strict=True)]
TABLES = {
    "mapping": lambda path: (TEXTS, None, ","),
    "mapping and y": lambda path: ({"a": TEXTS["a"], "b": TEXTS["b"]}, TEXTS["y"], ","),
    "pandas": lambda path: (pd.DataFrame(TEXTS), None, ","),
    "pandas categories": lambda path: (pd.DataFrame(TEXTS).astype("category"), None, ","),
    "polars": lambda path: (pl.DataFrame(TEXTS), None, ","),
    "arrow": lambda path: (pa.table(TEXTS), None, ","),
    "rows": lambda path: (ROWS, TEXTS["y"], ","),
    "array": lambda path: (np.array(ROWS, dtype=object), np.array(TEXTS["y"]), ","),
    "csv": lambda path: (written(path), None, ";"),
    "csv by text": lambda path: (str(written(path)), None, ";"),
    "parquet": lambda path: (parquet(path), None, ","),
    "dask": lambda path: (dd.from_pandas(pd.DataFrame(TEXTS), npartitions=3), None, ","),
}


@pytest.mark.parametrize("chunk", [3, 50_000])
@pytest.mark.parametrize("name", TABLES)
def test_every_entrance_counts_the_same(name, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "CHUNK_ROWS", chunk)
    monkeypatch.setattr(source, "CHUNK_ROWS", chunk)
    table, y, delimiter = TABLES[name](tmp_path)
    counted = cells_of(SCHEMA, table, y, delimiter=delimiter)
    assert counted.counts().tolist() == EXPECTED
    assert counted.rows == 8


@pytest.mark.parametrize("chunk", [3, 50_000])
@pytest.mark.parametrize(
    "make", [np.asarray, sparse.csr_array, sparse.coo_array], ids=["array", "csr", "coo"]
)
def test_matrices_of_numbers_are_counted_by_position(make, chunk, monkeypatch):
    monkeypatch.setattr(source, "CHUNK_ROWS", chunk)
    X = np.array([[0.0, 11.0], [-2.0, 5.0], [np.nan, 0.0], [3.0, np.inf], [0.0, -0.5]])
    schema = Schema.of_bounds((0, 10), n_features=2)
    assert cells_of(schema, make(X)).counts().tolist() == [1, 0, 1, 0, 0, 1, 2, 0, 0, 0, 5]


def test_a_table_without_rows_counts_nothing(tmp_path):
    (tmp_path / "empty.csv").write_text("a,b,y\n")
    empty = {name: [] for name in TEXTS}
    for table in (empty, pd.DataFrame(empty, dtype=object), tmp_path / "empty.csv"):
        assert not cells_of(SCHEMA, table).counts().any()


def exact(schema, counts, rows, sigma, budget=BUDGET):
    """The verdicts of counts without noise."""
    made = plan(schema, budget)
    noisy = Released(np.array([*counts, rows], float), made.guarantee)
    return interpret(CellLayout.of(schema), noisy, sigma, 5 * sigma)


def test_verdicts_name_what_stands_out_of_the_noise_and_nothing_else():
    # below, above, missing, comma, unreadable | missing, undeclared | missing, undeclared, no, yes
    found = exact(SCHEMA, [28, 5, 400, 9600, 20, 0, 2500, 20, 0, 7000, 3000], 10_000, 10.0)
    assert found.verdicts == {
        "a": "about 96.0 % of 'a' could not be read: is the decimal sign a comma? "
        "Also about 4.0 % are missing",
        "b": "about 25.0 % of 'b' name a level that is not declared: compare the spelling and the encoding",
        "y": "nothing unusual: bad cells of every kind are below 0.49 %. Classes: 'no' 70.0 %, 'yes' 30.0 %",
    }
    assert [column.unusual for column in found.columns] == [True, True, False]
    table = found.table()
    assert table["kind"][:5] == list(NUMBER_KINDS) and table["class"][-2:] == ["no", "yes"]
    assert table["share"][:5] == [None, None, 0.04, 0.96, None]
    assert len(set(map(len, table.values()))) == 1
    assert pd.DataFrame(table).shape == (11, 6)


def test_a_share_is_named_exactly_where_its_interval_leaves_zero():
    made, z = plan(SCHEMA, BUDGET), norm.isf(0.05 / (2 * 11))  # 11 counts, 95 %
    for count in (0.0, 20.0, 28.0, 30.0, 100.0):
        share = exact(SCHEMA, [count] + [0] * 10, 1000, 10.0).columns[0].shares[0]
        assert share.seen == (share.low > 0) == (count > 10 * z)
        assert share.low <= share.estimate <= share.high
        assert share.seen or share.words.startswith("below ")
    assert made.visible_rows / made.grid.sigma == pytest.approx(z + norm.isf(0.05))


def test_noise_that_hides_everything_is_not_called_nothing_unusual():
    found = exact(SCHEMA, [0] * 11, 100, 50.0)
    assert all("nothing can be said" in verdict for verdict in found.verdicts.values())
    assert "even a whole column may go unnoticed" in found.summary


def test_intervals_hold_together_and_alarms_are_as_rare_as_stated():
    """2,000 checks: a clean table is blamed in at most 2.5 %, all intervals hold in at least 95 %."""
    schema = Schema(SCHEMA.columns, "y", "add_remove")
    made, layout = plan(schema, BUDGET), CellLayout.of(schema)
    rows, repeats = 2000, 2000
    truth = np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, 1400, 600], float)
    visible = math.ceil(made.visible_rows)
    random = generator(7)
    alarms = covered = named = 0
    z = norm.isf(0.05 / (2 * 12))  # 11 counts and the rows
    for _ in range(repeats):
        clean = made.grid.add(np.r_[truth, rows], random)
        found = interpret(layout, Released(clean, made.guarantee), made.grid.sigma, made.visible_rows)
        shares = [share for column in found.columns for share in column.shares]
        alarms += any(column.unusual for column in found.columns)
        covered += all(s.low <= t / rows <= s.high for s, t in zip(shares, truth, strict=True))
        named += made.grid.add(np.array([float(visible)]), random)[0] > z * made.grid.sigma
    # One-sided alarms at 10 of 12 intervals: expected 2.1 %.
    assert binom.cdf(alarms, repeats, 0.0215) > 1e-4 and binom.sf(alarms - 1, repeats, 0.0215) > 1e-4
    assert covered >= CONFIDENCE * repeats - 3 * math.sqrt(0.05 * 0.95 * repeats)
    assert named >= 0.95 * repeats - 4 * math.sqrt(0.05 * 0.95 * repeats)


def test_the_noise_is_what_was_promised_and_lies_around_the_counts():
    made = plan(SCHEMA, BUDGET)
    counted = cells_of(SCHEMA, TEXTS)
    random = generator(3)
    draws = np.array([made.release(counted, random)[:-1] for _ in range(4000)])
    assert np.abs(draws.mean(axis=0) - EXPECTED[:-1]).max() < 5 * made.grid.sigma / math.sqrt(4000)
    assert np.abs(draws.std(axis=0) / made.grid.sigma - 1).max() < 0.05


def test_eighty_columns_cost_six_hundred_rows_of_noise():
    schema = Schema([Numeric(f"x{i}", 0, 1) for i in range(80)], adjacency="add_remove")
    made = plan(schema, Budget(0.05, 1e-6))
    assert 600 < made.grid.sigma < 650
    assert "shares of 6.9 % and more can be seen" in made.outlook(50_000)
    assert "from about 3,420 on" in made.outlook()
    assert made.guarantee.costs[0].mu == made.split.profile.mu


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "b.db", epsilon=3, delta=1e-5)


def big(n=4000):
    return {name: cells * (n // 8) for name, cells in TEXTS.items()}


def test_one_charge_covers_all_columns(ledger):
    found = check(SCHEMA, big(), epsilon=1.0, ledger=ledger)
    (charge,) = ledger.history()
    assert (charge.epsilon, charge.delta, charge.label, charge.theorem) == (1.0, 1e-6, "check", "(C-1)")
    assert found.privacy.private and found.rows == 4000
    assert "of 'a'" in found.verdicts["a"] and found.columns[0].unusual


def test_a_check_is_charged_its_shift(ledger):
    check(SCHEMA, big(), epsilon=1.0, ledger=ledger)
    assert ledger.history()[0].cost == plan(SCHEMA, BUDGET).guarantee.costs[0]


def test_a_seed_is_not_private_and_not_charged(ledger):
    first, second = (check(SCHEMA, big(), epsilon=1.0, random_state=5) for _ in range(2))
    assert first == second and not first.privacy.private
    with pytest.raises(LedgerRefused):
        check(SCHEMA, big(), epsilon=1.0, random_state=5, ledger=ledger)


class Untouchable(list):
    """Cells that may be counted but not read."""

    def __getitem__(self, at):
        return [] if at == slice(None, 0, None) else pytest.fail("a cell was read before the charge")

    def __iter__(self):
        pytest.fail("a cell was read before the charge")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 0.001}, r"Pass `epsilon=0\.\d+` to see shares of 10 %"),
        ({"epsilon": 1.0, "rows": 10}, "in 10 rows this check could not see"),
        ({"epsilon": 1.0, "rows": 0}, "rows must be the whole number"),
        ({"epsilon": 1.0, "rows": 1e4}, "rows must be the whole number"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_what_cannot_say_anything_is_refused_before_the_charge(options, words, ledger):
    table = {name: Untouchable(cells) for name, cells in big(800).items()}
    with pytest.raises(InvalidInput, match=words):
        check(SCHEMA, table, ledger=ledger, **options)
    assert not ledger.history()


def test_the_epsilon_of_a_refusal_is_enough():
    with pytest.raises(InvalidInput) as refusal:
        plan(SCHEMA, Budget(0.001, 1e-6), rows=900)
    epsilon = float(str(refusal.value).partition("`epsilon=")[2].partition("`")[0])
    made = plan(SCHEMA, Budget(epsilon, 1e-6), rows=900)
    assert 0.095 * 900 < made.visible_rows <= 0.1 * 900 * (1 + 1e-4)


@pytest.mark.parametrize(
    ("table", "y", "error", "words"),
    [
        ({"a": [1], "b": ["x"]}, None, DataError, "no column 'y'"),
        ({**TEXTS, "a": pd.Series(pd.to_datetime(["2020-01-01"] * 8))}, None, DataError, "dates"),
        ({**TEXTS, "y": np.arange(8)}, None, DataError, "labels are numbers"),
        ({**TEXTS, "a": [1]}, None, InvalidInput, "one length"),
        (TEXTS, ["no"], DataError, "one entry per row"),
        (ROWS, ["no"], DataError, "one entry per row"),
        (ROWS, None, InvalidInput, "pass y beside it"),
        (np.zeros((8, 3)), TEXTS["y"], InvalidInput, "3 features"),
        ("nowhere.csv", None, InvalidInput, "cannot read"),
        (7, ["no"], InvalidInput, "a table must be"),
        (dd.from_pandas(pd.DataFrame({"a": [1]}), npartitions=1), None, DataError, "no column 'b'"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value[:20],
)
def test_tables_that_will_not_do_are_refused_before_the_charge(table, y, error, words, ledger):
    with pytest.raises(error, match=words):
        check(SCHEMA, table, y, epsilon=1.0, ledger=ledger)
    assert not ledger.history()


def broken_partition(part):
    if part:
        raise ValueError("secret-of-a-partition")
    return pd.DataFrame(TEXTS)


def test_a_partition_that_cannot_be_read_says_nothing_of_its_cells(caplog):
    frame = dd.from_map(broken_partition, [0, 1], meta=pd.DataFrame(TEXTS).iloc[:0])
    schema = Schema(SCHEMA.columns, "y", "add_remove")
    with pytest.raises(DataError, match="cannot be read") as failure:
        check(schema, frame, epsilon=1.0)
    assert failure.value.__cause__ is None and failure.value.__context__ is None
    assert "secret" not in str(failure.value) + caplog.text


@pytest.mark.parametrize(
    ("options", "words"),
    [({"unit": "person"}, "declare the same unit"), ({"adjacency": "add_remove"}, "pass `adjacency")],
)
def test_a_ledger_of_other_neighbours_refuses_a_check(options, words, tmp_path):
    ledger = Ledger.create(tmp_path / "other.db", epsilon=3, delta=1e-5, **options)
    with pytest.raises(LedgerRefused, match=words):
        check(SCHEMA, big(), epsilon=1.0, ledger=ledger)
    assert not ledger.history()


def test_a_plan_for_other_columns_is_refused(ledger):
    made = plan(SCHEMA.with_target(None), BUDGET)
    with pytest.raises(CurvedpError):
        execute(made, cells_of(SCHEMA, big()), ledger=ledger)
    assert not ledger.history()


def test_pages_and_reprs_escape_what_they_show():
    schema = Schema([Numeric("<script>", 0, 1), Categorical("y", ["<b>", "no"])], target="y")
    table = {"<script>": [5.0] * 1000, "y": ["<b>"] * 1000}
    made = plan(schema, BUDGET)
    found = look(made, cells_of(schema, table), random_state=0)
    for text in (found._repr_html_(), check_page(found, "one row is <i>one</i> person")):
        assert "&lt;script&gt;" in text and "<script>" not in text and "<b>" not in text and "<i>" not in text
    assert str(found).count("\n") == 2 and found.summary in str(found)


def test_decimal_commas_spoil_a_fit_in_silence_and_a_check_sees_them():
    random = np.random.default_rng(0)
    x = random.uniform(0, 10, 4000)
    table = {"x": [f"{v:.2f}".replace(".", ",") for v in x], "y": 5 * x}
    schema = Schema([Numeric("x", 0, 10), Numeric("y", 0, 50)], target="y")
    model = PrivateRidge(schema=schema, random_state=0).fit(table)
    assert abs(model.coef_[0] - 5) > 1
    found = check(schema, table, epsilon=0.2, random_state=0)
    assert "is the decimal sign a comma?" in found.verdicts["x"] and "nothing unusual" in found.verdicts["y"]


def test_examples_run():
    result = doctest.testmod(looks)
    assert result.attempted and not result.failed
