"""Any schema survives its file, whatever its names contain."""

from __future__ import annotations

import tomllib

import hypothesis.strategies as st
from hypothesis import given

from curvedp.schema import Categorical, Ignored, Numeric, Schema
from curvedp.schema.cells import level

NAMES = st.text(min_size=1, max_size=12)
BOUND = st.floats(-1e100, 1e100)


@st.composite
def columns(draw, name):
    kind = draw(st.sampled_from(["numeric", "categorical", "ignored"]))
    if kind == "numeric":
        low, high = sorted(draw(st.lists(BOUND, min_size=2, max_size=2, unique=True)))
        return Numeric(name, low, high)
    if kind == "categorical":
        texts = draw(st.lists(st.text().filter(level), min_size=2, max_size=4, unique_by=level))
        return Categorical(name, tuple(texts))
    return Ignored(name)


@st.composite
def schemas(draw):
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    first = Numeric(names[0], 0.0, 1.0)
    rest = [draw(columns(name)) for name in names[1:]]
    targets = [None, *(c.name for c in rest if not isinstance(c, Ignored))]
    return Schema(
        (first, *rest),
        target=draw(st.sampled_from(targets)),
        adjacency=draw(st.sampled_from(["replace", "add_remove"])),
        record=draw(st.text()),
    )


@given(schemas())
def test_toml_round_trip(schema):
    text = schema.to_toml()
    assert Schema.from_toml(text.encode().decode()) == schema
    assert Schema.from_dict(tomllib.loads(text)) == schema
