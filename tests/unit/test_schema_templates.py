"""Schema files to fill in: names and declared types of a table, never a cell of it."""

from __future__ import annotations

import gzip
import time
import tomllib

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curvedp.data import Categorical, FileFormat, Ignored, Numeric, Schema, schema_template
from curvedp.data.delimited import looks_like_data
from curvedp.data.dictionaries import kind_of_type
from curvedp.errors import DataError, InvalidInput


def columns(text):
    return tomllib.loads(text)["columns"]


@pytest.fixture
def csv_path(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("age,race,wage\n37,martian,123456\n")
    return path


def test_the_template_shows_names_and_nothing_of_the_values(csv_path):
    for form in ("compact", "long"):
        text = schema_template(csv_path, form=form)
        for value in ("37", "martian", "123456"):
            assert value not in text
    assert columns(schema_template(csv_path)) == {"age": "", "race": "", "wage": ""}
    assert [entry["name"] for entry in tomllib.loads(text)["column"]] == ["age", "race", "wage"]


@pytest.mark.parametrize("form", ["compact", "long"])
def test_the_template_asks_whether_a_person_may_have_several_rows(form):
    text = schema_template({"age": "Int64", "patient_id": "string", "valid": "bool"}, form=form)
    assert "May a person have several rows?" in text.split("record =")[0]
    assert '\n# unit = "patient_id"\n' in text and 'rows_per_person = "one"' in text
    uncommented = tomllib.loads(text.replace("# unit =", "unit ="))
    assert uncommented["unit"] == "patient_id" and "unit" not in tomllib.loads(text)
    assert '\n# unit = "..."\n' in schema_template({"age": "Int64", "valid": "bool"}, form=form)


def test_a_name_in_the_template_is_quoted():
    text = schema_template({'the "id': "string"}).replace("# unit =", "unit =")
    assert tomllib.loads(text)["unit"] == 'the "id'


@pytest.mark.parametrize(
    "line",
    [
        "37,martian,52000",
        "name,2020-01-31,b",
        "name,31.1.2020,b",
        "name,12:30,b",
        "name,,b",
        "name,true,b",
        "name,nan,b",
        "name,female,b",
        "Anna Schmidt,widow,b",
        "martian,widow,martian",
        "anna@example.org,widow",
        "+49301234,widow",
        "name," + "x" * 101,
        "name,\x07",
        'name,"<secret>"',
    ],
)
def test_a_first_line_that_looks_like_data_is_not_shown(tmp_path, line):
    path = tmp_path / "data.csv"
    path.write_text(f"{line}\n{line}\n")
    with pytest.raises(
        InvalidInput, match=r"looks like data, .* pass `header=True`, .* `header=False`"
    ) as caught:
        schema_template(path)
    shown = str(caught.value).replace(str(path), "").replace("names", "")
    for cell in filter(None, line.split(",")):
        assert cell.strip('"') not in shown or cell in ("b", "name")
    with pytest.raises(InvalidInput, match="write them into its first line"):
        schema_template(path, header=False)
    if line.count("martian") == 2:
        with pytest.raises(InvalidInput, match=r"\(columns 1 and 3\)") as caught:
            schema_template(path, header=True)
        assert "martian" not in str(caught.value).replace(str(path), "")
    else:
        assert len(columns(schema_template(path, header=True))) == line.count(",") + 1
    width = line.count(",") + 1
    names = [f"x{i}" for i in range(width)]
    assert list(columns(schema_template(path, names=names))) == names
    more = schema_template(path, names=[*names, "more"])
    assert list(columns(more)) == [*names, "more"]  # the first line is a record, and decides nothing


@pytest.mark.parametrize(
    "line",
    ["age,sex,wage", "x,y,n", "education-num,hours.per.week,capital_gain", "größe,Âge", "a(b),c[1],d%"],
)
def test_plain_names_are_no_data(line):
    assert not looks_like_data(line.split(","))


def test_a_parquet_file_gives_names_and_types_and_no_value_of_its_footer(tmp_path):
    path = tmp_path / "data.parquet"
    table = pa.table(
        {
            "age": pa.array([4711], pa.int16()),
            "wage": pa.array([12.25]),
            "race": ["martian"],
            "city": pa.array(["gotham"]).dictionary_encode(),
            "smoker": [True],
            "visit": pa.array([np.datetime64("1999-07-17", "us")]),
            "when": pa.array([1], pa.time64("us")),
        }
    )
    pq.write_table(table, path)
    text = schema_template(path)
    assert columns(text) == {
        "age": "numeric",
        "wage": "numeric",
        "race": "categorical",
        "city": "categorical",
        "smoker": "boolean",
        "visit": "date",
        "when": "",
    }
    for value in ("4711", "12.25", "martian", "gotham", "1999"):
        assert value not in text
    folder = tmp_path / "folder"
    folder.mkdir()
    pq.write_table(table, folder / "part.parquet")
    assert schema_template(folder) == text
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InvalidInput, match="is damaged") as caught:
        schema_template(path)
    assert "martian" not in str(caught.value) and caught.value.__context__ is None


