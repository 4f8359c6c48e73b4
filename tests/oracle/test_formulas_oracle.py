"""Encoded columns of formulas against formulaic's own evaluation of the same formulas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from formulaic import model_matrix
from formulaic.errors import FormulaParsingError
from formulaic.parser import DefaultFormulaParser
from hypothesis import given, settings
from hypothesis import strategies as st

from curvedp.data import Boolean, Categorical, Date, Numeric, Schema
from curvedp.data.formulas.notation import canonical, quoted, read_formula
from curvedp.errors import InvalidInput

LEVELS = ("n", "s", "w")
SCHEMA = Schema(
    (
        Numeric("age", 0, 100),
        Numeric("hours", 0, 80),
        Numeric("capital", 0, 1e5),
        Numeric("change", -5, 5),
        Numeric("size", 0.5, 9),
        Categorical("region", LEVELS),
        Categorical("job", ("a", "b")),
        Boolean("female"),
        Date("visit", "2020-01-01", "2024-12-31"),
        Numeric("wage", 1, 1e5),
    )
)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    random, n = np.random.default_rng(7), 400
    days = pd.to_datetime("2020-01-01") + pd.to_timedelta(random.integers(0, 1827, n), unit="D")
    return pd.DataFrame(
        {
            "age": random.uniform(0, 100, n),
            "hours": random.uniform(0, 80, n),
            "capital": random.uniform(0, 1e5, n),
            "change": random.uniform(-5, 5, n),
            "size": random.uniform(0.5, 9, n),
            "region": pd.Categorical(random.choice(LEVELS, n), categories=LEVELS),
            "job": pd.Categorical(random.choice(["a", "b"], n), categories=["a", "b"]),
            "female": random.integers(0, 2, n),
            "visit": days,
            "wage": random.uniform(1, 1e5, n),
        }
    )


def theirs(formula: str, table: pd.DataFrame, **names: object) -> pd.DataFrame:
    return model_matrix(formula + " - 1", table, context=names, ensure_full_rank=False)


@pytest.mark.parametrize(
    ("formula", "other"),
    [
        ("age + hours", None),
        ("I(age**2) + I(age**3)", None),
        ("I((age - 40) ** 2 / 100 + 3 * hours)", None),
        ("I(size**-2) + I(size**0.5)", None),
        ("log(size) + log1p(capital) + sqrt(hours)", "log(size) + np.log1p(capital) + np.sqrt(hours)"),
        ("np.log(size) + np.log1p(capital)", None),
        ("log2(size) + log10(size) + expm1(change)", "np.log2(size) + np.log10(size) + np.expm1(change)"),
        ("exp(change) + abs(change)", "exp(change) + np.abs(change)"),
        ("minimum(age, hours) + maximum(change, 0)", "np.minimum(age, hours) + np.maximum(change, 0)"),
        ("I(age > 65) + I(change <= 0)", "I(1.0*(age > 65)) + I(1.0*(change <= 0))"),
        ("age:hours + age:hours:change", None),
        ("C(region)", None),
        ("region + job", None),
        ("C(region):age", None),
        ("region:job", None),
        ("region:job:change", None),
        ("C(region):female", None),
        ("log1p(capital):C(region)", "np.log1p(capital):C(region)"),
        ("age:change**2", None),
        ("{age + hours}", None),
    ],
)
def test_columns_are_those_of_formulaic(table, formula, other):
    schema = SCHEMA.with_formula("~ " + formula)
    expected = theirs(other or formula, table, np=np).to_numpy(dtype=float)
    found = schema.read(table)
    assert found.shape == expected.shape
    sort = [np.lexsort(m[:5]) for m in (found, expected)]
    np.testing.assert_allclose(found[:, sort[0]], expected[:, sort[1]], rtol=1e-12, atol=1e-12)


def their_terms(formula: str, columns: list[str]) -> tuple[bool, list[tuple[str, ...]]]:
    """Whether there is a constant, and the other terms: of formulaic's parser."""
    context = {"__formulaic_variables_available__": columns}
    found = DefaultFormulaParser(feature_flags={"twosided"}).get_terms(formula, context=context)._structure
    terms = []
    for term in sorted(found.get("rhs", found.get("root")), key=lambda term: len(term.factors)):
        kinds = [(factor.eval_method.name, factor.expr) for factor in term.factors]
        terms.append(tuple(quoted(e) if kind == "LOOKUP" else canonical([e]) for kind, e in kinds))
    return ("1",) in terms, [term for term in terms if term != ("1",)]


FACTORS = st.sampled_from(
    ["a", "b", "c", "a", "b", "`my c`", "log( a )", "I(b+1)", "{a+b}", ".", "C(c)", "x.y"]
)
SIGNS = ["+", " + ", "-", " - ", "*", "/", ":", " : ", " %in% "]
SUMS = st.recursive(
    FACTORS,
    lambda inner: st.one_of(
        st.builds("{}{}{}".format, inner, st.sampled_from(SIGNS), inner),
        st.builds("({})".format, inner),
        st.builds("({}){}{}".format, inner, st.sampled_from(["**", "^", " ** "]), st.integers(1, 3)),
        st.builds("({} {})".format, inner, st.sampled_from(["+ 0", "- 1", "+ 1", "-0"])),
    ),
    max_leaves=6,
)


