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


SMARTNOISE = """\
engine: sqlserver
clinic:
  care:
    visits:
      rows: 50_000
      max_ids: 3
      row_privacy: False
      censor_dims: False
      patient_id: {type: string, private_id: True}
      age: {type: int, lower: 0, upper: 120, nullable: True}
      cost: {type: float, lower: 0.0, upper: 1e5, missing_value: 0}
      stay: {type: float, lower: 0, upper: null}
      smoker: {type: boolean}
      ward: {type: string, cardinality: 12}
      country: {type: string, cardinality: 3, categories: [NO, SE, yes]}
      grade: {type: int, cardinality: 3, categories: [1, 2, 3]}
      day: {type: datetime, lower: 2022-08-01, upper: "2023-07-30T00:00:00"}
      born: {type: datetime}
"""
SERVED = {
    "patient_id": {"kind": "ignored"},
    "age": {"kind": "numeric", "bounds": [0.0, 120.0]},
    "cost": {"kind": "numeric", "bounds": [0.0, 1e5]},
    "stay": {"kind": "numeric"},
    "smoker": {"kind": "boolean"},
    "ward": {"kind": "categorical"},
    "country": {"kind": "categorical", "levels": ["NO", "SE", "yes"]},
    "grade": {"kind": "categorical", "levels": ["1", "2", "3"]},
    "day": {"kind": "date", "bounds": [datetime.date(2022, 8, 1), datetime.date(2023, 7, 30)]},
    "born": {"kind": "date"},
}


def lomas(text):
    """The same table as Lomas writes it: no database above, the columns below "columns"."""
    facts = "max_ids: 3\nrows: 50_000\nrow_privacy: False\n"
    columns = [line[4:] for line in text.splitlines() if ": {" in line]
    return facts + "columns:\n" + "\n".join(columns) + "\n"


def bare(found):
    return {name: {k: v for k, v in e.items() if k != "source"} for name, e in entries(found).items()}


@pytest.mark.parametrize("text", [SMARTNOISE, lomas(SMARTNOISE)], ids=["smartnoise", "lomas"])
def test_the_metadata_of_a_server_declares_what_it_says(tmp_path, text):
    path = tmp_path / "clinic.yaml"
    path.write_text(text)
    found = read_dictionary(path)
    assert bare(found) == SERVED and hints(found) == {"stay": "[0, high]", "ward": "12 levels"}
    assert found["age"].entry["source"] == "clinic.yaml" and "source" not in found["patient_id"].entry
    assert found.unit == "patient_id"
    made = schema_template(dictionary=path)
    assert '\nunit = "patient_id"\n' in made and "# unit" not in made
    assert "# The dictionary says: a person may have up to 3 rows.\n" in made
    assert "# The dictionary says: rows = 50000; if that is public, and was not counted" in made
    filled = made.replace('stay = "numeric"', "stay = [0, 9]").replace(
        'ward = "categorical"', 'ward = "ignored"'
    )
    schema = Schema.from_toml(filled.replace('born = "date"', 'born = "ignored"'))
    assert schema.unit == "patient_id"
    assert schema.release.rows is None  # a person decides whether that is public
    assert [c.levels for c in schema.columns if c.name == "country"] == [("NO", "SE", "yes")]


def test_the_unit_of_a_server_is_one_only_where_the_table_has_it(tmp_path):
    path = tmp_path / "clinic.yml"
    path.write_text(SMARTNOISE)
    assert '# unit = "..."' in schema_template({"age": "int", "cost": "float"}, dictionary=path)
    path.write_text(SMARTNOISE.replace(", private_id: True", ""))
    assert "up to 3 rows; name the unit.\n" in schema_template(dictionary=path)
    path.write_text(
        SMARTNOISE.replace("row_privacy: False", "row_privacy: True").replace("max_ids: 3", "max_ids: 1")
    )
    found = read_dictionary(path)
    assert found.unit == "patient_id" and "row_privacy" in found.notes[0] and len(found.notes) == 2


