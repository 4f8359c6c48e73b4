"""Public dictionaries: what they say becomes declarations, what they do not say stays open."""

from __future__ import annotations

import datetime
import json

import pytest

from curvedp.data import Boolean, Categorical, Date, Ignored, Numeric, Schema, schema_template
from curvedp.data.dictionaries import read_dictionary
from curvedp.errors import InvalidInput

TABLE_SCHEMA = {
    "primaryKey": "id",
    "missingValues": ["", "NA", "-9"],
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "maximum": 120}},
        {"name": "born", "type": "year", "constraints": {"minimum": "1900", "maximum": 2020}},
        {
            "name": "wage",
            "type": "number",
            "decimalChar": ",",
            "groupChar": ".",
            "constraints": {"minimum": 0},
        },
        {"name": "sex", "type": "string", "constraints": {"enum": ["f", "m"]}},
        {"name": "grade", "type": "integer", "constraints": {"enum": [1, 2, 3]}},
        {
            "name": "region",
            "type": "string",
            "categories": [{"value": "n", "label": "North"}, {"value": "s"}],
        },
        {
            "name": "visit",
            "type": "date",
            "format": "%d.%m.%Y",
            "constraints": {"minimum": "2020-01-01", "maximum": "2024-12-31"},
        },
        {"name": "smoker", "type": "boolean"},
        {"name": "vegan", "type": "boolean", "falseValues": ["nein"], "trueValues": ["ja", "j"]},
        {"name": "city", "type": "string"},
        {"name": "blob", "type": "object"},
    ],
}


def entries(found):
    return {name: known.entry for name, known in found.items()}


def hints(found):
    return {name: known.hint for name, known in found.items() if known.hint}


def test_a_table_schema_declares_what_it_says():
    found = read_dictionary(TABLE_SCHEMA)
    text = schema_template(dictionary=TABLE_SCHEMA)
    assert "# [0, high]" in text
    assert entries(found)["city"] == {"kind": "categorical"}
    assert entries(found)["blob"] == {"kind": ""}
    filled = text.replace(
        '{kind = "numeric", bounds = [], decimal = ",", thousands = ".", missing_codes = [-9]}', "[0, 9]"
    ).replace('city = "categorical"', 'city = "ignored"')
    schema = Schema.from_toml(filled.replace('blob = ""', 'blob = "ignored"'))
    assert schema.columns[:-2] == (
        Ignored("id"),
        Numeric("age", 0, 120, missing_codes=(-9,)),
        Numeric("born", 1900, 2020, missing_codes=(-9,)),
        Numeric("wage", 0, 9),
        Categorical("sex", ("f", "m")),
        Categorical("grade", ("1", "2", "3")),
        Categorical("region", ("n", "s")),
        Date("visit", "2020-01-01", "2024-12-31", "%d.%m.%Y"),
        Boolean("smoker"),
        Boolean("vegan", ("nein", "ja")),
    )


def test_a_table_schema_is_found_in_a_resource_and_in_a_package(tmp_path):
    path = tmp_path / "datapackage.json"
    for content in (
        TABLE_SCHEMA,
        {"name": "people", "schema": TABLE_SCHEMA},
        {"resources": [{"path": "x.csv", "schema": TABLE_SCHEMA}]},
    ):
        path.write_text(json.dumps(content))
        found, told = read_dictionary(path), read_dictionary(TABLE_SCHEMA)
        bare = {
            name: {k: v for k, v in entry.items() if k != "source"} for name, entry in entries(found).items()
        }
        assert bare == entries(told) and hints(found) == hints(told)
        sourced = [name for name, entry in entries(found).items() if entry.get("source") == path.name]
        assert sourced == [name for name, e in entries(told).items() if {"bounds", "levels"} & e.keys()] != []
    path.write_text(json.dumps({"resources": [{"schema": TABLE_SCHEMA}] * 2}))
    with pytest.raises(InvalidInput, match="several: pass the Table Schema of one"):
        read_dictionary(path)


SOURCE = {"source": "codebook.csv"}
CODEBOOK = """\
Variable,Type,Min,Max,Levels,Missing codes,Label
age,int,0,120,,-9|999,"Age, in years"
sex,,,,f|m,,
race,text,,,a;b;c,,
visit,date,2020-01-01,2024-12-31,,,
smoker,bool,,,,,
wage,numeric,0,,,,
pid,id,,,,,
note,ignored,,,,,
"""


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_codebook_declares_what_it_says(tmp_path, delimiter):
    path = tmp_path / "codebook.csv"
    text = CODEBOOK if delimiter == "," else CODEBOOK.replace("a;b;c", '"a;b;c"').replace(",", delimiter)
    path.write_text(text.replace(f'"Age{delimiter} in years"', "Age"))
    found = read_dictionary(path)
    assert entries(found) == {
        "age": {"kind": "numeric", "bounds": [0, 120], "missing_codes": [-9, 999], **SOURCE},
        "sex": {"kind": "categorical", "levels": ["f", "m"], **SOURCE},
        "race": {"kind": "categorical", "levels": ["a", "b", "c"], **SOURCE},
        "visit": {
            "kind": "date",
            "bounds": [datetime.date(2020, 1, 1), datetime.date(2024, 12, 31)],
            **SOURCE,
        },
        "smoker": {"kind": "boolean"},
        "wage": {"kind": "numeric"},
        "pid": {"kind": "ignored"},
        "note": {"kind": "ignored"},
    }
    assert hints(found) == {"wage": "[0, high]"}


