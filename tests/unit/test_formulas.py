"""Formulas and derived columns: what they mean, what is refused; every entrance computes the same."""

from __future__ import annotations

import json
import pickle
import re
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import curvedp
from curvedp import PrivateLinearRegression, PrivateRidge
from curvedp.analyses.explore.check import check
from curvedp.analyses.explore.check import plan as plan_check
from curvedp.analyses.explore.describe import describe
from curvedp.analyses.predictions import Predictor
from curvedp.cli.workflow import release_report
from curvedp.data import Boolean, Categorical, Date, Derived, Ignored, Numeric, Schema
from curvedp.data.formulas.notation import read_formula
from curvedp.data.formulas.numbers import FUNCTIONS
from curvedp.errors import DataError, InvalidInput, ModelFileError
from curvedp.release import modelfile

COLUMNS = (
    Numeric("age", 0, 100),
    Numeric("capital", 0, 1e5),
    Numeric("my col", -1, 3),
    Categorical("region", ("n", "s", "w")),
    Boolean("female"),
    Date("visit", "2020-01-01", "2021-12-31"),
    Ignored("note"),
    Numeric("wage", 1, 1e5),
)
SCHEMA = Schema(COLUMNS)
FORMULA = (
    "log(wage) ~ age + I(age**2) + C(region):female + log1p(capital) + spline(age, knots=[30, 60], degree=2) "
    "+ `my col`:region + year(visit)"
)


def frame(n: int = 300) -> pd.DataFrame:
    random = np.random.default_rng(3)
    age, female = random.uniform(0, 100, n), random.integers(0, 2, n)
    return pd.DataFrame(
        {
            "note": ["x"] * n,
            "age": np.where(random.random(n) < 0.05, np.nan, age),
            "capital": random.exponential(1e3, n),
            "my col": random.uniform(-2, 4, n),
            "region": random.choice(["n", "s", "w", "elsewhere"], n),
            "female": female,
            "visit": [f"{2020 + i % 3}-0{1 + i % 9}-17" for i in range(n)],
            "wage": np.exp(3 + 0.02 * age + 0.3 * female + random.normal(0, 0.3, n)),
        }
    )


def test_the_terms_the_bounds_and_the_target_of_a_formula():
    schema = SCHEMA.with_formula(FORMULA)
    assert schema.terms == (
        "age", "I(age ** 2)", "log1p(capital)", "spline(age, knots=[30, 60], degree=2)", "year(visit)",
        "C(region):female", "`my col`:region",
    )  # fmt: skip
    assert schema.feature_names[:3] == ("age", "I(age ** 2)", "log1p(capital)")
    assert schema.feature_names[-6:] == (
        "region=n:female", "region=s:female", "region=w:female",
        "my col:region=n", "my col:region=s", "my col:region=w",
    )  # fmt: skip
    bounds = dict(zip(schema.feature_names, zip(*schema.bounds, strict=True), strict=True))
    assert bounds["I(age ** 2)"] == (0.0, 1e4)
    assert bounds["region=n:female"] == (0.0, 1.0)
    assert bounds["my col:region=s"] == (-1.0, 3.0)
    assert bounds["year(visit)"] == (2020.0, 2021.0)
    assert bounds["log1p(capital)"][1] == pytest.approx(np.log1p(1e5), rel=1e-14)
    assert schema.target == "log(wage)" and schema.target_source == "wage"
    assert "wage" not in [column.name for column in schema.features]


