"""What is publicly known of columns, from the documents that people have.

A dictionary is a Frictionless Table Schema (fields with types and constraints, alone or in a data package),
a codebook (a CSV with a line for each column: name, kind, low, high, levels), a JSON map from names to types,
or another schema file; its content tells which. It becomes entries as in a [[column]], filled in as far as it
goes. It is public: whoever passes it says so.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import narwhals as nw

from curvedp.data.cells import number
from curvedp.data.columns import level_text, repeated, shown
from curvedp.data.dates import ISO
from curvedp.data.files import column_of, expanded, parse_toml, read_toml, toml_value
from curvedp.data.frames import TABLE_KINDS, check_distinct
from curvedp.errors import InvalidInput

# The kind of column that a declared type suggests: of Parquet, Polars, pandas, numpy or a dictionary.
#
# Only names of types are read. The categories that some types carry were collected from cells: they stay
# there.


_STEM = re.compile(r"[a-z_]+")
_STEMS = {
    "numeric": "int uint integer bigint smallint tinyint long short float double half_float halffloat "
    "decimal numeric number real",
    "categorical": "string str utf large_string string_view large_utf text varchar char character category "
    "categorical dictionary enum factor",
    "boolean": "bool boolean logical",
    "date": "date datetime timestamp",
}
_KIND_OF_TYPE = {stem: kind for kind, stems in _STEMS.items() for stem in stems.split()}


def kind_of_type(text: str) -> str:
    """The kind for a type such as "Int64", "double", "category", "timestamp[us]"; "" where it tells none."""
    stem = _STEM.match(text.strip().lower())
    return "" if stem is None else _KIND_OF_TYPE.get(stem.group(), "")


def declared_types(frame: Any) -> dict[str, str]:
    """{column: type} of a data frame in memory, lazy or Dask, or of a mapping to types or arrays."""
    if isinstance(frame, Mapping):
        # a type written as text, or that of an array; cells in a list have none
        types = (value if isinstance(value, str) else getattr(value, "dtype", "") for value in frame.values())
        found = [(str(name), str(kind)) for name, kind in zip(frame, types, strict=True)]
    else:
        found = _of_frame(frame)
    check_distinct(name for name, _ in found)
    return dict(found)


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


Json = Mapping[str, Any]
_NEEDED = {"numeric": ("bounds",), "date": ("bounds",), "categorical": ("levels", "levels_file")}
_HEADINGS = {
    "name": "name column variable field feature",
    "kind": "kind type dtype",
    "low": "low min minimum lower",
    "high": "high max maximum upper",
    "levels": "levels values enum categories codes",
    "format": "format",
    "decimal": "decimal",
    "thousands": "thousands",
    "missing_codes": "missing_codes missing_values",
    "missing": "missing",
}
_KEY_OF = {word: key for key, words in _HEADINGS.items() for word in words.split()}
_IGNORED = ("ignored", "ignore", "id", "identifier")


@dataclass(frozen=True)
class Known:
    """A column's name, what is known of it, and in words what is known of it by half."""

    name: str
    entry: Mapping[str, Any]
    hint: str = ""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Known:
        """A [[column]], what is not filled in left out."""
        filled = {key: value for key, value in entry.items() if key != "name" and value not in ("", [], None)}
        return cls(entry["name"], filled)

    @property
    def is_complete(self) -> bool:
        """Whether it has all that a schema needs, right or wrong."""
        kind = self.entry.get("kind", "")
        needed = _NEEDED.get(kind) if isinstance(kind, str) else None
        return bool(kind) and (needed is None or any(key in self.entry for key in needed))


def read_dictionary(source: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Known]:
    """The columns of the dictionary in a file, or in what such a JSON file holds, by name."""
    found = _in_json(source) if isinstance(source, Mapping) else _in_file(source)
    for known in found:
        if known.is_complete and "levels_file" not in known.entry:
            try:
                column_of({"name": known.name, **known.entry}, 1)
            except InvalidInput as error:
                raise InvalidInput(f"the dictionary: {error}") from None
    twice = repeated(known.name for known in found)
    if twice is not None:
        raise InvalidInput(f"the dictionary has column {shown(found[twice].name)} twice: remove one")
    return {known.name: known for known in found}


