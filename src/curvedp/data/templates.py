"""A schema file for a person to fill in: names and declared types of a table, and what a dictionary says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import narwhals as nw
from narwhals.dependencies import is_dask_dataframe, is_pandas_dataframe

from curvedp.data import delimited, files
from curvedp.data.cells import Numerals
from curvedp.data.columns import Ignored, Numeric, nearest, shown
from curvedp.data.dates import Column
from curvedp.data.delimited import PLAIN, FileFormat, is_parquet
from curvedp.data.dictionaries import Dictionary, Known, read_dictionary
from curvedp.data.frames import TABLE_KINDS, check_distinct, is_path
from curvedp.data.roles import advice_of_unit, looks_like_identifier
from curvedp.data.schema import Schema
from curvedp.data.source import empty_table
from curvedp.data.targets import linear_odds
from curvedp.errors import CurvedpError, InvalidInput

Form = Literal["compact", "long"]

_HEAD = f"""\
# Fill in every column. Bounds and levels are public promises: take them from a codebook or from common
# knowledge, never from the data. Bounds can be bought, too: see curvedp bounds --help. Then name the target
# below, or when you fit.
#
# May a person have several rows? Then name the column that says whose row it is as unit below, and a person
# is protected with all rows; without it, every row is by itself. All rows are used, or one of each person,
# which a coin chooses, if you add: rows_per_person = "one"
#
{{forms}}
#
# record: what one row of the table is, in words. Its owner is who is protected.
# adjacency: "replace" protects what a record says; "add_remove" also hides that it is there.

record = {files.toml_value(files.RECORD)}
adjacency = {files.toml_value(files.ADJACENCY)}
{{unit}}
# target = "..."
"""
_COMPACT = """\
#   age = [0, 120]                    a number: a value outside is clipped to the bounds
#   sex = ["f", "m"]                  a category: any other value counts as missing; where cells say a
#                                     level in several ways, {levels = {f = ["F", "woman"], m = ["M"]}}
#   day = [2020-01-01, 2024-12-31]    a date between bounds
#   smoker = "boolean"                yes or no
#   note = "ignored"                  the column is not used"""
_LONG = """\
#   kind = "numeric"      with bounds = [0, 120]        a value outside is clipped to the bounds
#   kind = "categorical"  with levels = ["no", "yes"]   any other value counts as missing
#   kind = "date"         with bounds = ["2020-01-01", "2024-12-31"]
#   kind = "boolean"                                    yes or no
#   kind = "ignored"                                    the column is not used"""
_HINTS = {"numeric": "[low, high]", "categorical": '["a", "b"]', "date": "[2020-01-01, 2024-12-31]"}
_WHOSE = '"ignored", if it says whose row it is'
_OPEN: Mapping[str, Any] = {"numeric": {"bounds": []}, "date": {"bounds": []}, "categorical": {"levels": []}}


def schema_template(
    source: Any = None,
    *,
    delimiter: str | None = None,
    file: FileFormat = PLAIN,
    header: bool | None = None,
    names: Sequence[str] | None = None,
    dictionary: str | os.PathLike[str] | Mapping[str, str] | None = None,
    form: Form = "compact",
) -> str:
    """A schema file for a person to fill in: the columns of a table, by name and declared type; never a cell.

    Parameters
    ----------
    source : path, data frame or mapping, optional
        A CSV file (also compressed by gzip), a Parquet file or folder, a data frame, or a mapping from names
        to types. May be left out beside a dictionary.
    delimiter : str, optional
        What separates the cells of a CSV file, in the place of what `file` says.
    file : FileFormat, optional
        How a CSV file is written: encoding, delimiter, decimal sign. The schema file keeps it.
    header : bool, optional
        Whether the first line of a CSV file names the columns, or the names in a Parquet file do. Unless you
        say so, one that looks like data (numbers, dates, addresses, empty, repeated or very long texts, or
        with a space) is refused and not shown.
    names : sequence of str, optional
        The names of the columns of a CSV file whose first line does not say them, in their order.
    dictionary : path or mapping, optional
        What is publicly known of the columns: a Frictionless Table Schema, the metadata of SmartNoise or
        Lomas (YAML), a DDI codebook (XML), a codebook CSV (name, kind, low, high, levels), a JSON map from
        names to types, or another schema file.
    form : {"compact", "long"}, default="compact"
        One line for each column, or a [[column]] for each.

    Returns
    -------
    text : str
        TOML, to be completed with a kind and bounds or levels for every column that still lacks them.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import schema_template
    >>> text = schema_template({"age": "Int64", "sex": "category", "smoker": "bool"})
    >>> print(text[text.index("[columns]"):])
    [columns]
    age = "numeric"    # [low, high]
    sex = "categorical"    # ["a", "b"]
    smoker = "boolean"
    <BLANKLINE>
    """
    if form not in ("compact", "long"):
        raise InvalidInput('form must be "compact" or "long"')
    known = Dictionary() if dictionary is None else read_dictionary(dictionary)
    file = file if delimiter is None else replace(file, delimiter=delimiter)
    if names is not None:
        if not is_path(source) or is_parquet(source):
            raise InvalidInput("names are for a CSV file without a header: this table has its own")
        file = replace(file, names=tuple(names))
        delimited.header_cells(source, file)  # refuses what is no file; the first line is not shown
    if source is None and dictionary is None:
        raise InvalidInput("name a table, a dictionary, or both: there is nothing to write a schema of")
    types = dict.fromkeys(known, "") if source is None else column_types(source, file=file, header=header)
    guess = files.toml_value(next(filter(looks_like_identifier, types), "..."))
    unit = f"unit = {files.toml_value(known.unit)}" if known.unit in types else f"# unit = {guess}"
    parts = [_HEAD.format(forms=_COMPACT if form == "compact" else _LONG, unit=unit)]
    parts += [f"# The dictionary says: {note}.\n" for note in known.notes]
    parts += ["\n" + files.to_toml({"file": file.to_dict()}).lstrip()] if file.to_dict() else []
    columns = [known.get(name, Known(name, {})).of_type(text) for name, text in types.items()]
    parts += ["\n[columns]\n", *map(_line, columns)] if form == "compact" else map(_block, columns)
    unused = [f"#   {files.toml_value(name)}\n" for name in known if name not in types]
    return "".join([*parts, *(["\n# In the dictionary, and not in the table:\n", *unused] if unused else [])])