@settings(max_examples=500, deadline=None)
@given(SUMS, st.sampled_from(["", "~ ", "~", "log(b) ~ ", "a~", "`my c` ~ 0 + ", "~ - 1 + "]))
def test_the_terms_are_those_of_formulaics_parser(text, start):
    columns = ["a", "b", "c", "my c"]
    try:
        constant, terms = their_terms(start + text, columns)
    except (FormulaParsingError, TypeError):  # TypeError: a power or a slash of nothing
        with pytest.raises(InvalidInput):
            read_formula(start + text, columns)
        return
    if any("1" in term for term in terms):
        with pytest.raises(InvalidInput, match="number as a factor"):
            read_formula(start + text, columns)
        return
    _, found = read_formula(start + text, columns)
    assert ("0" not in found) == constant
    assert [term for term in found if term != "0"] == [":".join(term) for term in terms]


@pytest.mark.parametrize(("knots", "degree"), [([20, 40], 3), ([10.5], 1), ([30, 31, 70], 2), ([], 3)])
def test_splines_are_the_full_basis_of_formulaic(table, knots, degree):
    schema = SCHEMA.with_formula(f"~ spline(hours, knots={knots}, degree={degree})")
    bs = f"bs(hours, knots={knots}, degree={degree}, include_intercept=True, lower_bound=0, upper_bound=80)"
    np.testing.assert_allclose(schema.read(table), theirs(bs, table), atol=1e-12)


def test_bins_are_those_of_pandas(table):
    schema = SCHEMA.with_formula("~ cut(age, breaks=[20, 40.5])")
    at = table.assign(age=[0.0, 20.0, np.nextafter(20, 30), 40.5, 100.0, *table.age[5:]])
    codes = pd.cut(at.age, [0, 20, 40.5, 100], include_lowest=True).cat.codes
    np.testing.assert_array_equal(schema.read(at), np.eye(3)[codes])
    assert schema.feature_names == ("age in [0, 20]", "age in (20, 40.5]", "age in (40.5, 100]")


def test_parts_of_dates_are_those_of_pandas(table):
    schema = SCHEMA.with_formula(
        "~ year(visit) + month_number(visit) + days(visit) + weekday(visit) + month(visit)"
    )
    when = table.visit.dt
    numbers = [when.year, when.month, (table.visit - pd.Timestamp("2020-01-01")).dt.days]
    levels = [np.eye(7)[when.day_of_week], np.eye(12)[when.month - 1]]
    np.testing.assert_array_equal(schema.read(table), np.column_stack([*numbers, *levels]))


@pytest.mark.parametrize(
    "formula",
    [
        "age*hours",
        "region*job",
        "region + region:job",
        "region*age",
        "job*region*change",
        "(region + job + age)**2",
        "region/age",
        "age + job %in% region",
    ],
)
def test_terms_span_what_formulaics_reduced_terms_span_without_a_direction_too_many(table, formula):
    """With a constant, and levels that sum to it, the model has the rank of its columns but one per block."""
    schema = SCHEMA.with_formula("~ " + formula)
    ours = np.column_stack([np.ones(len(table)), schema.column_map(intercept=0.0).apply(schema.read(table))])
    full = np.asarray(model_matrix(formula, table), dtype=float)
    full /= np.abs(full).max(axis=0)
    rank = np.linalg.matrix_rank(full)
    assert rank == full.shape[1]
    assert np.linalg.matrix_rank(ours) == rank
    assert np.linalg.matrix_rank(np.column_stack([ours, full]), tol=1e-8) == rank
    assert ours.shape[1] - len(schema.one_hot) == rank


def test_a_dot_is_every_column_but_the_target(table):
    schema = Schema(SCHEMA.columns[:4], target="age").with_formula("hours ~ .")
    assert schema.feature_names == ("age", "capital", "change")
    assert Schema(SCHEMA.columns[:4], target="age").with_formula("~ .").feature_names == (
        "hours", "capital", "change",
    )  # fmt: skip


def test_a_transformed_target_is_the_transform_of_the_clipped_column(table):
    schema = SCHEMA.with_formula("log(wage) ~ age")
    wages = [10.0, 0.0, 1e9, np.nan, 50.0]
    y = schema.target_cells({**{c: table[c][:5] for c in table if c != "wage"}, "wage": wages})
    np.testing.assert_allclose(y.values, [np.log(10), 0.0, np.log(1e5), np.nan, np.log(50)], rtol=1e-15)
    assert schema.declared_target.low == 0.0
    assert np.log(1e5) <= schema.declared_target.high <= np.log(1e5) * (1 + 1e-14)