def test_a_file_compressed_by_gzip_is_read_and_a_damaged_one_shows_nothing(tmp_path, csv_path):
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(csv_path.read_bytes()))
    assert schema_template(path) == schema_template(csv_path)
    schema = Schema([Numeric("age", 0, 120), Numeric("wage", 0, 1e6)])
    assert schema.read(path).tolist() == [[37.0, 123456.0]]
    for damaged in (b"\x1f\x8bmartian", gzip.compress(b"martian,widow\n" * 100)[:-30]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="gzip file is damaged") as caught:
            schema.read(path)
        assert "martian" not in str(caught.value) and caught.value.__context__ is None


class Secret(str):
    """A cell that says so when it is looked at."""

    def __hash__(self):
        raise AssertionError("a cell was read")

    __str__ = __repr__ = __eq__ = __len__ = __hash__


def test_of_a_data_frame_types_are_read_and_no_cell():
    text = schema_template(pd.DataFrame({"name": pd.Series([Secret("anna")], dtype=object), "age": [3]}))
    assert columns(text) == {"name": "", "age": "numeric"}
    frame = pd.DataFrame({"c": pd.Categorical(["martian"]), "d": pd.to_datetime(["1999-07-17"]), "b": [True]})
    assert columns(schema_template(frame)) == {"c": "categorical", "d": "date", "b": "boolean"}
    assert "martian" not in schema_template(frame)


@pytest.mark.parametrize(
    "make", [pl.DataFrame, lambda d: pl.DataFrame(d).lazy(), lambda d: pl.DataFrame(d).to_arrow()]
)
def test_other_frames_give_the_same(make):
    data = {"age": [1], "wage": [0.5], "race": ["martian"], "smoker": [True]}
    assert columns(schema_template(make(data))) == {
        "age": "numeric",
        "wage": "numeric",
        "race": "categorical",
        "smoker": "boolean",
    }


def test_the_categories_of_a_type_are_not_read():
    frame = pl.DataFrame({"race": ["martian"]}, schema={"race": pl.Enum(["martian", "venusian"])})
    text = schema_template(frame)
    assert columns(text) == {"race": "categorical"} and "martian" not in text and "venusian" not in text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Int64", "numeric"),
        ("uint8", "numeric"),
        ("double[pyarrow]", "numeric"),
        ("decimal128(10, 2)", "numeric"),
        ("dictionary<values=string, indices=int32, ordered=0>", "categorical"),
        ("string[python]", "categorical"),
        ("large_string", "categorical"),
        ("bool", "boolean"),
        ("datetime64[ns, UTC]", "date"),
        ("date32[day]", "date"),
        ("timestamp[us]", "date"),
        ("object", ""),
        ("duration[ns]", ""),
        ("timedelta64[ns]", ""),
        ("list<item: int64>", ""),
        ("time64[us]", ""),
        ("", ""),
        ("<M8", ""),
    ],
)
def test_the_kind_that_a_type_suggests(text, kind):
    assert kind_of_type(text) == kind