def test_csv_on_the_web_declares_what_it_says():
    found = read_dictionary(
        {
            "@context": "http://www.w3.org/ns/csvw",
            "@type": "Table",
            "maxContributions": 2,
            "publicLength": 344,
            "tableSchema": {
                "columns": [
                    {"name": "who", "datatype": "string", "privacyId": True},
                    {"name": "mass", "datatype": "double", "minimum": 2, "maximum": 7.5},
                    {"name": "age", "datatype": {"base": "integer", "minimum": 0, "maximum": 120}},
                    {"name": "sex", "datatype": "string", "keyValues": ["f", "m"]},
                    {
                        "name": "paid",
                        "datatype": {"base": "decimal", "format": {"decimalChar": ",", "groupChar": "."}},
                        "null": ["-9"],
                    },
                    {
                        "name": "day",
                        "datatype": {"base": "date", "format": "dd.MM.yyyy"},
                        "minimum": "2020-01-01",
                        "maximum": "2020-12-31",
                    },
                ]
            },
        }
    )
    assert found.unit == "who" and [note.split()[0] for note in found.notes] == ["a", "rows"]
    assert entries(found) == {
        "who": {"kind": "ignored"},
        "mass": {"kind": "numeric", "bounds": [2.0, 7.5]},
        "age": {"kind": "numeric", "bounds": [0.0, 120.0]},
        "sex": {"kind": "categorical", "levels": ["f", "m"]},
        "paid": {"kind": "numeric", "decimal": ",", "thousands": ".", "missing_codes": [-9.0]},
        "day": {
            "kind": "date",
            "bounds": [datetime.date(2020, 1, 1), datetime.date(2020, 12, 31)],
            "format": "%d.%m.%Y",
        },
    }


def test_without_a_reader_of_yaml_the_same_content_may_be_json(tmp_path, monkeypatch):
    import yaml

    from curvedp.data import dictionaries

    def missing(name):
        raise ImportError(name)

    path = tmp_path / "clinic.yaml"
    path.write_text(SMARTNOISE)
    monkeypatch.setattr(dictionaries, "import_module", missing)
    with pytest.raises(InvalidInput, match="pip install pyyaml, or pass the same content as JSON"):
        read_dictionary(path)
    table = yaml.safe_load(SMARTNOISE.replace("[NO, SE, yes]", "['NO', 'SE', 'yes']"))
    table["clinic"]["care"]["visits"]["day"] = {
        "type": "datetime",
        "lower": "2022-08-01",
        "upper": "2023-07-30",
    }
    (tmp_path / "clinic.json").write_text(json.dumps(table, default=str))
    found = read_dictionary(tmp_path / "clinic.json")
    assert bare(found) == SERVED and found.unit == "patient_id"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "begins as YAML and is none"),
        ("a: !!python/object/apply:os.getcwd []\n", "no dictionary of one table"),
        ("[1, 2]", "no dictionary of one table"),
        ("a:\n  b: {x: {type: int}}\n  c: {x: {type: int}}\n", "no dictionary of one table"),
        ("columns: {x: {type: int, lower: a, upper: 2}}\n", "an end of its bounds is no number"),
        ("columns: {x: {type: int, lower: 3, upper: 2}}\n", "reversed"),
    ],
)
def test_what_is_no_metadata_of_a_server_is_refused(tmp_path, text, words):
    path = tmp_path / "d.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=words):
        read_dictionary(path)


def test_no_text_of_a_server_reaches_a_comment(tmp_path):
    path = tmp_path / "d.yaml"
    path.write_text(
        'max_ids: "2\\n[columns]"\nrows: "x\\x7f"\ncolumns:\n'
        '  a: {type: string, cardinality: "3\\nunit = 1"}\n  b: {type: int}\n'
    )
    made = schema_template(dictionary=path)
    assert "The dictionary says" not in made and "unit = 1" not in made