def _in_file(path: str | os.PathLike[str]) -> list[Known]:
    text = read_toml(path, "the dictionary")
    if Path(path).suffix == ".toml":
        found = _in_schema(parse_toml(text))
    elif text.lstrip().startswith(("{", "[")):
        found = _in_json(_json(text, path))
    else:
        found = _in_codebook(text, path)
    return [_sourced(known, Path(path).name) for known in found]


def _sourced(known: Known, name: str) -> Known:
    """The same; bounds and levels that say no source have this one."""
    said = known.entry.keys()
    if known.entry.get("kind") == "ignored" or not {"bounds", "levels"} & said or {"source", "origin"} & said:
        return known
    return replace(known, entry={**known.entry, "source": name})


def _in_json(content: Any) -> list[Known]:
    schema = _table_schema(content)
    if schema is not None:
        keys = schema.get("primaryKey", [])
        ignored = [keys] if isinstance(keys, str) else keys if isinstance(keys, list) else []
        return [_field(entry, schema, ignored) for entry in schema["fields"]]
    if isinstance(content, Mapping) and content and all(isinstance(text, str) for text in content.values()):
        return [Known(str(name), {"kind": kind_of_type(text)}) for name, text in content.items()]
    raise InvalidInput(
        'this JSON is no dictionary: pass a Table Schema with "fields", or a map from names to types as in '
        '{"age": "Int64"}'
    )


def _in_schema(content: Mapping[str, Any]) -> list[Known]:
    """The columns of another schema file, those that are filled in."""
    entries = expanded(content).get("column")
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise InvalidInput("this schema file has no columns: pass another dictionary")
    return [Known.of(entry) for entry in entries if isinstance(entry.get("name"), str)]


def _json(text: str, path: str | os.PathLike[str]) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    raise InvalidInput(f"the dictionary {path} begins as JSON and is none: correct it")


def _bounded(
    name: str, kind: str, low: Any, high: Any, levels: Sequence[Any], more: Mapping[str, Any]
) -> Known:
    """A column of that kind ("": by what is there) with ends and levels as a dictionary writes them.

    One end alone becomes a hint.
    """
    ends = [None if value in (None, "") else value for value in (low, high)]
    kind = kind or _implied(ends, levels, more)
    if kind == "categorical":
        texts = [level_text(one) if isinstance(one, str | int | float) else "" for one in levels]
        return Known(name, {"kind": kind, **({"levels": texts} if texts else {}), **more})
    if kind not in ("numeric", "date"):
        return Known(name, {"kind": kind, **more})
    pattern = str(more.get("format", ISO))
    first, last = (
        None if value is None else _day(name, value, pattern) if kind == "date" else _number(name, value)
        for value in ends
    )
    if first is not None and last is not None:
        return Known(name, {"kind": kind, "bounds": [first, last], **more})
    words = [word if end is None else toml_value(end) for end, word in ((first, "low"), (last, "high"))]
    hint = "" if first is None and last is None else f"[{', '.join(words)}]"
    return Known(name, {"kind": kind, **more}, hint)


def _implied(ends: Sequence[Any], levels: Sequence[Any], more: Mapping[str, Any]) -> str:
    """The kind that follows from the rest; a number such as 20201231 is no date unless a format says so."""
    if levels:
        return "categorical"
    days = all(_iso_day(end) is not None and math.isnan(number(end)) for end in ends)
    if days or "%" in str(more.get("format", "")):
        return "date"
    return "numeric" if None not in ends else ""


def _number(name: str, value: Any) -> float:
    found = number(value)
    if not math.isfinite(found):
        raise InvalidInput(f"the dictionary: column {shown(name)}: an end of its bounds is no number")
    return found


def _day(name: str, value: Any, pattern: str) -> datetime.date:
    """As everywhere, or as the cells are written."""
    found = _iso_day(value)
    if found is None and pattern != ISO:
        with contextlib.suppress(ValueError):
            found = datetime.datetime.strptime(str(value), pattern).date()
    if found is None:
        raise InvalidInput(
            f"the dictionary: column {shown(name)}: write its first and last day as 2020-12-31"
        )
    return found


def _iso_day(value: Any) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(str(value)[:10])
    except ValueError:
        return None