def test_a_missing_cell_is_first_the_middle_and_then_transformed():
    schema = Schema((Numeric("x", 0, 10, missing="indicator"), Categorical("r", ("a", "b")))).with_formula(
        "~ x + I(x**2) + log1p(x) + C(r):x"
    )
    assert schema.feature_names == ("x", "x?missing", "I(x ** 2)", "log1p(x)", "r=b:x")
    found = schema.read({"x": [None, "?", 4, 99, -3], "r": ["b", "b", "zzz", "b", "a"]})
    expected = [
        [np.nan, 1, 25, np.log1p(5), 5],
        [np.nan, 1, 25, np.log1p(5), 5],
        [4, 0, 16, np.log1p(4), 0],
        [99, 0, 100, np.log1p(10), 10],
        [-3, 0, 0, 0, 0],
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_a_level_for_missing_cells_takes_part_in_interactions():
    columns = (Numeric("x", 0, 10), Categorical("r", ("a", "b"), missing="level"))
    schema = Schema(columns).with_formula("~ r:x")
    assert schema.feature_names == ("r=a:x", "r=b:x", "r=(missing):x")
    assert schema.read({"x": [4], "r": [None]}).tolist() == [[0, 0, 4]]


@pytest.mark.parametrize(
    "schema",
    [
        SCHEMA.with_formula(FORMULA),
        SCHEMA.with_formula("~ age - 1"),
        Schema(COLUMNS, derived=[Derived("a2", "age**2"), Derived("slope", "C(region):a2")]),
        Schema(COLUMNS, target="ln", derived=[Derived("ln", "log(wage)")]),
    ],
)
def test_files_and_pickles_say_the_same(schema):
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema and again.feature_names == schema.feature_names


def test_a_schema_file_may_hold_the_formula(tmp_path):
    plain = SCHEMA.to_toml()
    path = tmp_path / "schema.toml"
    path.write_text(f'formula = "{FORMULA}"\n' + plain, encoding="utf-8")
    assert Schema.load(path) == SCHEMA.with_formula(FORMULA)
    path.write_text('target = "age"\nformula = "wage ~ capital"\n' + plain, encoding="utf-8")
    with pytest.raises(InvalidInput, match="the target is 'age', the formula's is 'wage'"):
        Schema.load(path)
    path.write_text('formula = "~ age"\nterms = ["age"]\n' + plain, encoding="utf-8")
    with pytest.raises(InvalidInput, match="remove one"):
        Schema.load(path)


def test_derived_columns_are_features_beside_the_declared_ones():
    schema = Schema(
        (Numeric("x", 0, 2), Categorical("r", ("a", "b"))),
        derived=[Derived("x2", "x**2"), Derived("s", "r:x2"), Derived("bin", "cut(x2, breaks=[1])")],
    )
    assert schema.feature_names == (
        "x", "r=a", "r=b", "x2", "r=b:x2", "bin in [0, 1]", "bin in (1, 4]",
    )  # fmt: skip
    assert schema.read([[1.5, "b"]]).tolist() == [[1.5, 0, 1, 2.25, 2.25, 0, 1]]


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("~ scale(age)", "would look at the data .* write the column itself"),
        ("~ center(age)", "would look at the data"),
        ("~ standardize(age)", "would look at the data"),
        ("~ poly(age, 2)", r"would look at the data .* write x \+ I\(x\*\*2\)"),
        ("~ cr(age)", r"would look at the data .* knots=\[...\]"),
        ("~ bs(age)", r"knots must be declared.*knots=\[...\] with numbers between 0 and 100"),
        ("~ bs(age, df=5)", "write bs"),
        ("~ hashed(region)", "declare the levels"),
        ("~ lag(age)", "would look at the data"),
        ("~ log(age)", r"needs values > 0, and 0 is within .* write log1p\(age\)"),
        ("~ sqrt(`my col`)", "needs values ≥ 0"),
        ("~ I(1 / age)", "may divide by 0"),
        ("~ I(age ** -1)", "may divide by 0"),
        ("~ exp(capital)", "can exceed 1e150"),
        ("~ I(`my col` ** 0.5)", "needs values ≥ 0"),
        ("~ I(age ** age)", "exponent must be a number"),
        ("~ agee", "did you mean 'age'"),
        ("~ lg(age)", "did you mean 'log'"),
        ("~ zzz(age)", "is not a function of formulas: use one of"),
        ("~ note", "is ignored"),
        ("~ log(region)", r"has levels, no numbers: write C\(region\)"),
        ("~ C(age)", "needs declared levels"),
        ("~ spline(age, knots=[30, 20])", "must increase"),
        ("~ spline(age, knots=[300])", "between the declared bounds 0 and 100"),
        ("~ spline(age, knots=[30], degree=9)", "degree must be 1 to 5"),
        ("~ spline(age, knots=capital)", "must be a list"),
        ("~ cut(age)", "breaks must be declared"),
        ("~ log1p(spline(age, knots=[3]))", "has several columns"),
        ("~ visit:age", r"write days\(visit\)"),
        ("~ year(age)", "needs a column of dates"),
        ("~ I(3)", "same for every row"),
        ("~ 2:age", "has a number as a factor"),
        ("~ age | capital", "cannot be read"),
        ("~ (age", "cannot be read"),
        ("~ (age + capital)**9", "at most 5"),
        ("~ (age + capital)**(9999)", "at most 5"),
        ("~ " + "*".join(f"x{i}" for i in range(20)), "more than 20000 terms; name the interactions"),
        ("~ " + ":".join(f"(x{i} + z{i})" for i in range(40)), "more than 20000 terms"),
        ("~ (" + " + ".join(f"x{i}" for i in range(150)) + ")**2", "more than 20000 terms"),
        ("~ 1", "no term"),
        ("~ region + C(region)", "the same column"),
        ("~ age.real", "is not a column"),
        ("~ I(age[0])", "is not understood"),
        ("~ I((lambda: 1)())", "cannot be read|not understood|not a function"),
        ("~ I(age if age else 1)", "is not understood"),
        ("~ __import__('os').getcwd()", "cannot be read|not a function"),
        ("~ I(__import__('os'))", "not a function"),
        ("~ os.getpid()", "not a function"),
        ("~ I(" + "-" * 600 + "age)", "nested too deeply|cannot be read"),
        ("wage + age ~ capital", "several targets"),
        ("wage ~ wage", "is the target"),
        ("log(wage) ~ wage", "is the target"),
        ("log(wage + age) ~ capital", "function of one numeric column"),
        ("C(region) ~ age", "function of one numeric column"),
        ("salary ~ age", "not a column of the schema"),
        (7, "must be text"),
    ],
)
def test_refusals_say_why_and_what_to_write(formula, said):
    with pytest.raises(InvalidInput, match=said) as caught:
        SCHEMA.with_formula(formula)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("derived", "said"),
    [
        ([Derived("a", "b"), Derived("b", "a + 1")], "computed from itself"),
        ([Derived("age", "capital")], "declared twice"),
        ([Derived("s", "spline(age, knots=[5])"), Derived("t", "s + 1")], "several columns"),
    ],
)
def test_derived_columns_are_refused_where_they_make_no_sense(derived, said):
    with pytest.raises(InvalidInput, match=said):
        Schema(COLUMNS, derived=derived)


