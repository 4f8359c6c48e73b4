"""Any schema survives its file, whatever its names contain and of whatever kind its columns are."""

from __future__ import annotations

import datetime
import json
import tomllib

import hypothesis.strategies as st
from hypothesis import assume, given, settings

from curvedp.data import Boolean, Categorical, Date, FileFormat, Ignored, Numeric, Schema
from curvedp.data.cells import level
from curvedp.data.dates import PARTS
from curvedp.errors import InvalidInput

NAMES = st.text(min_size=1, max_size=12)
BOUND = st.floats(-1e100, 1e100)
SIGNS = st.sampled_from([None, ".", ","])


@st.composite
def numeric(draw, name):
    low, high = sorted(draw(st.lists(BOUND, min_size=2, max_size=2, unique=True)))
    decimal = draw(SIGNS)
    return Numeric(
        name,
        low,
        high,
        decimal=decimal,
        thousands=draw(st.sampled_from(["", ".", ",", " ", "'"]).filter(lambda sign: sign != decimal)),
        missing_codes=draw(st.lists(BOUND, max_size=3)),
        missing=draw(st.sampled_from(["middle", "indicator"])),
    )


@st.composite
def categorical(draw, name):
    texts = draw(st.lists(st.text().filter(level), min_size=2, max_size=4, unique_by=level))
    assume("(missing)" not in map(level, texts))
    chosen = st.none() | st.sampled_from(texts)
    more = {"reference": draw(chosen), "event": draw(chosen) if len(texts) == 2 else None}
    more |= {"fold_case": draw(st.booleans()), "other": draw(chosen)}
    levels = {text: draw(st.lists(st.text(max_size=3), max_size=2)) for text in texts}
    try:
        return Categorical(
            name,
            draw(st.sampled_from([levels, texts])),
            missing=draw(st.sampled_from(["zero", "level"])),
            **more,
        )
    except InvalidInput:  # two levels that cells say in the same way
        assume(False)


@st.composite
def date(draw, name):
    low, high = sorted(draw(st.lists(st.dates(), min_size=2, max_size=2, unique=True)))
    assume(low.year < high.year)
    parts = draw(st.lists(st.sampled_from(PARTS), min_size=1, unique=True))
    format = draw(st.sampled_from(["iso", "%d.%m.%Y", "%Y", "%y%j", "«%d»/%m %% %Y"]))
    return Date(name, low, high, format, parts, missing=draw(st.sampled_from(["middle", "indicator"])))


@st.composite
def boolean(draw, name):
    words = draw(st.none() | st.lists(st.text().filter(level), min_size=2, max_size=2))
    assume(words is None or len({level(word).casefold() for word in words}) == 2)
    return Boolean(name, words, missing=draw(st.sampled_from(["middle", "indicator"])))


def columns(name):
    return st.one_of(numeric(name), categorical(name), date(name), boolean(name), st.just(Ignored(name)))


@st.composite
def schemas(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    first = Numeric(names[0], 0.0, 1.0)
    rest = [draw(columns(name)) for name in names[1:]]
    targets = [None, *(c.name for c in rest if not isinstance(c, Ignored | Date))]
    file = draw(
        st.builds(
            FileFormat, st.sampled_from(["utf-8", "latin-1"]), st.sampled_from(",;\t|'"), SIGNS.filter(bool)
        )
    )
    try:
        return Schema(
            (first, *rest),
            target=draw(st.sampled_from(targets)),
            adjacency=draw(st.sampled_from(["replace", "add_remove"])),
            record=draw(st.text()),
            file=file,
        )
    except InvalidInput as error:
        assume("two features are named" not in str(error))
        raise


@settings(deadline=None)
@given(schemas())
def test_toml_round_trip(schema):
    text = schema.to_toml()
    assert Schema.from_toml(text.encode().decode()) == schema
    assert Schema.from_dict(tomllib.loads(text)) == schema
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just(datetime.date.max),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        "bounds",
        "levels",
        "levels_file",
        "source",
        "decimal",
        "thousands",
        "missing_codes",
        "missing",
        "format",
    ]
    + ["parts", "words"]
)
KIND = st.sampled_from(["numeric", "categorical", "date", "boolean", "ignored"]) | JUNK


@settings(deadline=None)
@given(KIND, st.dictionaries(KEYS, JUNK, max_size=4), JUNK)
def test_whatever_a_file_says_is_read_or_refused_in_one_line(kind, keys, file):
    content = {"column": [{"name": "a", "kind": kind, **keys}, {"name": "b", "kind": "boolean"}]}
    for more in ({}, {"file": file}, {"file": {"decimal": file}}, {"file": {"encoding": file}}):
        try:
            schema = Schema.from_dict(content | more)
        except InvalidInput as error:
            said = str(error)
        else:
            said = "" if Schema.from_toml(schema.to_toml()) == schema else "\n"
        assert "\n" not in said
