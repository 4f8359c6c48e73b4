"""What is publicly known of columns, from the documents that people have.

A dictionary is a Frictionless Table Schema (fields with types and constraints, alone or in a data package),
the metadata of a server (SmartNoise or Lomas, YAML; CSV on the Web, JSON), a DDI codebook (XML), a codebook
(a CSV with a line for each column: name, kind, low, high, levels), a JSON map from names to types, or another
schema file; its content or its name tells which. It becomes entries as in a [[column]], filled in as far as
it goes. It is public: whoever passes it says so.
"""

from __future__ import annotations

import contextlib
import csv
import datetime
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from curvedp.data.cells import level, number
from curvedp.data.columns import level_text, repeated, shown
from curvedp.data.dates import ISO
from curvedp.data.files import column_of, expanded, parse_toml, read_toml, toml_value
from curvedp.errors import InvalidInput

# The kind of column that a declared type suggests: of Parquet, Polars, pandas, numpy or a dictionary.
# Only its name is read. The categories that some types carry were collected from cells: they stay there.
_STEM = re.compile(r"[a-z_]+")
_STEMS = {
    "numeric": "int uint integer bigint smallint tinyint long short float double half_float halffloat "
    "decimal numeric number real byte positiveinteger negativeinteger nonnegativeinteger nonpositiveinteger "
    "unsignedlong unsignedint unsignedshort unsignedbyte",
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


Json = Mapping[str, Any]
_NEEDED = {"numeric": ("bounds",), "date": ("bounds",), "categorical": ("levels", "levels_file")}
_HEADINGS = {
    "name": "name column variable field feature",
    "kind": "kind type dtype",
    "low": "low min minimum lower",
    "high": "high max maximum upper",
    "levels": "levels values enum categories codes",
    "missing_codes": "missing_codes missing_values",
    **{key: key for key in ("format", "decimal", "thousands", "missing")},
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

    def of_type(self, text: str) -> Known:
        """What is known beside a declared type: the dictionary goes before it."""
        told = {key: value for key, value in self.entry.items() if value != ""}
        return replace(self, entry={"kind": kind_of_type(text), **told})

    @property
    def is_complete(self) -> bool:
        """Whether it has all that a schema needs, right or wrong."""
        kind = self.entry.get("kind", "")
        needed = _NEEDED.get(kind) if isinstance(kind, str) else None
        return bool(kind) and (needed is None or any(key in self.entry for key in needed))


class Dictionary(dict[str, Known]):
    """Columns by name; of the table, which column says whose row it is, and in words what else is known."""

    def __init__(self, found: Iterable[Known] = (), unit: str = "", notes: Iterable[str] = ()) -> None:
        columns = list(found)
        if (twice := repeated(known.name for known in columns)) is not None:
            raise InvalidInput(f"the dictionary has column {shown(columns[twice].name)} twice: remove one")
        super().__init__((known.name, known) for known in columns)
        self.unit, self.notes = unit, tuple(notes)


def read_dictionary(source: str | os.PathLike[str] | Mapping[str, Any]) -> Dictionary:
    """The columns of the dictionary in a file, or in what such a JSON file holds, by name."""
    found = _in_json(source) if isinstance(source, Mapping) else _in_file(source)
    for known in found.values():
        if known.is_complete and "levels_file" not in known.entry:
            try:
                column_of({"name": known.name, **known.entry}, 1)
            except InvalidInput as error:
                raise InvalidInput(f"the dictionary: {error}") from None
    return found


def _in_file(path: str | os.PathLike[str]) -> Dictionary:
    text, suffix = read_toml(path, "the dictionary"), Path(path).suffix
    if suffix == ".toml":
        entries = expanded(parse_toml(text)).get("column")
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            raise InvalidInput("this schema file has no columns: pass another dictionary")
        found = Dictionary(Known.of(entry) for entry in entries if isinstance(entry.get("name"), str))
    elif suffix in (".yaml", ".yml"):
        found = _in_server(_parsed(text, path, "YAML"), "YAML")
    elif text.lstrip().startswith(("{", "[")):
        found = _in_json(_parsed(text, path, "JSON"))
    elif text.lstrip().startswith("<"):
        doubt = "valid ranges, and some programs write there what they found in the data: look at them"
        found = Dictionary(_in_ddi(text, path), notes=[doubt])
    else:
        found = Dictionary(_in_codebook(text, path))
    for name, known in found.items():  # bounds and levels that say no source have this file
        said, is_read = known.entry.keys(), known.entry.get("kind") != "ignored"
        if is_read and {"bounds", "levels"} & said and not {"source", "origin"} & said:
            found[name] = replace(known, entry={**known.entry, "source": Path(path).name})
    return found


def _in_json(content: Any) -> Dictionary:
    if (schema := _table_schema(content)) is not None:
        keys = schema.get("primaryKey", [])
        ignored = [keys] if isinstance(keys, str) else keys if isinstance(keys, list) else []
        return Dictionary(_field(entry, schema, ignored) for entry in schema["fields"])
    if isinstance(content, Mapping) and content and all(isinstance(text, str) for text in content.values()):
        return Dictionary(Known(str(name), {"kind": kind_of_type(text)}) for name, text in content.items())
    return _in_server(content)


def _parsed(text: str, path: str | os.PathLike[str], what: str) -> Any:
    """Of YAML every scalar as it is written: the level `no` is no truth value."""
    problem = "to read a dictionary in YAML: pip install pyyaml, or pass the same content as JSON"
    with contextlib.suppress(ImportError):
        yaml = import_module("yaml") if what == "YAML" else None
        problem = f"the dictionary {path} begins as {what} and is none: correct it"
        with contextlib.suppress(ValueError, RecursionError, getattr(yaml, "YAMLError", ValueError)):
            return json.loads(text) if yaml is None else yaml.load(text, yaml.BaseLoader)
    raise InvalidInput(problem)


def _bounded(name: str, kind: str, low: Any, high: Any, levels: Sequence[Any], more: Json) -> Known:
    """A column of that kind ("": by what is there) with ends and levels as a dictionary writes them. One end
    alone becomes a hint. A number such as 20201231 is no date unless a format says so."""
    ends = [None if value in (None, "") else value for value in (low, high)]
    entry, hint, pattern = dict[str, Any](), "", str(more.get("format", ISO))
    if not kind and not levels:
        days = all(_iso_day(end) is not None and math.isnan(number(end)) for end in ends)
        kind = "date" if days or "%" in pattern else "" if None in ends else "numeric"
    if levels and kind in ("", "categorical"):
        kind, texts = "categorical", (one if isinstance(one, str | int | float) else "" for one in levels)
        entry["levels"] = list(map(level_text, texts))
    elif kind in ("numeric", "date"):
        low, high = (None if value is None else _end(name, value, kind, pattern) for value in ends)
        if None not in (low, high):
            entry["bounds"] = [low, high]
        elif (low, high) != (None, None):
            words = (word if end is None else toml_value(end) for end, word in ((low, "low"), (high, "high")))
            hint = f"[{', '.join(words)}]"
    return Known(name, {"kind": kind, **entry, **more}, hint)


def _end(name: str, value: Any, kind: str, pattern: str) -> Any:
    """A bound as a number, or as a day that is written as everywhere, or as the cells are."""
    what = f"the dictionary: column {shown(name)}"
    if kind == "numeric":
        if not math.isfinite(found := number(value)):
            raise InvalidInput(f"{what}: an end of its bounds is no number")
        return found
    if (day := _iso_day(value)) is None and pattern != ISO:
        with contextlib.suppress(ValueError):
            day = datetime.datetime.strptime(str(value), pattern).date()
    if day is None:
        raise InvalidInput(f"{what}: write its first and last day as 2020-12-31")
    return day


def _iso_day(value: Any) -> datetime.date | None:
    with contextlib.suppress(ValueError):
        return datetime.date.fromisoformat(str(value)[:10])
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
        "Frictionless Table Schema, the YAML of SmartNoise or Lomas, a DDI codebook (XML), a JSON map from "
        "names to types, or a schema file"
    )


def _line(row: dict[str | None, str], path: str | os.PathLike[str]) -> Known:
    name, said = row.get("name", ""), row.get("kind", "")
    if not name:
        raise InvalidInput(f"the codebook {path} has a line without a name: fill it in")
    kind = "ignored" if said.lower() in _IGNORED else kind_of_type(said)
    if said and not kind:
        raise InvalidInput(
            f"the codebook: column {shown(name)}: unknown kind {shown(said)}: write numeric, categorical, "
            "boolean, date or ignored"
        )
    levels, codes = (
        [part.strip() for part in re.split(r"[|;]", row.get(key, "")) if part.strip()]
        for key in ("levels", "missing_codes")
    )
    told = {key: row[key] for key in ("format", "decimal", "thousands", "missing") if row.get(key)}
    more = {**told, "missing_codes": list(map(number, codes))} if codes else told
    return _bounded(name, kind, row.get("low"), row.get("high"), levels, more)


def _table_schema(content: Any) -> Json | None:
    """The Table Schema in a document: the document, its "schema", or that of its only resource."""
    if not isinstance(content, Mapping):
        return None
    if isinstance(content.get("fields"), list):
        return content
    if isinstance(resources := content.get("resources"), list):
        if len(found := [schema for schema in map(_table_schema, resources) if schema is not None]) != 1:
            raise InvalidInput("the data package has no table or several: pass the Table Schema of one")
        return found[0]
    return _table_schema(content.get("schema"))


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


# What servers keep of a table: SmartNoise SQL (database, schema, table, then its columns) and Lomas (below
# "columns") in YAML; CSV on the Web, with what Lomas adds to it from version 0.5 on, in JSON.

_NOTHING = ("", "null", "none", "~")
_UNICODE_DATES = (("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"))  # how CSV on the Web writes a format
_PERSON, _ROWS, _MOST = ("private_id", "privacyId"), ("rows", "publicLength"), ("max_ids", "maxContributions")


def _in_server(content: Any, what: str = "JSON") -> Dictionary:
    if len(tables := list(_tables(content, {}))) != 1:
        raise InvalidInput(
            f'this {what} is no dictionary of one table: pass a Table Schema with "fields", the metadata of '
            'SmartNoise or Lomas, or a map from names to types as in {"age": "Int64"}'
        )
    table, columns = tables[0]
    whose = [name for name, column in columns.items() if _holds(column, *_PERSON)]
    rows, most = _count(table, *_ROWS), _count(table, *_MOST)
    notes = {
        f"a person may have up to {most} rows{'' if whose else '; name the unit'}": most not in ("", "1"),
        "row_privacy; with a unit, a person is protected with all rows": whose
        and _holds(table, "row_privacy"),
        f"rows = {rows}; if that is public, and was not counted, write it in a table [release]": rows,
    }
    found = [_served(name, column) for name, column in columns.items()]
    unit = whose[0] if len(whose) == 1 else ""
    return Dictionary(found, unit, [words for words, said in notes.items() if said])


def _tables(content: Any, above: Json, depth: int = 4) -> Iterator[tuple[Json, dict[str, Json]]]:
    """Of every table in a document what is said of it and above it, and its columns by name."""
    if isinstance(content, Mapping) and depth:  # database, schema, table
        columns, said = _columns(content.get("columns")) or _columns(content), {**above, **content}
        if columns:
            yield said, columns
        for part in () if columns else content.values():
            yield from _tables(part, said, depth - 1)


def _columns(content: Any) -> dict[str, Json]:
    """{name: column}, of those in a mapping that have a type, or of a list of columns with names."""
    if isinstance(content, list):
        return {str(c["name"]): c for c in content if isinstance(c, Mapping) and "name" in c}
    named = content.items() if isinstance(content, Mapping) else ()
    return {str(name): c for name, c in named if isinstance(c, Mapping) and isinstance(c.get("type"), str)}


def _served(name: str, column: Json) -> Known:
    if _holds(column, *_PERSON):
        return Known(name, {"kind": "ignored"})
    base = column.get("datatype")
    said: Json = {**base, **column} if isinstance(base, Mapping) else column
    kind = kind_of_type(str(said.get("type") or said.get("base") or base))
    levels = _values(said.get("categories") or said.get("keyValues"))
    low, high = (_told(said, *keys) for keys in (("lower", "minimum"), ("upper", "maximum")))
    written = said.get("format")  # of numbers a mapping, of dates such as dd.MM.yyyy
    pattern = reduce(lambda text, pair: text.replace(*pair), _UNICODE_DATES, str(written))
    more = _more(written if isinstance(written, Mapping) else {"format": pattern}, kind, said.get("null"))
    if levels and kind != "boolean":
        kind, more = "categorical", {}
    found, size = _bounded(name, kind, low, high, levels, more), _count(said, "cardinality")
    return replace(found, hint=f"{size} levels") if size and not found.is_complete else found


def _told(content: Json, *keys: str) -> Any:
    """What stands under the first of the keys that holds a scalar; None where there is none."""
    scalars = [value for value in map(content.get, keys) if isinstance(value, str | int | float)]
    return next((value for value in scalars if str(value).strip().lower() not in _NOTHING), None)


def _count(content: Json, *keys: str) -> str:
    found = number(_told(content, *keys))
    return f"{found:.15g}" if math.isfinite(found) else ""


def _holds(content: Json, *keys: str) -> bool:
    return str(_told(content, *keys)).lower() in ("true", "yes", "on", "1")


# DDI codebooks: what was declared of a variable is read, what was computed from the data is not.
# Of sumStat (minimum, maximum, mean …) and catStat (frequencies) only their presence counts: a range that
# equals the minimum and the maximum, and categories that were counted and have no label, were found in cells.


def _in_ddi(text: str, path: str | os.PathLike[str]) -> list[Known]:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InvalidInput(f"the dictionary {path} has a DTD, which is not read: remove its <!DOCTYPE ...>")
    try:
        variables = ElementTree.fromstring(text).findall(".//{*}var[@name]")
    except (ElementTree.ParseError, ValueError, RecursionError):
        variables = []
    if not variables:
        raise InvalidInput(f"the dictionary {path} is no DDI codebook with variables: correct it")
    return [_variable(var) for var in variables]


def _said(element: ElementTree.Element, tag: str) -> str:
    """The text of the first such child on one line; "" without one."""
    child = element.find("{*}" + tag)
    return "" if child is None else " ".join("".join(child.itertext()).split())


def _variable(var: ElementTree.Element) -> Known:
    name, form = var.get("name", ""), next(var.iterfind("{*}varFormat"), var)
    categories = [each for each in var.findall("{*}catgry") if _said(each, "catValu")]
    own = [each for each in categories if each.get("missing") != "Y"]
    absent = [_said(each, "catValu") for each in categories if each.get("missing") == "Y"]
    absent += [each.get("VALUE", "") for each in var.findall("{*}invalrng/{*}item")]
    ranges = var.findall("{*}valrng/{*}range")
    if form.get("category") != "date" and (
        form.get("type") == "character"
        or (len(own) > 1 and (var.get("intrvl") == "discrete" or not (ranges or var.get("intrvl"))))
    ):
        counted = any(not _said(each, "labl") and each.findall("{*}catStat") for each in own)
        levels = {} if counted or len(own) < 2 else {"levels": _labelled(own)}
        return Known(name, {"kind": "categorical", **levels}, "counted in the data, not declared" * counted)
    kind = "date" if form.get("category") == "date" else "numeric" if form.get("type") == "numeric" else ""
    only = ranges[0] if len(ranges) == 1 else var
    low, high = (only.get(end) or only.get(f"{end}Exclusive") for end in ("min", "max"))
    stats = {each.get("type"): number("".join(each.itertext())) for each in var.findall("{*}sumStat")}
    of_data = [stats[end] == number(value) for end, value in (("min", low), ("max", high)) if end in stats]
    if (of_data and all(of_data)) or number(low) >= number(high):
        low = high = None
    codes = [value for value in map(number, absent) if math.isfinite(value)]
    more = {"missing_codes": list(dict.fromkeys(codes))} if codes and kind != "date" else {}
    found = _bounded(name, kind, low, high, (), more)
    hint = "[low, high], public ones: sumStat is computed from the data"
    return replace(found, hint=hint) if of_data and not found.is_complete else found


def _labelled(categories: Sequence[ElementTree.Element]) -> list[str] | dict[str, list[str]]:
    """{label: [code]}, so that cells may say either; codes alone where labels are missing or ambiguous."""
    pairs = [(_said(each, "labl"), _said(each, "catValu")) for each in categories]
    spoken = [key for pair in pairs for key in sorted(set(map(level, pair)))]
    if not all(label for label, _ in pairs) or repeated(spoken) is not None:
        return [code for _, code in pairs]
    return {label: [code] if level(code) != level(label) else [] for label, code in pairs}