def column_types(source: Any, *, file: FileFormat = PLAIN, header: bool | None = None) -> dict[str, str]:
    """{column: declared type} of a file, a frame in memory, lazy or Dask, or a mapping to types or arrays; ""
    where none is declared, as in a CSV file, or by cells in a list."""
    pairs: Iterable[tuple[Any, Any]]
    if is_path(source) and not is_parquet(source):
        names = file.names or delimited.csv_names(source, file, header=header)
        return dict.fromkeys(names, "")
    if is_path(source):
        declared = empty_table(source).schema
        delimited.check_parquet_names(source, declared.names, header)
        return dict(zip(declared.names, map(str, declared.types), strict=True))
    if isinstance(source, Mapping):
        pairs = ((name, v if isinstance(v, str) else getattr(v, "dtype", "")) for name, v in source.items())
    elif is_pandas_dataframe(source) or is_dask_dataframe(source):
        # narwhals would look into a column of objects to tell its type
        pairs = zip(source.columns, source.dtypes, strict=True)
    else:
        frame = nw.from_native(source, pass_through=True)
        if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
            raise InvalidInput(TABLE_KINDS)
        pairs = frame.collect_schema().items()
    declared = [(str(name), str(kind)) for name, kind in pairs]
    check_distinct(name for name, _ in declared)
    return dict(declared)


def _line(column: Known) -> str:
    entry, kind, comment = column.entry, column.entry["kind"], ""
    if not column.is_complete:
        comment = column.hint or (_WHOSE if looks_like_identifier(column.name) else _HINTS.get(kind, ""))
        if len(entry) > 1:
            entry = {"kind": kind, **_OPEN.get(kind, {}), **entry}
    words = f"    # {comment}" if comment else ""
    return f"{files.toml_key(column.name)} = {files.toml_value(files.compact_value(entry))}{words}\n"


def _block(column: Known) -> str:
    kind = column.entry["kind"]
    blank = _OPEN.get(kind, {}) if kind else {"bounds": [], "levels": []}
    whole = {"name": column.name, "kind": kind, **blank, **column.entry}
    return "\n" + files.to_toml({"column": [whole]}).lstrip()


_TABLE = re.compile(r"(?m)^(?=[ \t]*\[)")
_NAME = re.compile(r"\s*name\s*=")
_OF_BOUNDS = ("kind", "bounds", "levels", "source", "origin")
_REPLACED = re.compile(rf"\s*(?:{'|'.join(_OF_BOUNDS)})\s*=")


def with_bounds(text: str, found: Mapping[str, Numeric]) -> str:
    """The schema file, filled in or not, with these columns declared, every other line as it was. Refused: a
    file without one of them, and one that is not laid out line by line."""
    content = files.parse_toml(text)
    for name in found:
        declared_entry(content, name)
    edited = "".join(_edited(block, found) for block in _TABLE.split(text))
    after = _parsed(edited)
    wanted = [_bounded(entry, found.get(entry["name"])) for entry in _entries(content, [])]
    rest = [{k: v for k, v in each.items() if k not in ("columns", "column")} for each in (content, after)]
    if _entries(after, []) != wanted or rest[0] != rest[1]:
        raise InvalidInput(
            "this schema is not laid out as curvedp writes it, with one line for each column, or each "
            "[[column]] with one line for each key: write it so, or fill the bounds in by hand"
        )
    return edited


