"""A schema looked over: everything that is open or wrong at once, and what will cost accuracy."""

from __future__ import annotations

import pyarrow as pa
import pytest

from curvedp.data import Schema
from curvedp.data.templates import MANY_LEVELS, review

GOOD = 'target = "wage"\n[columns]\nage = [0, 120]\nsex = ["f", "m"]\nwage = [0, 100]\n'


def test_a_complete_schema_has_nothing_to_say():
    found = review(GOOD, ["age", "sex", "wage"])
    assert found.complete and found.columns == 3
    assert found.unfilled == found.problems == found.warnings == ()


def test_everything_that_is_open_or_wrong_is_named_at_once():
    text = (
        '[columns]\na = ""\nb = "numeric"\nc = "categorical"\nd = "date"\ne = [9, 1]\n'
        "f = [1, 2, 3]\ng = [0, 1]\n"
        '[[column]]\nkind = "numeric"\n[[column]]\nname = "h"\nkind = ""\nbounds = []\nlevels = []\n'
        '[[column]]\nname = "i"\nkind = "numeric"\nbounds = []\n'
    )
    found = review(text)
    assert not found.complete
    assert [line.split("'")[1] for line in found.unfilled] == ["a", "b", "c", "d", "h", "i"]
    assert found.unfilled[1] == "column 'b': write its bounds, [low, high]"
    assert "its levels" in found.unfilled[2] and "last day" in found.unfilled[3]
    assert len(found.problems) == 3
    assert any("'e'" in line and "reversed" in line for line in found.problems)
    assert any("'f'" in line for line in found.problems) and any("no name" in line for line in found.problems)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nope", "not valid TOML"),
        ("", "no columns"),
        ("columns = 3", "no columns"),
        (GOOD.replace('"wage"', '"pay"'), "the target 'pay' is not a column"),
        (GOOD + "extra = 5\n", "column 'extra'"),
        (GOOD + '[[column]]\nname = "age"\nkind = "ignored"\n', "declared twice"),
        ('adjacency = "both"\n' + GOOD, "adjacency"),
        ("surprise = 1\n" + GOOD, "unknown key 'surprise'"),
        ('[columns]\nage = "ignored"\n', "no column is left to learn from"),
    ],
)
def test_whatever_a_fit_refuses_is_a_problem(text, words):
    found = review(text)
    assert not found.complete and any(words in line for line in found.problems)


def test_names_are_compared_with_those_of_the_table():
    found = review(GOOD + 'note = "ignored"\n', ["age", "Sex", "wage", "city"])
    assert found.problems == ("column 'sex' is not in the table: did you mean 'Sex'?",)
    assert found.warnings == ("not declared, and so not read: 'Sex', 'city'",)


def test_types_are_compared_without_a_row():
    empty = pa.schema({"age": pa.timestamp("us"), "sex": pa.string(), "wage": pa.float64()}).empty_table()
    found = review(GOOD, empty.column_names, empty=empty)
    assert len(found.problems) == 1 and "'age'" in found.problems[0] and "dates" in found.problems[0]


def test_what_will_cost_accuracy_is_said_and_does_not_stop_a_fit():
    levels = [f"l{i}" for i in range(MANY_LEVELS)]
    text = f"[columns]\nwage = [0, 1e12]\ncode = {levels}\nage = [0, 120]\n"
    found = review(text)
    assert found.complete
    assert len(found.warnings) == 3
    assert "'wage'" in found.warnings[0] and "1e+12 apart" in found.warnings[0]
    assert f"{MANY_LEVELS} levels" in found.warnings[1] and "no target" in found.warnings[2]
    many = "".join(f"x{i} = [0, 1]\n" for i in range(300))
    assert any("300 encoded columns" in line for line in review(f"[columns]\n{many}").warnings)


def test_a_file_of_levels_is_found_beside_the_schema(tmp_path):
    text = GOOD + 'city = {kind = "categorical", levels_file = "cities.txt"}\n'
    (tmp_path / "schema.toml").write_text(text)
    assert any(
        "cities.txt" in line or "file of levels" in line for line in review(text, folder=tmp_path).problems
    )
    (tmp_path / "cities.txt").write_text("Berlin\nParis\n")
    assert review(text, folder=tmp_path).complete
    assert Schema.load(tmp_path / "schema.toml").columns[-1].levels == ("Berlin", "Paris")


def test_a_name_that_looks_like_an_identifier_is_asked_about():
    words = "no unit is named, and 'patient_id' may say whose row it is"
    step = 'write unit = "patient_id" at the top of the schema'
    (found,) = review(GOOD + 'patient_id = "ignored"\n').warnings
    assert words in found and found.endswith(step)
    (found,) = review(GOOD + "patient_id = [0, 100_000]\n").warnings
    assert words in found and found.endswith(f'{step}, and "ignored" for the column')
    extra, found = review(GOOD, ["age", "sex", "wage", "patient_id"]).warnings
    assert extra == "not declared, and so not read: 'patient_id'" and words in found
    assert review('unit = "patient_id"\n' + GOOD, ["age", "sex", "wage", "patient_id"]).warnings == ()
    (found,) = review('unit = "patient_id"\n' + GOOD + 'patient_id = "numeric"\n').unfilled
    assert found == "column 'patient_id': write \"ignored\": it says whose row it is"