def test_days_may_be_written_as_the_cells_are(tmp_path):
    days = [datetime.date(2020, 1, 31), datetime.date(2024, 12, 31)]
    ends = {"minimum": "31.01.2020", "maximum": "31.12.2024"}
    entry = {"name": "visit", "type": "date", "format": "%d.%m.%Y", "constraints": ends}
    known = {"kind": "date", "bounds": days, "format": "%d.%m.%Y"}
    assert entries(read_dictionary({"fields": [entry]})) == {"visit": known}
    path = tmp_path / "codebook.csv"
    path.write_text(
        "name,min,max,format\nvisit,31.01.2020,31.12.2024,%d.%m.%Y\nseen,2020-01-31,2024-12-31,\n"
        "code,20200131,20241231,\n"
    )
    assert entries(read_dictionary(path)) == {
        "visit": known | SOURCE,
        "seen": {"kind": "date", "bounds": days, **SOURCE},
        "code": {"kind": "numeric", "bounds": [20200131, 20241231], **SOURCE},
    }


def test_a_map_of_types_and_another_schema(tmp_path):
    types, schema = tmp_path / "types.json", tmp_path / "old.toml"
    types.write_text('{"age": "Int64", "sex": "category", "blob": "object"}')
    assert entries(read_dictionary(types)) == {
        "age": {"kind": "numeric"},
        "sex": {"kind": "categorical"},
        "blob": {"kind": ""},
    }
    schema.write_text(
        '[columns]\nage = [0, 120]\npay = {bounds = [0, 9], source = "law"}\nsex = ""\n'
        '[[column]]\nname = "wage"\nkind = "numeric"\nbounds = []\n'
    )
    assert entries(read_dictionary(schema)) == {
        "age": {"kind": "numeric", "bounds": [0, 120], "source": "old.toml"},
        "pay": {"kind": "numeric", "bounds": [0, 9], "source": "law"},
        "sex": {},
        "wage": {"kind": "numeric"},
    }


def test_the_table_says_which_columns_and_the_dictionary_what_they_are(tmp_path):
    path, codebook = tmp_path / "data.csv", tmp_path / "codebook.csv"
    path.write_text("age,height,sex\n4711,4712,martian\n")
    codebook.write_text("name,low,high,levels\nsex,,,f|m\nage,0,120,\nwage,0,1e5,\n")
    text = schema_template(path, dictionary=codebook)
    assert text[text.index("[columns]") :] == (
        '[columns]\nage = {bounds = [0, 120], source = "codebook.csv"}\nheight = ""\n'
        'sex = {levels = ["f", "m"], source = "codebook.csv"}\n'
        '\n# In the dictionary, and not in the table:\n#   "wage"\n'
    )
    assert "4711" not in text and "martian" not in text


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("d.json", "{", "begins as JSON and is none"),
        ("d.json", "[1, 2]", "this JSON is no dictionary"),
        ("d.json", '{"age": 3}', "this JSON is no dictionary"),
        ("d.json", '{"fields": [{"type": "integer"}]}', "a field of the Table Schema has no name"),
        ("d.json", '{"fields": [3]}', "a field of the Table Schema has no name"),
        (
            "d.json",
            '{"fields": [{"name": "a", "type": "integer", "constraints": {"minimum": 9, "maximum": 1}}]}',
            "the dictionary: column 'a': .* reversed",
        ),
        (
            "d.json",
            '{"fields": [{"name": "a", "type": "date", "constraints": {"minimum": "soon", "maximum": "x"}}]}',
            "column 'a': write its first and last day",
        ),
        ("d.json", '{"fields": [{"name": "a"}, {"name": "a"}]}', "column 'a' twice"),
        ("c.csv", "age,wage\n37,52000\n", "is no dictionary: pass a codebook CSV"),
        ("c.csv", "", "is no dictionary"),
        ("c.csv", "name,kind\n,numeric\n", "a line without a name"),
        ("c.csv", "name,kind\nage,martian\n", "column 'age': unknown kind 'martian'"),
        ("c.csv", "name,low,high\nage,young,120\n", "column 'age': an end of its bounds is no number"),
        ("c.csv", "name,levels\nsex,f|f\n", "the dictionary: column 'sex': level 'f' is declared twice"),
        ("s.toml", "target = 3\n", "no columns"),
        ("s.toml", "nope", "not valid TOML"),
    ],
)
def test_what_is_no_dictionary_is_refused(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InvalidInput, match=words) as caught:
        read_dictionary(path)
    assert "52000" not in str(caught.value)


def test_a_dictionary_that_cannot_be_read(tmp_path):
    with pytest.raises(InvalidInput, match="cannot read the dictionary"):
        read_dictionary(tmp_path / "nope.json")
    (tmp_path / "bad.csv").write_bytes(b"name,kind\n\xff\xfe,numeric\n")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        read_dictionary(tmp_path / "bad.csv")