DDI = """\
<?xml version="1.0" encoding="UTF-8"?>
<codeBook xmlns="ddi:codebook:2_5" version="2.5"><stdyDscr/><dataDscr>
<var ID="V1" name="age" intrvl="contin"><labl>Age</labl>
  <valrng><range UNITS="INT" min="0" max="120"/></valrng><invalrng><item VALUE="-9"/></invalrng>
  <sumStat type="min">17</sumStat><sumStat type="max">93</sumStat>
  <catgry missing="Y"><catValu>-8</catValu><labl>refused</labl><catStat type="freq">4</catStat></catgry>
  <catgry missing="Y"><catValu>Sysmiss</catValu></catgry><varFormat type="numeric"/></var>
<var ID="V2" name="sex" intrvl="discrete">
  <catgry><catValu>1</catValu><labl xml:lang="en">Female
  </labl><labl xml:lang="de">Frau</labl><catStat type="freq">812</catStat></catgry>
  <catgry missing="N"><catValu>2</catValu><labl>Male</labl></catgry>
  <catgry missing="Y"><catValu>9</catValu><labl>no answer</labl></catgry><varFormat type="numeric"/></var>
<var ID="V3" name="wage" intrvl="contin"><valrng><range min="812.5" max="27318.4"/></valrng>
  <sumStat type="min">812.5</sumStat><sumStat type="max">27318.40</sumStat><varFormat type="numeric"/></var>
<var ID="V4" name="hours" intrvl="contin"><sumStat type="max">61</sumStat><varFormat type="numeric"/></var>
<var ID="V5" name="village" intrvl="discrete"><varFormat type="character"/>
  <catgry><catValu>Aa</catValu><catStat type="freq">3</catStat></catgry>
  <catgry><catValu>Bb</catValu><catStat type="freq">1</catStat></catgry></var>
<var ID="V6" name="code" intrvl="discrete"><varFormat type="character"/>
  <catgry><catValu>a</catValu></catgry><catgry><catValu>b</catValu></catgry></var>
<var ID="V7" name="year" intrvl="discrete"><valrng><range min="2019" max="2019"/></valrng>
  <varFormat type="numeric"/></var>
<var ID="V8" name="day"><valrng><range min="2020-01-01" max="2020-12-31"/></valrng>
  <varFormat type="character" category="date"/></var>
<var ID="V9" name="swap" intrvl="discrete"><varFormat type="numeric"/>
  <catgry><catValu>1</catValu><labl>2</labl></catgry><catgry><catValu>2</catValu><labl>1</labl></catgry></var>
<var ID="V10" name="note"><varFormat type="character"/></var>
</dataDscr></codeBook>
"""


def test_a_ddi_codebook_declares_what_was_declared_and_nothing_of_the_data(tmp_path):
    path = tmp_path / "study.xml"
    path.write_text(DDI)
    found = read_dictionary(path)
    computed = "[low, high], public ones: sumStat is computed from the data"
    assert bare(found) == {
        "age": {"kind": "numeric", "bounds": [0.0, 120.0], "missing_codes": [-8.0, -9.0]},
        "sex": {"kind": "categorical", "levels": {"Female": ["1"], "Male": ["2"]}},
        "wage": {"kind": "numeric"},  # its range is the minimum and the maximum of the data
        "hours": {"kind": "numeric"},
        "village": {"kind": "categorical"},  # its categories were counted, and nobody labelled them
        "code": {"kind": "categorical", "levels": ["a", "b"]},
        "year": {"kind": "numeric"},
        "day": {"kind": "date", "bounds": [datetime.date(2020, 1, 1), datetime.date(2020, 12, 31)]},
        "swap": {"kind": "categorical", "levels": ["1", "2"]},  # a label that is another's code
        "note": {"kind": "categorical"},
    }
    assert hints(found) == {
        "wage": computed,
        "hours": computed,
        "village": "counted in the data, not declared",
    }
    made = schema_template(dictionary=path)
    assert "# The dictionary says: valid ranges, and some programs write there what they found in" in made
    for text in ("812", "27318", "61", "Aa", "Bb", "17", "93"):
        assert text not in made[made.index("[columns]") :], text
    schema = Schema.from_toml('[columns]\nsex = {levels = {Female = ["1"], Male = ["2"]}}\n')
    assert schema.read({"sex": ["1", "Male", "9"]}).tolist() == [[1, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<codeBook><dataDscr/></codeBook>", "no DDI codebook with variables"),
        ("<codeBook><var", "no DDI codebook with variables"),
        ("<!DOCTYPE codeBook SYSTEM 'file:///etc/passwd'><codeBook/>", "has a DTD"),
        (
            "<!DOCTYPE a [<!ENTITY b 'x'><!ENTITY c '&b;&b;&b;'>]><codeBook><var name='&c;'/></codeBook>",
            "has a DTD",
        ),
        ("<codeBook><var name='a'/><var name='a'/></codeBook>", "column 'a' twice"),
    ],
)
def test_what_is_no_ddi_codebook_is_refused_and_no_entity_is_read(tmp_path, text, words):
    path = tmp_path / "d.xml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=words):
        read_dictionary(path)