def declared_entry(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What a schema file says of a column, filled in or not, as a [[column]] says it."""
    if len(own := [entry for entry in _entries(content, []) if entry["name"] == name]) != 1:
        raise InvalidInput(f"the schema has no column {shown(name)}: add it, or leave it out here")
    return own[0]


def require_open(text: str, name: str, *, force: bool = False) -> None:
    """Refuse a column whose kind or bounds the schema file declares already; with `force`, dates alone."""
    entry = declared_entry(files.parse_toml(text), name)
    if entry.get("kind") == "date":
        raise InvalidInput(
            f"column {shown(name)} is a date, whose bounds cannot be bought: declare its first and last day"
        )
    if force:
        return
    if entry.get("kind") not in (None, "", "numeric"):
        raise InvalidInput(f"the schema declares that column {shown(name)} is not numeric: leave it out here")
    if entry.get("bounds"):
        raise InvalidInput(
            f"the schema declares bounds of column {shown(name)} already: leave it out here, or pass --force "
            "to replace them"
        )


def declared_file(text: str) -> FileFormat:
    """How the files of a schema are written."""
    return FileFormat.from_dict(files.parse_toml(text).get("file", {}))


def declared_numerals(text: str, names: Iterable[str], file: FileFormat) -> dict[str, Numerals]:
    """How the numbers of these columns are written, filled in or not."""
    content, found = files.parse_toml(text), {}
    for name in names:
        entry = declared_entry(content, name)
        told = {key: entry[key] for key in ("decimal", "thousands", "missing_codes") if entry.get(key)}
        found[name] = Numeric(name, 0.0, 1.0, **told).in_file(file.decimal).numerals
    return found


def _edited(block: str, found: Mapping[str, Numeric]) -> str:
    """A part of the file that begins with [columns], with one [[column]], or with neither."""
    parsed, lines = _parsed(block), block.splitlines(keepends=True)
    if "columns" in parsed:
        for i, line in enumerate(lines):
            for name, value in _parsed(line).items():
                if name in found:
                    bounded = files.compact_value(_bounded(files.entry_of(name, value), found[name]))
                    lines[i] = f"{files.toml_key(name)} = {files.toml_value(bounded)}\n"
        return "".join(lines)
    names = [entry["name"] for entry in _entries(parsed, [])]
    if len(names) != 1 or names[0] not in found:
        return block
    new = {key: value for key, value in found[names[0]].to_dict().items() if key != "name"}
    lines = [line for line in lines if not _REPLACED.match(line)]
    after = next((i for i, line in enumerate(lines, start=1) if _NAME.match(line)), len(lines))
    head = "".join(lines[:after]).rstrip("\n")
    return f"{head}\n{files.to_toml({**new, 'column': []})}{''.join(lines[after:])}"


def _bounded(entry: Mapping[str, Any], column: Numeric | None) -> Mapping[str, Any]:
    """The entry with these bounds, if any; how its cells are written stays."""
    kept = {key: value for key, value in entry.items() if key not in _OF_BOUNDS}
    return entry if column is None else {**kept, **column.to_dict()}


def _parsed(text: str) -> dict[str, Any]:
    with suppress(InvalidInput):
        return files.parse_toml(text)
    return {}


WIDE = 1e9  # between bounds that nobody thought about
MANY_LEVELS, MANY_COLUMNS = 100, 300
_TO_WRITE = {
    "": 'write [low, high], ["a", "b"], "boolean", "ignored" or a first and a last day',
    "numeric": "write its bounds, [low, high]",
    "date": "write its first and its last day, [2020-01-01, 2024-12-31]",
    "categorical": 'write its levels, ["a", "b"]',
}
_IGNORED = 'write "ignored": it says whose row it is'


@dataclass(frozen=True)
class Review:
    """What `review` found."""

    unfilled: tuple[str, ...]  # columns that are still to fill in, each with what to write
    problems: tuple[str, ...]  # what a fit would refuse
    warnings: tuple[str, ...]  # what a fit takes and will pay for, or what is easily overlooked
    columns: int  # how many the file declares

    @property
    def complete(self) -> bool:
        """Whether a fit can use the file."""
        return not (self.unfilled or self.problems)


def review(
    text: str, names: Sequence[str] | None = None, *, empty: Any = None, folder: Path | None = None
) -> Review:
    """Look over a schema file, filled in or not; no data are needed and none are read.

    Parameters
    ----------
    text : str
        The file's content.
    names : sequence of str, optional
        The names of the table's columns, as in its header.
    empty : data frame, optional
        A table of no rows, whose types are compared with the declarations.
    folder : path, optional
        Where the file stands; files of levels are found beside it.

    Returns
    -------
    review : Review
        What is open, what is wrong, and what will cost accuracy.

    Examples
    --------
    >>> from curvedp.data.templates import review
    >>> found = review('[columns]\\nage = [0, 120]\\nwage = "numeric"\\n', names=["age", "pay"])
    >>> found.unfilled
    ("column 'wage': write its bounds, [low, high]",)
    >>> found.problems
    ("column 'wage' is not in the table: correct its name, or remove it",)
    """
    columns: list[Column] = []
    unfilled: list[str] = []
    problems: list[str] = []
    try:
        content = files.parse_toml(text)
    except InvalidInput as error:
        return Review((), (str(error),), (), 0)
    entries = _entries(content, problems)
    for entry in entries:
        if (known := Known.of(entry)).is_complete:
            with _noted(problems):
                columns.append(files.column_of(entry, 1, folder))
        else:
            whose = known.name == content.get("unit")
            to_write = _IGNORED if whose else _TO_WRITE.get(str(entry.get("kind")), _TO_WRITE[""])
            unfilled.append(f"column {shown(known.name)}: {to_write}")
    schema = None
    if not (unfilled or problems):
        with _noted(problems):  # the whole of it: names that occur twice, the target, what belongs together
            schema = Schema.from_dict(content, folder)
    warnings, extra = _costs(columns), []
    if names is not None:
        unit = [content["unit"]] if isinstance(content.get("unit"), str) else []
        needed = [*(entry["name"] for entry in entries if entry.get("kind") != "ignored"), *unit]
        declared, present = {*unit, *(entry["name"] for entry in entries)}, set(names)
        extra = [name for name in names if name not in declared]
        for name in (name for name in needed if name not in present):
            hint = nearest(name, extra, "correct its name, or remove it")
            problems.append(f"column {shown(name)} is not in the table: {hint}")
        if extra:
            more = f" and {len(extra) - 10} more" if len(extra) > 10 else ""
            warnings.append(f"not declared, and so not read: {', '.join(map(shown, extra[:10]))}{more}")
    if schema is not None:
        if advice := schema.unit_advice or advice_of_unit(extra if schema.unit is None else ()):
            warnings.append(advice)
        if not schema.has_target:
            warnings.append(
                'no target is named: write target = "..." above the columns, or pass it when you fit'
            )
        else:
            warnings += linear_odds(schema.declared_target, schema.target)
        if empty is not None:
            with _noted(problems):
                schema.read(empty)
                schema.source(empty).of_persons(schema.unit)
                if schema.has_target:
                    schema.declared_target.encode(schema.target_cells(empty))
    return Review(tuple(unfilled), tuple(problems), tuple(warnings), len(entries))


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """A refusal becomes one of the problems."""
    try:
        yield
    except CurvedpError as error:
        problems.append(str(error))


def declared_names(text: str) -> list[str]:
    """The columns that a schema file names, filled in or not."""
    return [entry["name"] for entry in _entries(files.parse_toml(text), [])]


def _entries(content: Mapping[str, Any], problems: list[str]) -> list[Mapping[str, Any]]:
    """Every column of the file in the long form; a line that cannot be read becomes a problem."""
    found: list[Mapping[str, Any]] = []
    lines, blocks = files.lines_and_blocks(content)
    for name, value in lines.items():
        with _noted(problems):
            found.append(files.entry_of(name, value))
    for position, entry in enumerate(blocks, start=1):
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str) and entry["name"]:
            found.append(entry)
        else:
            problems.append(f'[[column]] {position} of the schema has no name: write name = "..."')
    if not (found or problems):
        problems.append("the schema has no columns: write [columns] with a line for each")
    return found


def _costs(columns: Sequence[Column]) -> list[str]:
    """What will cost accuracy whatever the data are: noise grows with ranges and with columns."""
    found, total = [], 0
    for column in (column for column in columns if not isinstance(column, Ignored)):
        total += column.size
        width = max(high - low for low, high in column.encoded_bounds)
        if width >= WIDE:
            found.append(
                f"column {shown(column.name)}: its bounds are {width:.2g} apart, and noise is in proportion: "
                "declare the range in which nearly all values lie"
            )
        if column.size >= MANY_LEVELS:
            found.append(
                f"column {shown(column.name)}: {column.size} levels are as many coefficients, each with "
                "noise of its own: merge the rare ones"
            )
    if total >= MANY_COLUMNS:
        found.append(f"{total} encoded columns share one budget: leave out what is not needed")
    return found
