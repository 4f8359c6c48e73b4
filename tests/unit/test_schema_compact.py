"""One line for each column: what it says in the long form, back again, and bounds written into it."""

from __future__ import annotations

import datetime
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curvedp.data import Boolean, Categorical, Date, Ignored, Numeric, Schema
from curvedp.data.files import compact_value, entry_of, toml_key, toml_value
from curvedp.data.templates import require_open, with_bounds
from curvedp.errors import InvalidInput

COMPACT = """\
record = "one row is one person"
target = "wage"

[columns]
age = [0, 120]
sex = ["f", "m"]
visit = [2020-01-01, 2024-12-31]
smoker = "boolean"
vegan = {kind = "boolean", words = ["nein", "ja"]}
height = {bounds = [0, 250], decimal = ",", missing_codes = [-9]}
race = {levels = ["a", "b"], missing = "level"}
"a note" = "ignored"
"capital.gain" = [-1e6, 1.5]

[[column]]
name = "wage"
kind = "numeric"
bounds = [0, 100]
"""


def test_every_line_is_a_column():
    assert Schema.from_toml(COMPACT).columns == (
        Numeric("age", 0, 120),
        Categorical("sex", ("f", "m")),
        Date("visit", "2020-01-01", "2024-12-31"),
        Boolean("smoker"),
        Boolean("vegan", ("nein", "ja")),
        Numeric("height", 0, 250, decimal=",", missing_codes=(-9,)),
        Categorical("race", ("a", "b"), missing="level"),
        Ignored("a note"),
        Numeric("capital.gain", -1e6, 1.5),
        Numeric("wage", 0, 100),
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("age = 5", r"column 'age': write \[low, high\]"),
        ("age = true", r"column 'age': write \[low, high\]"),
        ("age = [1, 2, 3]", r"column 'age': write \[low, high\] .* levels in quotes"),
        ('age = [1, "a"]', r"column 'age': write \[low, high\]"),
        ("age = [true, false]", r"column 'age': write \[low, high\]"),
        ("age = [2020-01-01, 5]", r"column 'age': write \[low, high\]"),
        ("age = []", "column 'age': the kind is not filled in"),
        ("age = {}", "column 'age': the kind is not filled in"),
        ('age = "numeric"', "column 'age': the bounds are not filled in"),
        ('age = "number"', "column 'age': unknown kind 'number'"),
        ("age = [120, 0]", "reversed"),
        ('age = {name = "x", bounds = [0, 1]}', "column 'age': write"),
        ("age.low = 5", "column 'age' has an unknown key 'low'"),
        ('age = {kind = "categorical", bounds = [0, 1]}', "a categorical column has no bounds"),
        ('age = [0, 1]\n[[column]]\nname = "age"\nkind = "ignored"', "'age' is declared twice"),
        ("[[column]]\n", "has no name"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line, words):
    with pytest.raises(InvalidInput, match=words):
        Schema.from_toml(f"[columns]\nother = [0, 1]\n{line}\n")


@pytest.mark.parametrize("content", ["columns = 3", "columns = []", "[columns]\na = [0, 1]\n[column]\nb = 2"])
def test_what_is_no_table_of_columns_is_refused(content):
    with pytest.raises(InvalidInput, match="write"):
        Schema.from_toml(content)


days = st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1))
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
numbers = st.floats(-1e12, 1e12)
columns = st.one_of(
    st.builds(lambda low, width: Numeric("x", low, low + abs(width) + 1), numbers, numbers),
    st.builds(
        lambda low, code: Numeric("x", low, low + 1e3, missing_codes=[code], decimal=","), numbers, numbers
    ),
    st.builds(lambda low: Numeric("x", low, low + 1e3, source="bought", missing="indicator"), numbers),
    st.builds(
        lambda levels: Categorical("x", sorted(levels)),
        st.sets(st.sampled_from("abcdeé\"'=[]{}#\\"), min_size=2),
    ),
    st.builds(lambda day: Date("x", day, day + datetime.timedelta(400)), days),
    st.builds(lambda day: Date("x", day, day + datetime.timedelta(400), "%d.%m.%Y", ["year", "month"]), days),
    st.sampled_from(
        [Boolean("x"), Boolean("x", ("nein", "ja")), Ignored("x"), Boolean("x", missing="indicator")]
    ),
)


@given(columns, texts)
@settings(max_examples=200, deadline=None)
def test_a_column_survives_its_line(column, name):
    """column → [[column]] → a line of text → TOML → [[column]] → column."""
    entry = {**column.to_dict(), "name": name}
    line = f"{toml_key(name)} = {toml_value(compact_value(entry))}\n"
    assert line.count("\n") == 1
    parsed = tomllib.loads(line)
    assert list(parsed) == [name]
    content = {
        "column": [entry_of(name, parsed[name]), {"name": f"{name}2", "kind": "numeric", "bounds": [0, 1]}]
    }
    assert Schema.from_dict(content).columns[0].to_dict() == entry


def test_plain_columns_are_written_short():
    assert compact_value(Numeric("x", 0, 1).to_dict()) == [0.0, 1.0]
    assert compact_value(Categorical("x", ("a", "b")).to_dict()) == ["a", "b"]
    assert compact_value(Boolean("x").to_dict()) == "boolean"
    assert (
        toml_value(compact_value(Date("x", "2020-01-01", "2020-12-31").to_dict()))
        == "[2020-01-01, 2020-12-31]"
    )


SOURCE = "bought: ε = 0.1, 2026-11-15, charge bounds 1a2b3c4d"


def test_bounds_are_written_into_lines_and_nothing_else_changes():
    text = COMPACT.replace("age = [0, 120]", 'age = ""  # years').replace("visit", "# a comment\nvisit")
    found = {
        "age": Numeric("age", 17, 90, source=SOURCE),
        "height": Numeric("height", 100, 220, source=SOURCE),
        "wage": Numeric("wage", 1, 2, source=SOURCE),
    }
    edited = with_bounds(text, found)
    assert Schema.from_toml(edited).columns[0] == found["age"]
    assert (
        f'height = {{decimal = ",", missing_codes = [-9], bounds = [100, 220], source = "{SOURCE}"}}'
        in edited
    )
    before, after = text.splitlines(), edited.splitlines()
    changed = [line for line in before if line not in after]
    assert [line.split(" ")[0] for line in changed] == ["age", "height", "bounds"]
    assert with_bounds(edited, found) == edited


def test_a_line_is_open_until_it_has_bounds():
    for line in ('age = ""', 'age = "numeric"', "age = {decimal = ','}"):
        require_open(f"[columns]\n{line}\n", "age")
    with pytest.raises(InvalidInput, match="declares bounds of column 'age' already"):
        require_open(COMPACT, "age")
    with pytest.raises(InvalidInput, match="is not numeric"):
        require_open(COMPACT, "sex")
    with pytest.raises(InvalidInput, match="no column 'pay'"):
        require_open(COMPACT, "pay")
    with pytest.raises(InvalidInput, match="laid out"):
        with_bounds("[columns]\nage = [\n 0,\n 1]\n", {"age": Numeric("age", 0, 1, source=SOURCE)})
