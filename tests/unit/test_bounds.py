"""Private bounds: they find any scale, state honest shares, and their source travels with the schema."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.catalogue import ADJACENCIES

from curvedp import Budget, PrivateRidge
from curvedp.analyses.explore import bounds
from curvedp.analyses.explore.bounds import CountNoise, apart, plan_bounds, private_bounds
from curvedp.analyses.explore.noisy import Estimate
from curvedp.analyses.explore.quantiles import Levels, private_quantiles
from curvedp.analyses.explore.tallies import Ordered, number_columns
from curvedp.cli.workflow import release_report
from curvedp.data import Boolean, Categorical, Date, Numeric, Schema
from curvedp.data.files import is_bought
from curvedp.data.templates import with_bounds
from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Neighbours
from curvedp.privacy.gaussian import pure_mu
from curvedp.privacy.profiles import pure_parts, pure_profile
from curvedp.randomness import generator
from curvedp.release.modelfile import Release, load
from curvedp.reports.report import DeclaredColumn, release_page

N = 20_000
NORMAL = np.random.default_rng(0).normal(size=N)


def rank_error(values, bound, level):
    below, upto = np.mean(values < bound), np.mean(values <= bound)
    return max(below - level, level - upto, 0.0)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    "values",
    [
        NORMAL,
        1e-40 * NORMAL,
        -1e140 * np.exp(NORMAL),
        1e4 + 10 * NORMAL,
        np.round(NORMAL * 3),
        np.where(NORMAL > 1, np.exp(NORMAL), 0.0),
    ],
    ids=["normal", "tiny", "huge", "far from zero", "atoms", "mostly zero"],
)
def test_bounds_are_found_at_any_scale(values, adjacency):
    found = private_bounds({"x": values}, ["x"], epsilon=1.0, adjacency=adjacency, random_state=3).columns[0]
    assert found.low < found.high
    assert rank_error(values, found.low, 0.005) < 0.003
    assert rank_error(values, found.high, 0.995) < 0.003


def test_more_than_two_scales_apart_from_every_value_is_no_candidate():
    found = bounds.reached(np.array([1075]))  # 1 ≤ x < 2
    assert found[0] == 0.25 and found[-1] == 8.0 and np.all(np.diff(found) >= 0)
    assert set(bounds.reached(np.array([0]))) == {0.0}
    edges = bounds.reached(np.array([-bounds.LARGEST, bounds.LARGEST]))
    assert edges[0] == -1e150 and edges[-1] == 1e150


@pytest.mark.parametrize("value", [0.0, -0.0, 5e-324, -5e-324, 1.0, -1.0, 1.999, 2.0, 1e150, -1e150, 1e-310])
def test_every_double_has_a_scale_that_holds_it(value):
    counts = bounds.histogram(Ordered.of(np.array([value])))
    (scale,) = np.flatnonzero(counts) - bounds.LARGEST
    assert counts.sum() == 1 and np.sign(scale) == np.sign(value)
    if scale:
        low = math.ldexp(1.0, abs(int(scale)) - 1075)
        assert low <= abs(value) < 2 * low


def test_cells_that_are_no_numbers_are_left_out():
    cells = [*np.round(NORMAL, 3).tolist(), *(["n/a", None, "1,5"] * 3_000)]
    text = [str(cell) for cell in cells]
    plan = plan_bounds(["x"], Budget(1.0))
    for table in ({"x": cells}, {"x": text}):
        assert number_columns(table, plan.layout).ordered()["x"].total == N
    found = private_bounds({"x": cells}, ["x"], epsilon=1.0, random_state=0).columns[0]
    assert rank_error(NORMAL, found.low, 0.005) < 0.003


def test_the_stated_shares_hold_as_often_as_they_say():
    values = np.round(NORMAL[:2_000])
    plan = plan_bounds(["x"], Budget(0.6), neighbours=Neighbours("add_remove"))
    columns, random, hits = number_columns({"x": values}, plan.layout), generator(1), 0
    for _ in range(150):
        (found,) = plan.release(columns, random)
        below, above = np.mean(values < found.low), np.mean(values > found.high)
        hits += found.below.low <= below <= found.below.high and found.above.low <= above <= found.above.high
    assert hits >= 139  # 95 % of 150, less 1.3 standard deviations


def test_the_chance_of_an_empty_scale_is_the_stated_one():
    """The threshold is the tail of the noise: at a chance of 1/2 for all scales together, half fail."""
    noise = CountNoise.of(0.5, Neighbours("replace"))
    threshold = noise.quantile(0.5 / bounds.COUNT)
    random = generator(2)
    empty = np.zeros(bounds.COUNT)
    fails = sum(bool((noise.added_to(empty, random) >= threshold).any()) for _ in range(400))
    assert 0.33 < fails / 400 < 0.46  # 1 − e^{−1/2} = 0.39


def test_an_empty_or_scattered_column_is_said_to_be_hidden():
    found = private_bounds({"x": ["no number"] * 500, "y": [7.0] * 500}, ["x", "y"], epsilon=2.0)
    assert found.hidden == ("x",)
    assert [c.name for c in found.columns] == ["y"]
    assert found.columns[0].low < 7 <= found.columns[0].high
    with pytest.raises(InvalidInput, match="codebook"):
        found.numeric("x")


def test_bounds_never_coincide():
    assert apart(1.0, 2.0) == (1.0, 2.0)
    assert apart(0.0, 0.0) == (-0.5, 0.5)
    assert apart(10.0, 10.0) == (5.0, 15.0)
    assert apart(1e150, 1e150) == (5e149, 1e150)


def test_the_outlook_is_said_from_public_facts_and_refuses_too_few_rows():
    plan = plan_bounds(["x"], Budget(0.1), neighbours=Neighbours("add_remove"))
    assert f"about {plan.seen:,.0f} values of 50,000" in plan.outlook(50_000)
    assert "0.1%" in plan.outlook()
    with pytest.raises(InvalidInput, match="100 rows are too few"):
        plan.outlook(100)


def test_an_interval_without_information_is_everything():
    plan = plan_bounds(["x"], Budget(1.0))
    assert plan._share(np.array([-1e4, -1e4, -1e4]), 0) == Estimate(0.0, 0.0, 1.0)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_quantiles_among_candidates_never_decrease(adjacency):
    for seed in range(30):
        found = private_quantiles(
            [1, 2, 3], (0.2, 0.5, 0.9), range(6), epsilon=0.1, adjacency=adjacency, random_state=seed
        ).value
        assert list(found) == sorted(found) and set(found) <= set(range(6))


@pytest.mark.parametrize(
    ("levels", "candidates", "words"),
    [
        ((), (1, 2), "from 1 to 5"),
        ((0.5,), (1, 1), "two different"),
        ((0.5,), (1, math.inf), "finite"),
        ((0.5,), (1, math.nan), "finite"),
        ((0.5,), (1, 10**400), "finite"),
        ((0.5,), ("low", "high"), "must be numbers"),
        ((0.5,), ("1", "2"), "must be numbers"),
        ((0.5,), (1, None), "must be numbers"),
        ((0.5,), "12", "a list of numbers"),
        ((0.5,), 12, "a list of numbers"),
    ],
)
def test_quantiles_refuse_what_has_no_meaning(levels, candidates, words):
    with pytest.raises(InvalidInput, match=words):
        private_quantiles([1, 2], levels, candidates, epsilon=1.0)


def test_candidates_may_be_numbers_of_any_library():
    for candidates in (
        np.arange(4),
        np.arange(4.0),
        range(4),
        (x for x in (3, 0, 1, 2)),
        [np.float32(1), 2, 0, 3],
    ):
        found = private_quantiles([1, 2], (0.5,), candidates, epsilon=1.0, random_state=0).value
        assert found[0] in range(4)


@pytest.mark.parametrize("epsilon", [101.0, 1e6])
def test_an_epsilon_that_no_loss_distribution_holds_is_refused(epsilon):
    with pytest.raises(InvalidInput, match="at most 100"):
        plan_bounds(["x"], Budget(epsilon, 1e-6))
    with pytest.raises(InvalidInput, match="at most 100"):
        private_quantiles([1, 2], (0.5,), (1, 2), epsilon=epsilon)
    assert plan_bounds(["x"], Budget(100.0, 1e-6)).guarantee.epsilon == 100.0


def test_the_second_of_two_opposite_quantiles_is_free_where_records_come_and_go():
    assert Levels.of((0.005, 0.995), Neighbours("add_remove")).sensitivity == 1
    assert Levels.of((0.005, 0.995), Neighbours("replace")).sensitivity == 1
    assert Levels.of((0.5,), Neighbours("add_remove")).sensitivity == 0.5


def test_pure_parts_add_up_and_prove_what_they_claim():
    parts, cost = pure_parts(Budget(1.0), (3, 1), 4)
    assert parts == (0.1875, 0.0625) and cost == Budget(1.0)
    profile = pure_profile(parts * 4)
    assert profile.delta_at(1.0) == 0 and profile.delta_at(0.99) > 0
    squares = 4 * (pure_mu(0.1875) ** 2 + pure_mu(0.0625) ** 2)
    assert profile.gaussian_cost(0.0).mu ** 2 == pytest.approx(squares)


# Where bounds come from.

SOURCE = "bought: ε = 0.1, 2026-11-15, charge bounds 1a2b3c4d"
BOUGHT = Schema([Numeric("age", 17.0, 90.0, source=SOURCE), Numeric("wage", 0, 100)], target="wage")


def test_the_source_travels_through_files_and_models(tmp_path):
    assert Schema.from_toml(BOUGHT.to_toml()) == BOUGHT
    assert Schema.from_dict(BOUGHT.to_dict()).columns[0].source == SOURCE
    assert "source" not in Schema([Numeric("age", 0, 1)]).to_toml()
    random = np.random.default_rng(0)
    table = {"age": random.uniform(17, 90, 500), "wage": random.uniform(0, 100, 500)}
    model = PrivateRidge(schema=BOUGHT).fit(table)
    path = tmp_path / "model.json"
    path.write_text(Release.of(model).to_json())
    assert load(path).schema.columns[0].source == SOURCE
    page = release_report(model)
    assert SOURCE in page and "source not stated" in page and "were bought from the private table" in page


def test_the_report_escapes_where_bounds_come_from():
    random = np.random.default_rng(0)
    model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(
        random.uniform(-1, 1, (300, 1)), np.zeros(300)
    )
    columns = [DeclaredColumn("a", "feature", 0, 1), DeclaredColumn("b", "feature", 0, 2, source="<script>")]
    page = release_page("t", "s", model.privacy_, [], columns=columns)
    assert "source not stated" in page and "&lt;script&gt;" in page and "<script>" not in page


@pytest.mark.parametrize("source", ["x" * 301, 3, "\ud800", "a\nb"], ids=["long", "number", "half", "lines"])
def test_a_source_is_one_short_line(source):
    for make in (
        lambda: Numeric("a", 0, 1, source=source),
        lambda: Categorical("a", ["x", "y"], source=source),
        lambda: Date("a", "2020-01-01", "2021-01-01", source=source),
        lambda: Boolean("a", source=source),
    ):
        with pytest.raises(InvalidInput, match="source"):
            make()


def test_a_source_belongs_to_a_column_that_is_read():
    content = {"column": [{"name": "a", "kind": "ignored", "source": "x"}]}
    with pytest.raises(InvalidInput, match="remove it"):
        Schema.from_dict(content)


def test_files_of_the_time_when_sources_were_origins_are_read():
    """Version 0.2 wrote `origin` beside bought bounds."""
    old = "private, ε = 0.1, charge bounds 1a2b3c4d"
    content = {"column": [{"name": "a", "kind": "numeric", "bounds": [0, 1], "origin": old}]}
    (column,) = Schema.from_dict(content).columns
    assert column.source == old and is_bought(column.source) and is_bought(SOURCE)
    assert not is_bought("") and not is_bought("codebook 2024")
    lines = f'[columns]\na = {{bounds = [0, 1], origin = "{old}"}}\n'
    assert Schema.from_toml(lines).columns == (column,)
    assert with_bounds(lines, {"a": Numeric("a", 2, 3, source=SOURCE)}).count("origin") == 0


TEMPLATE = """# a comment
record = "one row is one person"
adjacency = "replace"

[[column]]
name = "age"
kind = ""    # numeric, categorical or ignored
bounds = []
levels = []

[[column]]
# what they earn
name = "wage"
kind = ""
"""


def test_bounds_are_written_into_a_file_that_is_not_filled_in_and_nothing_else_changes():
    found = {"wage": Numeric("wage", -0.5, 1e20, source=SOURCE), "age": Numeric("age", 17, 90, source=SOURCE)}
    edited = with_bounds(TEMPLATE, found)
    assert edited.startswith(TEMPLATE[: TEMPLATE.index("kind")])
    assert "# what they earn" in edited and "levels" not in edited
    assert Schema.from_toml(edited).columns == (found["age"], found["wage"])
    assert with_bounds(edited, found) == edited


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEMPLATE.replace("wage", "pay"), "no column 'wage'"),
        ('column = [{name = "wage", kind = ""}]\n', "laid out"),
        ('[[column]]\nname = "wage"\nbounds = [\n 1,\n 2]\n', "laid out"),
        ("not toml", "not valid TOML"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused(text, words):
    with pytest.raises(InvalidInput, match=words):
        with_bounds(text, {"wage": Numeric("wage", 0, 1)})
