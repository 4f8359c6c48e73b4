"""The kind of column that a declared type suggests: of Parquet, Polars, pandas, numpy or a dictionary.

Only names of types are read. The categories that some types carry were collected from cells: they stay there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import narwhals as nw

from curvedp.errors import InvalidInput
from curvedp.schema.frames import TABLE_KINDS, check_distinct

_STEM = re.compile(r"[a-z_]+")
_STEMS = {
    "numeric": "int uint integer bigint smallint tinyint long short float double half_float halffloat "
    "decimal numeric number real",
    "categorical": "string str utf large_string string_view large_utf text varchar char character category "
    "categorical dictionary enum factor",
    "boolean": "bool boolean logical",
    "date": "date datetime timestamp",
}
_KIND_OF = {stem: kind for kind, stems in _STEMS.items() for stem in stems.split()}


def kind_of_type(text: str) -> str:
    """The kind for a type such as "Int64", "double", "category", "timestamp[us]"; "" where it tells none."""
    stem = _STEM.match(text.strip().lower())
    return "" if stem is None else _KIND_OF.get(stem.group(), "")


def declared_types(frame: Any) -> dict[str, str]:
    """{column: type} of a data frame in memory, lazy or Dask, or of a mapping to types or arrays."""
    if isinstance(frame, Mapping):
        found = [(str(name), _type_in(value)) for name, value in frame.items()]
    else:
        found = _of_frame(frame)
    check_distinct(name for name, _ in found)
    return dict(found)


def _type_in(value: Any) -> str:
    """A type written as text, or that of an array; cells in a list have none."""
    return value if isinstance(value, str) else str(getattr(value, "dtype", ""))


def _of_frame(frame: Any) -> list[tuple[str, str]]:
    if _is_pandas_like(frame):  # narwhals would look into a column of objects to tell its type
        return [(str(name), str(dtype)) for name, dtype in zip(frame.columns, frame.dtypes, strict=True)]
    found = nw.from_native(frame, pass_through=True)
    if not isinstance(found, nw.DataFrame | nw.LazyFrame):
        raise InvalidInput(TABLE_KINDS)
    return [(str(name), str(dtype)) for name, dtype in found.collect_schema().items()]


def _is_pandas_like(frame: Any) -> bool:
    """A data frame of pandas or Dask, without importing either."""
    kinds = [getattr(sys.modules.get(name), "DataFrame", None) for name in ("pandas", "dask.dataframe")]
    return any(kind is not None and isinstance(frame, kind) for kind in kinds)