def test_what_is_no_table_is_refused():
    for source in (5, "nope.csv", [1, 2]):
        with pytest.raises(InvalidInput):
            schema_template(source)
    with pytest.raises(InvalidInput, match="name a table, a dictionary, or both"):
        schema_template()
    with pytest.raises(InvalidInput, match='"compact" or "long"'):
        schema_template({"age": "Int64"}, form="short")


def test_the_schema_keeps_how_the_file_is_written(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("age;wage\n37;1,5\n")
    for form in ("compact", "long"):
        text = schema_template(path, delimiter=";", file=FileFormat(decimal=","), form=form)
        assert tomllib.loads(text)["file"] == {"delimiter": ";", "decimal": ","}
    text = schema_template(path, delimiter=";", file=FileFormat(decimal=","))
    text = text.replace('\nage = ""', "\nage = [0, 120]").replace('wage = ""', "wage = [0, 10]")
    assert Schema.from_toml(text).read(path).tolist() == [[37.0, 1.5]]


@pytest.mark.parametrize("names", [["a", "a"], ["a", ""], ["a", 3], "ab", {"a": "b"}, None])
def test_names_of_a_file_are_different_texts(names):
    with pytest.raises(InvalidInput, match="names must be different texts"):
        FileFormat(names=names)
    with pytest.raises(InvalidInput, match="names must be different texts"):
        Schema.from_dict({"file": {"names": names}, "columns": {"a": [0, 1]}})


def test_a_schema_keeps_the_names_of_a_file(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("37,1\n\n38,2,surplus\n39\n")
    schema = Schema([Numeric("b", 0, 9), Numeric("a", 0, 99)], file=FileFormat(names=["a", "b"]))
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(schema.to_dict()) == schema
    np.testing.assert_array_equal(schema.read(path), [[1, 37], [2, 38], [np.nan, 39]])
    path.write_text("")
    assert schema.read(path).shape == (0, 2)


def test_a_template_is_refused_until_filled_in(csv_path):
    text = schema_template(csv_path)
    with pytest.raises(InvalidInput, match="column 'age': the kind is not filled in"):
        Schema.from_toml(text)
    text = text.replace('\nage = ""', '\nage = "numeric"')
    with pytest.raises(InvalidInput, match=r"column 'age': the bounds are not filled in"):
        Schema.from_toml(text)
    text = text.replace('age = "numeric"', "age = [0, 120]").replace('race = ""', 'race = "categorical"')
    with pytest.raises(InvalidInput, match="column 'race': the levels are not filled in"):
        Schema.from_toml(text)
    text = text.replace('race = "categorical"', 'race = ["a", "b"]').replace('wage = ""', 'wage = "ignored"')
    assert Schema.from_toml(text).columns == (
        Numeric("age", 0, 120),
        Categorical("race", ("a", "b")),
        Ignored("wage"),
    )


def test_the_long_form_is_refused_until_filled_in(csv_path):
    text = schema_template(csv_path, form="long")
    with pytest.raises(InvalidInput, match="column 'age': the kind is not filled in"):
        Schema.from_toml(text)
    text = text.replace('kind = ""', 'kind = "numeric"', 1).replace("bounds = []", "bounds = [0, 120]", 1)
    text = text.replace('kind = ""', 'kind = "ignored"')
    assert Schema.from_toml(text).columns == (Numeric("age", 0, 120), Ignored("race"), Ignored("wage"))


def test_fifty_thousand_columns_take_a_moment(tmp_path):
    path = tmp_path / "data.csv"
    names = [f"c{i}" for i in range(50_000)]
    path.write_text(",".join(names) + "\n")
    start = time.process_time()
    schema_template(path)
    assert time.process_time() - start < 10.0  # a minute, where a name is looked for among all others
    start = time.process_time()
    assert len(Schema.of_bounds((0, 1), n_features=len(names), names=names).feature_names) == 50_000
    assert time.process_time() - start < 10.0