@pytest.mark.parametrize("joined", ["{} + {}", "{} * 2 + {}", "{}:{}", "minimum({}, {})"])
def test_columns_that_double_each_other_are_refused_at_once(joined):
    """A file of forty lines must not ask for 2⁴⁰ operations."""
    names = ["age", *(f"d{i}" for i in range(40))]
    derived = [Derived(b, joined.format(a, a)) for a, b in pairwise(names)]
    with pytest.raises(InvalidInput, match="more than"):
        Schema(COLUMNS, derived=derived)


@pytest.mark.parametrize(
    "content",
    [
        {"terms": "age"},
        {"terms": [3]},
        {"terms": ["I(age"]},
        {"terms": []},
        {"formula": ["age"]},
        {"derived": {"name": "a"}},
        {"derived": [{"name": "a"}]},
        {"derived": [{"name": "a", "expression": 3}]},
        {"derived": [{"name": "a", "expression": "age", "more": 1}]},
        {"derived": [{"name": "a", "expression": "(" * 400 + "age" + ")" * 400}]},
        {"derived": [{"name": "a", "expression": "-" * 900 + "age"}]},
        {"terms": ["-" * 900 + "age"]},
        {"terms": ["age + " * 190 + "age"]},
    ],
)
def test_odd_files_are_refused_in_one_line(content):
    with pytest.raises(InvalidInput) as caught:
        Schema.from_dict({**SCHEMA.to_dict(), **content})
    assert "\n" not in str(caught.value)


def test_every_entrance_computes_the_same(tmp_path):
    import dask.array as da
    import dask.dataframe as dd

    table, schema = frame(), SCHEMA.with_formula(FORMULA)
    expected = schema.read(table)
    table.to_csv(tmp_path / "table.csv", index=False)
    table.to_parquet(tmp_path / "table.parquet", row_group_size=77)
    lazy = dd.from_pandas(table, npartitions=3)
    found = {
        "polars": schema.read(pl.from_pandas(table)),
        "arrow": schema.read(pa.Table.from_pandas(table)),
        "mapping": schema.read({name: list(table[name]) for name in table}),
        "csv": schema.read(tmp_path / "table.csv"),
        "without what is not used": schema.read(table.drop(columns=["note", "wage"])),
        "dask": schema.read(lazy).compute().to_numpy(),
        "parquet": schema.read(tmp_path / "table.parquet"),
        "rows": schema.read(table[[column.name for column in schema.features]].to_numpy(dtype=object)),
        "lazy rows": schema.read(
            da.from_array(table[[c.name for c in schema.features]].to_numpy(dtype=object), chunks=(100, 3))
        ).compute(),
    }
    for matrix in found.values():
        np.testing.assert_allclose(matrix, expected, rtol=1e-14)
    targets = schema.declared_target.encode(schema.target_cells(table))
    for cells in (
        schema.target_cells(tmp_path / "table.csv"),
        schema.target_cells(lazy),
        schema.target_cells(tmp_path / "table.parquet"),
    ):
        np.testing.assert_allclose(np.asarray(schema.declared_target.encode(cells)), targets, rtol=1e-12)
    with pytest.raises(DataError, match="no column 'capital'"):
        schema.read(table.drop(columns="capital"))


