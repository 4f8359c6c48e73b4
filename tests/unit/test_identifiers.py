"""Who is a person: the same whatever holds the column, and no cell changes how another is read."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curvedp import Ledger, PrivateLinearRegression
from curvedp.analyses.estimators import PrivatePoissonRegressor
from curvedp.data import Boolean, Categorical, Ignored, Numeric, Schema
from curvedp.data.frames import _AROUND, Identifiers, identifier
from curvedp.data.roles import looks_like_identifier
from curvedp.data.rows import make_rows
from curvedp.data.source import read_persons
from curvedp.errors import DataError, InvalidInput, PrivacyWarning

KEYS = [2**53 + 1, 7, 2**53 + 3, 2**53 + 1, 2**62, 7, -4, 0, 2**53 + 2]
EXPECTED = [0, 1, 2, 0, 3, 1, 4, 5, 6]
NUMBERS = [0.5, 1.0, 2.0, 0.25, 3.0, 1.0, 0.0, 2.0, 1.0]
SCHEMA = Schema(
    (
        Numeric("x", 0, 4),
        Categorical("k", ("7", "-4", "0")),
        Numeric("y", 0, 4),
        Numeric("w", 0, 4),
        Numeric("e", 0.25, 4),
    ),
    target="y",
    weight="w",
    exposure="e",
    unit="id",
)


def columns(keys: list[Any]) -> dict[str, list[Any]]:
    return {"id": keys, "k": keys, **dict.fromkeys(("x", "y", "w", "e"), NUMBERS)}


def mixed(keys: list[int]) -> list[Any]:
    """The same keys as integers, texts, texts with idle zeros and space, decimals and bytes."""
    ways: list[Callable[[int], Any]] = [
        int, str, lambda k: f" {k:024d}\u00a0", Decimal, lambda k: f"{k}.0\0", np.int64,
        lambda k: f"\ufeff{k}.",
        lambda k: str(k).encode(),
    ]  # fmt: skip
    return [ways[i % len(ways)](key) for i, key in enumerate(keys)]


def pandas_of(dtype: Any) -> Callable[[Any], pd.DataFrame]:
    def made(_: Any) -> pd.DataFrame:
        frame = pd.DataFrame(columns(KEYS))
        typed = frame["id"].astype(dtype) if dtype != "category" else pd.Categorical(frame["id"])
        return frame.assign(id=typed, k=typed)

    return made


def with_missing(frame: pd.DataFrame) -> pd.DataFrame:
    """The same rows and one of nobody, whose identifier is missing, in a type that can say so."""
    return pd.concat([frame, frame.iloc[:1].assign(id=None)], ignore_index=True).astype(frame.dtypes)


def csv_file(folder: Any) -> Any:
    pd.DataFrame(columns(KEYS)).to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def parquet_folder(folder: Any) -> Any:
    """Two files, in one of which the identifiers are text."""
    table = pa.table(columns(KEYS))
    texts = [str(key) for key in KEYS]
    as_text = table.set_column(0, "id", [texts]).set_column(1, "k", [texts])
    (folder / "parts").mkdir()
    pq.write_table(table.slice(0, 4), folder / "parts" / "1.parquet")
    pq.write_table(as_text.slice(4), folder / "parts" / "2.parquet")
    return folder / "parts"


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "int64": pandas_of("int64"),
    "objects": pandas_of(object),
    "mixed cells": lambda _: pd.DataFrame({**columns(KEYS), "id": pd.Series(mixed(KEYS), dtype=object)}),
    "lists": lambda _: {**columns(KEYS), "id": mixed(KEYS)},
    "string": pandas_of("string"),
    "str": pandas_of(str),
    "Int64": pandas_of("Int64"),
    "category": pandas_of("category"),
    "arrow in pandas": pandas_of("int64[pyarrow]"),
    "arrow": lambda _: pa.table(columns(KEYS)),
    "arrow dictionary": lambda _: pa.table(columns(pa.array(KEYS).dictionary_encode())),
    "arrow decimals": lambda _: pa.table(columns(pa.array(KEYS).cast(pa.decimal128(30, 2)))),
    "polars": lambda _: pl.DataFrame(columns(KEYS)),
    "polars text": lambda _: pl.DataFrame(columns(KEYS)).with_columns(pl.col("id", "k").cast(pl.String)),
    "csv": csv_file,
    "parquet": parquet_folder,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_every_role_reads_the_same_whatever_holds_it(holder: str, tmp_path: Any) -> None:
    def read(table: Any) -> tuple[list[Any], list[int]]:
        roles = {"w": SCHEMA.declared_weight, "e": SCHEMA.declared_offset}
        own = lambda chunk: [roles[name].encode(chunk.cells(name)) for name in roles]  # noqa: E731
        parts, codes = read_persons(SCHEMA.source(table), own, "id")
        target = SCHEMA.declared_target.encode(SCHEMA.target_cells(table))
        columns = [np.concatenate(part) for part in zip(*parts, strict=True)]
        return [SCHEMA.read(table), target, *columns], codes.tolist()

    expected, _ = read(pd.DataFrame(columns(KEYS)))
    found, persons = read(HOLDERS[holder](tmp_path))
    assert persons == EXPECTED
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("holder", [name for name in HOLDERS if name not in ("csv", "parquet")])
def test_identifiers_passed_beside_a_table_are_the_same_persons(holder: str, tmp_path: Any) -> None:
    table = HOLDERS[holder](tmp_path)
    assert Identifiers().codes(table["id"]).tolist() == EXPECTED
    assert Identifiers().codes(np.array(KEYS)).tolist() == EXPECTED
    assert Identifiers().codes(np.array(list(map(str, KEYS)))).tolist() == EXPECTED


@pytest.mark.parametrize("dtype", ["Int64", "category", "int64[pyarrow]", "string"])
def test_a_missing_identifier_leaves_all_others(dtype: str) -> None:
    frame = with_missing(pandas_of(dtype)(None))
    assert str(frame["id"].dtype).startswith(dtype.split("[")[0])
    assert Identifiers().codes(frame["id"]).tolist() == [*EXPECTED, -1]


FLOATING = {
    "float64": pd.Series([1.0, 2.0]),
    "Float64": pd.Series([1.0, None], dtype="Float64"),
    "double[pyarrow]": pd.Series([1.0, None], dtype="double[pyarrow]"),
    "float categories": pd.Series(pd.Categorical([1.5, None])),
    "sparse": pd.Series(pd.arrays.SparseArray([1.0, 2.0])),
    "array": np.array([1.0, 2.0]),
    "float16": np.array([1.0], dtype=np.float16),
    "masked": np.ma.array([1.0, 2.0], mask=[0, 1]),
    "complex": np.array([1j]),
    "arrow": pa.chunked_array([[1.0, None]]),
    "arrow dictionary": pa.chunked_array([pa.array([1.5, None]).dictionary_encode()]),
    "polars": pl.Series([1.0, None]),
}


@pytest.mark.parametrize("kind", FLOATING)
def test_floating_types_are_refused_by_the_type(kind: str) -> None:
    column = FLOATING[kind]
    for each in (column, column[:0]):  # no cell is needed
        with pytest.raises(InvalidInput, match=r"floating type.*dtype=str.*Int64"):
            Identifiers().codes(each)


def test_the_refusal_comes_before_the_charge(tmp_path: Any) -> None:
    ledger = Ledger.create(tmp_path / "b.db", epsilon=9.0, delta=1e-3)
    schema = Schema((Numeric("x", 0, 4), Numeric("y", 0, 4)), target="y", unit="id")
    frame = pd.DataFrame(columns(KEYS)).assign(id=lambda f: f["id"].astype(float))
    pa_path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pandas(frame), pa_path)
    model = PrivateLinearRegression(schema=schema, ledger=ledger)
    plain = PrivateLinearRegression(bounds=(0, 4), target_bounds=(0, 4), ledger=ledger)
    counts = PrivatePoissonRegressor(bounds=(0, 4), target_bounds=(0, 4), ledger=ledger)
    X, y = frame[["x"]].to_numpy(), frame["y"]
    for fit in (
        lambda: model.fit(frame),
        lambda: model.fit(pl.from_pandas(frame)),
        lambda: model.fit(dd.from_pandas(frame, npartitions=2)),
        lambda: model.fit(schema.source(pa_path)),
        lambda: plain.fit(X, y, unit=frame["id"]),
        lambda: counts.fit(X, y, unit=frame["id"].to_numpy()),
    ):
        with pytest.raises(InvalidInput, match="floating type"):
            fit()
    assert not ledger.history()


def test_one_odd_identifier_leaves_every_other_person() -> None:
    """5,000 keys above 2⁵³, and one that makes pandas choose another type for all of them."""
    keys = [9007199254740993 + 2 * i for i in range(5000)]
    usual = Identifiers().codes(pd.Series(keys))
    for odd in ("abc", "18446744073709551615", "9" * 23, "0123", ""):
        text = "id\n" + "".join(f"{key}\n" for key in keys[:-1]) + f"{odd or 'NA'}\n"
        for options in ({}, {"dtype": str}, {"dtype": "string"}):
            if not odd and not options:
                continue  # the column is of doubles then, and refused
            found = Identifiers().codes(pd.read_csv(io.StringIO(text), **options)["id"])
            assert np.array_equal(found[:-1], usual[:-1])
    for odd in ("1.5", "1e3", ""):
        text = "id,x\n" + "".join(f"{key},1\n" for key in keys[:-1]) + f"{odd},1\n"
        with pytest.raises(InvalidInput, match="floating type"):
            Identifiers().codes(pd.read_csv(io.StringIO(text))["id"])
        found = Identifiers().codes(pd.read_csv(io.StringIO(text), dtype=str)["id"])
        assert np.array_equal(found[:-1], usual[:-1])


def test_numerals_are_one_person_with_and_without_idle_zeros() -> None:
    text = "id\n" + "".join(f"{i}\n{i:04d}\n" for i in range(100, 500))
    for more in ("", "abc\n"):
        codes = Identifiers().codes(pd.read_csv(io.StringIO(text + more))["id"])[:800]
        assert len(set(codes.tolist())) == 400 and np.array_equal(codes[::2], codes[1::2])


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("-012.50", "-12.5"),
        (-12.5, "-12.5"),
        (Decimal("-12.500"), "-12.5"),
        ("+7.", "7"),
        ("-0", "0"),
        (-0.0, "0"),
        (1e-7, "0.0000001"),
        ("0.0000001", "0.0000001"),
        ("1" * 5000, "1" * 5000),
        ("00" + "1" * 5000, "1" * 5000),
        ("1e3", "1e3"),
        ("TRUE", "1"),
        (np.bool_(False), "0"),
        (b"a\xff", "a\ufffd"),
        ("a\0\u3000", "a"),
        ("\ufeff \ufeff12", "12"),
        (pd.Timestamp("2020-01-31"), "2020-01-31"),
        (np.datetime64("2020-01-31T00:00:00.000000000"), "2020-01-31"),
        (Decimal("1e999999999"), "1E+999999999"),
        (Decimal("sNaN"), None),
        (2.0**53, None),
        (float("inf"), None),
        (pd.NA, None),
        (pd.NaT, None),
        (b" na ", None),
        ("\0", None),
        ({"a": 1}, None),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_names_of_persons(cell: Any, name: str | None) -> None:
    assert identifier(cell) == name


def test_all_white_space_is_dropped() -> None:
    assert set(filter(str.isspace, map(chr, range(sys.maxunicode + 1)))) <= set(_AROUND)


def test_a_partition_with_another_type_than_declared_is_refused_too() -> None:
    from curvedp import Domain

    frame = pd.DataFrame(columns(KEYS))
    parts = [frame.iloc[:4], frame.iloc[4:].assign(id=lambda f: f["id"].astype(float))]
    lazy = dd.from_map(lambda i: parts[i], [0, 1], meta=frame.iloc[:0])
    with pytest.raises(DataError, match=r"partition 2 of 2: .*floating type"):
        make_rows(
            lazy[["x"]].to_dask_array(lengths=True),
            lazy["y"].to_dask_array(lengths=True),
            Domain(4.0, unit="id"),
            unit=lazy["id"],
        ).count()


# Names that look like identifiers.


@pytest.mark.parametrize(
    "names",
    [
        "id ID Id pid PID uuid ssn mergeid seqn username pseudonym",
        "patient_id patientId PatientID person_id personid idperson subjid hh_id hhid case_id study_id",
        "patient person subject household customer participant user",
        "patient_no CustomerNumber household_number person_key code_patient stud_nr hashed_id",
        "KundenNr Kundennummer kunden_nr Kunden-Nr. PatNr Patientennummer Versicherten_ID Haushaltsnummer",
        "Mitgliedsnummer Matrikelnummer Schülernummer personnummer persnr klantnummer patiënt_id",
        "id_personne numéro_client num_cliente id_alumno IdUsuario idpers",
    ],
)
def test_names_that_may_say_whose_row_it_is(names):
    assert [name for name in names.split() if not looks_like_identifier(name)] == []


@pytest.mark.parametrize(
    "names",
    [
        "valid width paid humidity covid acid grid solid void fluid medicaid lipid thyroid hybrid incident",
        "idade index idea side middle guide kidney residual identity id_type",
        "age wage number nr no key code number_of_children n_persons persons patients resp case ind",
        "customer_since patient_age client_type person_weight member_count user_rating smoker_no part_number",
        "house_number month_number Hausnummer nummer casino hours.per.week education-num capital_gain",
        "region_id country_id hospital_id visit_id row_id order_id product_id sex_id",
        "x1 größe Âge ... 1 _",
    ],
)
def test_names_that_do_not(names):
    assert [name for name in (*names.split(), "", " ") if looks_like_identifier(name)] == []


WAGES = {
    "patient_id": ["a", "b"] * 200,
    "x": [0.1, 0.9] * 200,
    "smoker": ["no", "yes"] * 200,
    "y": [0.2, 0.8] * 200,
}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (
            Schema([Ignored("patient_id"), Numeric("x", 0, 1), Numeric("y", 0, 1)], target="y"),
            "of the schema$",
        ),
        (
            Schema([Numeric("patient_id", 0, 1e6), Numeric("x", 0, 1), Numeric("y", 0, 1)], target="y"),
            '"ignored" for the column$',
        ),
        (
            Schema(
                [Ignored("patient_id"), Numeric("x", 0, 1), Numeric("y", 0, 1)], target="y", unit="patient_id"
            ),
            None,
        ),
        (Schema([Numeric("x", 0, 1), Numeric("y", 0, 1)], target="y"), None),
    ],
    ids=["ignored", "feature", "unit", "not declared"],
)
def test_a_fit_without_a_unit_warns_once_of_a_name(schema, words):
    model = PrivateLinearRegression(schema=schema, inference=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(WAGES)
    told = [w for w in caught if w.category is PrivacyWarning]
    assert len(told) == (words is not None)
    for warning in told:
        assert warning.filename == __file__
        assert str(warning.message).startswith("no unit is named, and 'patient_id' may say whose row it is")
        with pytest.warns(PrivacyWarning, match=f'write unit = "patient_id" at the top .*{words}'):
            model.fit(WAGES)


def test_what_has_levels_or_few_values_or_is_predicted_is_no_identifier():
    columns = [Categorical("subject", ["maths", "music"]), Boolean("member"), Numeric("student", 0, 1)]
    assert Schema(columns).unit_advice == ""
    wide = [*columns, Numeric("user", 0, 100)]
    assert Schema(wide, target="user").unit_advice == ""
    assert "'user'" in Schema(wide).unit_advice