def _in_codebook(text: str, path: str | os.PathLike[str]) -> list[Known]:
    """The columns that a codebook describes; its cells may be separated by commas, semicolons or tabs."""
    for delimiter in ",;\t":
        rows = list(csv.reader(text.splitlines(), delimiter=delimiter))
        rows = [row for row in rows if any(map(str.strip, row))]
        keys = [_KEY_OF.get(cell.strip().lower().replace(" ", "_")) for cell in rows[0]] if rows else []
        if "name" in keys and len(keys) > 1:
            return [_line(dict(zip(keys, map(str.strip, row), strict=False)), path) for row in rows[1:]]
    raise InvalidInput(
        f"{path} is no dictionary: pass a codebook CSV whose first line is name, kind, low, high, levels, a "
        "Frictionless Table Schema, a JSON map from names to types, or a schema file"
    )


def _line(row: dict[str | None, str], path: str | os.PathLike[str]) -> Known:
    name = row.get("name", "")
    if not name:
        raise InvalidInput(f"the codebook {path} has a line without a name: fill it in")
    levels = [part.strip() for part in re.split(r"[|;]", row.get("levels", "")) if part.strip()]
    more: dict[str, Any] = {
        key: row[key] for key in ("format", "decimal", "thousands", "missing") if row.get(key)
    }
    codes = [number(part) for part in re.split(r"[|;]", row.get("missing_codes", "")) if part.strip()]
    if codes:
        more["missing_codes"] = codes
    return _bounded(
        name, _codebook_kind(row.get("kind", ""), name), row.get("low"), row.get("high"), levels, more
    )


def _codebook_kind(text: str, name: str) -> str:
    if not text:
        return ""
    if text.lower() in _IGNORED:
        return "ignored"
    kind = kind_of_type(text)
    if not kind:
        raise InvalidInput(
            f"the codebook: column {shown(name)}: unknown kind {shown(text)}: write numeric, categorical, "
            "boolean, date or ignored"
        )
    return kind


def _table_schema(content: Any) -> Json | None:
    """The Table Schema in a document: the document, its "schema", or that of its only resource."""
    if not isinstance(content, Mapping):
        return None
    if isinstance(content.get("fields"), list):
        return content
    resources = content.get("resources")
    if isinstance(resources, list):
        found = [schema for schema in map(_table_schema, resources) if schema is not None]
        if len(found) != 1:
            raise InvalidInput("the data package has no table or several: pass the Table Schema of one")
        return found[0]
    return _table_schema(content["schema"]) if isinstance(content.get("schema"), Mapping) else None


def _field(entry: Any, schema: Json, ignored: Sequence[str]) -> Known:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or not entry["name"]:
        raise InvalidInput('a field of the Table Schema has no name: write "name": "..."')
    name, constraints = entry["name"], entry.get("constraints")
    if name in ignored:
        return Known(name, {"kind": "ignored"})
    limits: Json = constraints if isinstance(constraints, Mapping) else {}
    levels = _values(limits.get("enum") or entry.get("categories"))
    kind = "numeric" if entry.get("type") == "year" else kind_of_type(str(entry.get("type", "")))
    if levels and kind in ("", "numeric"):
        kind = "categorical"
    own = entry.get("missingValues", schema.get("missingValues"))
    return _bounded(name, kind, limits.get("minimum"), limits.get("maximum"), levels, _more(entry, kind, own))


def _more(entry: Json, kind: str, missing: Any) -> dict[str, Any]:
    """How cells are written, where it is not as everywhere."""
    if kind == "numeric":
        codes = [value for value in map(number, _values(missing)) if value == value]
        found = {
            "decimal": entry.get("decimalChar") if entry.get("decimalChar") != "." else None,
            "thousands": entry.get("groupChar"),
            "missing_codes": codes,
        }
        return {key: value for key, value in found.items() if value}
    if kind == "boolean":
        words = [next(iter(_values(entry.get(key))), None) for key in ("falseValues", "trueValues")]
        return {"words": words} if None not in words else {}
    pattern = entry.get("format")
    return {"format": pattern} if kind == "date" and isinstance(pattern, str) and "%" in pattern else {}


def _values(values: Any) -> Sequence[Any]:
    """The values of a list, each alone or as {"value": ..., "label": ...}."""
    if not isinstance(values, list):
        return []
    return [value.get("value") if isinstance(value, Mapping) else value for value in values]