def test_chunks_do_not_matter(monkeypatch, tmp_path):
    table, schema = frame(), SCHEMA.with_formula(FORMULA)
    table.to_csv(tmp_path / "table.csv", index=False)
    whole = schema.read(tmp_path / "table.csv")
    monkeypatch.setattr("curvedp.data.delimited.CHUNK_ROWS", 7)
    monkeypatch.setattr("curvedp.data.formulas.numbers.ROWS_AT_A_TIME", 3)
    np.testing.assert_array_equal(schema.read(tmp_path / "table.csv"), whole)


def test_a_fit_a_file_and_predictions_from_raw_columns(tmp_path):
    table = frame(4000)
    model = PrivateLinearRegression(schema=SCHEMA, formula=FORMULA, epsilon=5.0, random_state=1).fit(table)
    schema = SCHEMA.with_formula(FORMULA)
    by_schema = PrivateLinearRegression(schema=schema, epsilon=5.0, random_state=1).fit(table)
    np.testing.assert_array_equal(model.coef_, by_schema.coef_)
    assert model.coef_.shape == (len(model.schema_.feature_names),)
    assert model.feature_names_in_.tolist() == ["age", "capital", "my col", "region", "female", "visit"]
    new = table.drop(columns=["wage", "note"])
    predicted = model.predict(new)
    X = model.columns_.clip(model.schema_.read(table))
    np.testing.assert_allclose(predicted, X @ model.coef_ + model.intercept_)
    assert np.corrcoef(predicted, np.log(table.wage))[0, 1] > 0.7  # on the transformed scale
    model.save(tmp_path / "model.json")
    again = curvedp.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(new), predicted)
    new.to_csv(tmp_path / "new.csv", index=False)
    document = modelfile.load(tmp_path / "model.json")
    np.testing.assert_allclose(next(Predictor(document).chunks(tmp_path / "new.csv")).values, predicted)
    assert document.schema == SCHEMA.with_formula(FORMULA)
    page = release_report(model)
    assert "I(age ** 2)" in page and "follow from the columns" in page and 'data-value="10000.0"' in page


def test_model_files_with_other_terms_are_refused(tmp_path):
    model = PrivateRidge(schema=SCHEMA, formula="wage ~ age + I(age**2)", random_state=1).fit(frame())
    content = modelfile.Release.of(model).to_dict()
    content["schema"]["terms"] = ["age", "scale(age)"]
    with pytest.raises(ModelFileError, match="would look at the data"):
        modelfile.Release.from_dict(content)
    content["schema"]["terms"] = ["age", "capital"]
    with pytest.raises(ModelFileError, match="contradict"):
        modelfile.Release.from_dict(content)


def test_without_a_constant():
    table = frame()
    model = PrivateRidge(schema=SCHEMA, formula="wage ~ age - 1", random_state=1).fit(table)
    assert model.columns_.intercept == 0.0 and model.columns_.d == 1
    again = modelfile.Release.from_dict(modelfile.Release.of(model).to_dict()).to_estimator()
    np.testing.assert_array_equal(again.predict(table), model.predict(table))


def test_a_power_is_written_as_in_r_or_as_in_python():
    columns = Schema((Numeric("x", -2, 3), Numeric("a^b", 0, 5), Categorical("r", ("u^v", "w"))))
    for r, python in (
        ("~ I(x^2)", "~ I(x**2)"),
        ("~ I(-x^2 + 2*x^3)", "~ I(-x**2 + 2*x**3)"),  # a power binds closer than a sign
        ("~ I(`a^b`^2)", "~ I(`a^b`**2)"),  # a name keeps its letters
        ("~ I(x^2) + C(r, Treatment('u^v'))", "~ I(x**2) + C(r, Treatment('u^v'))"),  # so does a level
    ):
        assert columns.with_formula(r) == columns.with_formula(python)
    assert columns.with_formula("~ I(x^2)").feature_names == ("I(x ** 2)",)
    assert columns.with_formula("~ C(r, Treatment('u^v'))").feature_names == ("r=u^v", "r=w")


