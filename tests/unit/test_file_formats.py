"""How files are written: encoding, delimiter and decimal sign, declared in the schema or as options."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from curvedp.analyses.explore import private_bounds
from curvedp.cli import app
from curvedp.data import FileFormat, Numeric, Schema
from curvedp.data.delimited import csv_names, csv_rows, csv_tables
from curvedp.errors import InvalidInput

COLUMNS = [Numeric("größe", 0, 10), Numeric("y", 0, 10)]
WRITTEN = FileFormat("latin-1", ";", ",")


@pytest.mark.parametrize(
    "encoding", ["utf-8", "UTF8", "latin-1", "cp1252", "iso8859-15", "mac-roman", "koi8-r"]
)
def test_encodings_in_which_a_byte_is_a_character_are_read(encoding, tmp_path):
    file = FileFormat(encoding)
    assert FileFormat(file.encoding) == file
    path = tmp_path / "data.csv"
    path.write_bytes("a,b\nx,1\n".encode(encoding))
    assert csv_names(path, file=file) == ("a", "b") and csv_rows(path, file=file) == 1


@pytest.mark.parametrize(
    "encoding",
    [
        "utf-16",
        "utf-32-le",
        "utf-7",
        "shift_jis",
        "gb18030",
        "iso2022_jp",
        "cp500",
        "hex",
        "idna",
        "",
        3,
        None,
    ],
)
def test_encodings_in_which_one_record_could_change_another_are_refused(encoding):
    with pytest.raises(InvalidInput, match="save the file as UTF-8"):
        FileFormat(encoding)


def test_why_they_are_refused():
    """One byte of a record swallows the line break after it, or an escape changes every later line."""
    lines = b"1\xe4\n2\n"
    assert lines.decode("gb18030", "replace").count("\n") <= lines.decode("latin-1").count("\n") == 2
    assert b"x\x1b$B\n12\n".decode("iso2022_jp", "replace").split("\n")[1] != "12"
    assert b"x\x1b$B\n12\n".decode("latin-1").split("\n")[1] == "12"


def test_a_byte_that_the_encoding_does_not_know_changes_its_cell_only(tmp_path):
    path = tmp_path / "data.csv"
    for encoding in ("utf-8", "cp1252", "latin-1"):
        path.write_bytes(b"k,n\n\x81\xff,1\n\xe4,2\nx,3\n")
        (table,) = csv_tables(path, file=FileFormat(encoding))
        assert table.columns["n"] == ("1", "2", "3") and table.columns["k"][2] == "x"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"encodign": "utf-8"}, r"table \[file\] with some of encoding, delimiter, decimal"),
        ("latin-1", r"table \[file\]"),
        ({"delimiter": ";;"}, "one character"),
        ({"delimiter": 3}, "one character"),
        ({"decimal": ";"}, "decimal sign"),
        ({"encoding": "klingon"}, "save the file as UTF-8"),
    ],
)
def test_refusals(content, words):
    with pytest.raises(InvalidInput, match=words):
        Schema.from_dict({"file": content, "column": [{"name": "a", "kind": "numeric", "bounds": [0, 1]}]})


def test_the_decimal_sign_of_a_file_is_that_of_its_columns_unless_they_declare_one():
    columns = [Numeric("a", 0, 9), Numeric("b", 0, 9, decimal="."), Numeric("c", 0, 9, thousands=",")]
    schema = Schema(columns, file=FileFormat(decimal=","))
    cells = ["1,5", "1.5", "1,234.5"]
    table = dict.fromkeys("abc", cells)
    expected = [[1.5, math.nan, math.nan], [math.nan, 1.5, 1.5], [math.nan, math.nan, 1234.5]]
    np.testing.assert_array_equal(schema.read(table), expected)
    assert schema.columns == tuple(columns)
    plain = schema.with_file(decimal=".")
    np.testing.assert_array_equal(plain.read(table)[:, 0], [math.nan, 1.5, math.nan])
    assert Schema.from_toml(plain.to_toml()) == plain


def write(path, n=400):
    random = np.random.default_rng(0)
    x = random.uniform(0, 10, n)
    rows = [f"{a:.3f};{b:.3f}".replace(".", ",") for a, b in zip(x, 0.5 * x + 2, strict=True)]
    path.write_text("\n".join(["größe;y", *rows]) + "\n", encoding="latin-1")
    return x


def run(*arguments):
    found = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert found.exit_code == 0, found.output
    return found.output


@pytest.mark.parametrize("declared", [True, False], ids=["in the schema", "as options"])
def test_commands_read_files_as_they_are_written(declared, tmp_path):
    data, schema, model = tmp_path / "data.csv", tmp_path / "schema.toml", tmp_path / "model.json"
    x = write(data)
    made = Schema(COLUMNS, target="y", file=WRITTEN if declared else FileFormat())
    schema.write_text(made.to_toml(), encoding="utf-8")
    options = () if declared else ("--encoding", "latin-1", "--delimiter", ";", "--decimal", ",")
    common = ("--epsilon", 50, "--json", "--seed", 1)
    checked = json.loads(run("check", data, "--schema", schema, *common, *options))
    assert "nothing unusual" in json.dumps(checked)
    found = json.loads(run("describe", data, "--schema", schema, *common, *options))
    assert abs(found["columns"][0]["mean"]["value"] - x.mean()) < 0.5
    run("fit", data, "--schema", schema, "--delta", 1e-4, "--out", model, *common, *options)
    assert json.loads(model.read_text())["schema"]["file"] == WRITTEN.to_dict()  # where predict finds it
    scores = json.loads(run("score", model, data, *common))
    assert json.loads(run("score", model, data, *common, *options)) == scores
    predicted = json.loads(run("predict", model, data, "--json"))["predictions"]
    assert np.corrcoef(predicted, x)[0, 1] > 0.99
    plain = tmp_path / "plain.csv"
    plain.write_text("größe,y\n" + "\n".join(f"{a:.3f},1" for a in x) + "\n", encoding="utf-8")
    back = ("--encoding", "utf-8", "--delimiter", ",", "--decimal", ".")
    assert json.loads(run("predict", model, plain, "--json", *back))["predictions"] == predicted


def test_without_the_decimal_sign_every_cell_is_missing_and_only_a_check_says_so(tmp_path):
    data, schema = tmp_path / "data.csv", tmp_path / "schema.toml"
    write(data)
    schema.write_text(Schema(COLUMNS, file=FileFormat("latin-1", ";")).to_toml(), encoding="utf-8")
    found = run("check", data, "--schema", schema, "--epsilon", 20, "--json", "--seed", 1)
    assert "is the decimal sign a comma?" in found


def test_bounds_are_bought_of_numbers_as_they_are_written(tmp_path):
    data, schema = tmp_path / "data.csv", tmp_path / "schema.toml"
    random = np.random.default_rng(0)
    cells = [f"{v:.2f}".replace(".", ",") for v in random.uniform(100, 200, 20_000)]
    cells[::2] = ["-9"] * 10_000
    data.write_text("\n".join(["x", *cells]))
    schema.write_text(
        '[file]\ndelimiter = ";"\ndecimal = ","\n\n[[column]]\nname = "x"\nkind = "numeric"\n'
        "missing_codes = [-9]\nbounds = []\n"
        '\n[[column]]\nname = "d"\nkind = "date"\nbounds = ["2020-01-01", "2021-01-01"]\n'
    )
    run("bounds", data, "--columns", "x", "--epsilon", 5, "--schema", schema, "--seed", 3, "--json")
    (column, _) = Schema.load(schema).columns
    assert 50 <= column.low <= 110 and 190 <= column.high <= 400 and column.missing_codes == (-9.0,)
    found = private_bounds(
        {"x": cells},
        ["x"],
        epsilon=5.0,
        file=FileFormat(decimal=","),
        missing_codes={"x": [-9]},
        random_state=3,
    )
    assert (found.columns[0].low, found.columns[0].high) == (column.low, column.high)
    refused = CliRunner().invoke(
        app, ["bounds", str(data), "--columns", "d", "--epsilon", "1", "--schema", str(schema)]
    )
    assert refused.exit_code != 0
    assert "cannot be bought" in " ".join((refused.output + refused.stderr).split())