def test_formulas_of_bounds_and_arrays():
    random = np.random.default_rng(0)
    X = random.uniform(0, 1, (500, 3))
    model = PrivateRidge(bounds=(0, 1), target_bounds=(0, 2), formula="~ x0 + x0:x2", random_state=0)
    model.fit(X, X[:, 0] + X[:, 0] * X[:, 2])
    assert model.schema_.feature_names == ("x0", "x0:x2") and model.n_features_in_ == 3
    assert model.predict(X).shape == (500,)
    with pytest.raises(InvalidInput, match="not a column of the schema"):
        PrivateRidge(bounds=(0, 1), target_bounds=(0, 2), formula="y ~ x0").fit(X, X[:, 0])


def test_refits_choose_among_terms():
    table = frame(3000)
    model = PrivateRidge(schema=SCHEMA, formula="log(wage) ~ age + I(age**2) + C(region):female", epsilon=20)
    model.set_params(random_state=2).fit(table)
    part = model.refit(columns=["age", "C(region):female"], trust=1e9)
    assert part.coef_[1] == 0 and np.all(part.coef_[[0, 2, 3, 4]] != 0)


def test_inference_names_the_terms():
    table = frame(4000)
    formula = "log(wage) ~ age + region*female + spline(age, knots=[50], degree=1)"
    model = PrivateLinearRegression(schema=SCHEMA, formula=formula, epsilon=8, inference=True, random_state=3)
    text = str(model.fit(table).summary())
    assert "region=s:female" in text and "region=n:female" not in text and "log(wage)" in text


def test_checks_and_descriptions_are_about_the_declared_columns():
    schema = SCHEMA.with_formula(FORMULA)
    from curvedp.privacy.budget import Budget

    names = [column.name for column in plan_check(schema, Budget(1.0, 1e-6)).layout.columns]
    assert names == ["age", "capital", "my col", "region", "female", "visit", "wage"]
    assert check(schema, frame(), epsilon=1.0, random_state=0).columns[-1].name == "wage"
    found = describe(frame(), schema, epsilon=1.0, random_state=0)
    assert [column.name for column in found.columns][-1] == "wage"


def test_the_example_of_the_page_runs(capsys):
    page = (Path(__file__).parents[2] / "docs" / "formulas.md").read_text("utf-8")
    example = page.split("```python\n")[1].split("```")[0]
    exec(example, {})
    assert "'region=south:female'" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["formulas.md"])
def test_the_page_names_every_function(name):
    page = (Path(__file__).parents[2] / "docs" / name).read_text("utf-8")
    for word in (*FUNCTIONS, "spline", "cut", "days", "year", "month_number", "month", "weekday"):
        assert re.search(rf"`[^`]*\b{word}\b[^`]*`", page), word


def test_a_formula_is_never_multiplied_out_beyond_what_a_model_may_have() -> None:
    """A dot is as many terms as there are columns; a bomb is refused before it goes off."""
    columns = [f"x{i}" for i in range(30)]
    assert len(read_formula("~ (.)**2", columns)[1]) == 30 + 30 * 29 // 2
    assert len(read_formula("y ~ a*b*c - a:b + d/e", columns)[1]) == 8
    assert read_formula("~ ((a + b + c)**4)**4", columns) == read_formula("~ a*b*c", columns)
    bombs = ("~ (.)**4", "~ .:.:.:.", "~ .*.*.*.", "~ " + "*".join(columns))
    for bomb in bombs:
        started = time.perf_counter()
        with pytest.raises(InvalidInput, match="more than 20000 terms"):
            read_formula(bomb, columns)
        assert time.perf_counter() - started < 5.0
    with pytest.raises(InvalidInput, match="more than 20 factors"):
        read_formula("~ " + ":".join(columns), columns)


def test_an_interaction_of_levels_reads_a_table_of_no_rows() -> None:
    schema = Schema([Categorical("a", ["x", "y"]), Categorical("b", ["u", "v"])]).with_formula("~ C(a):C(b)")
    assert schema.read({"a": [], "b": []}).shape == (0, 4)
