"""A schema file for a person to fill in: names and declared types of a table, and what a dictionary says."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from curvedp.errors import InvalidInput
from curvedp.schema.compact import compact_value
from curvedp.schema.delimited import header_cells
from curvedp.schema.dictionaries import Known, read_dictionary
from curvedp.schema.files import ADJACENCY, RECORD, to_toml, toml_key, toml_value
from curvedp.schema.formats import PLAIN, FileFormat
from curvedp.schema.frames import is_path
from curvedp.schema.headers import check_parquet_names, names_in_header
from curvedp.schema.stored import is_parquet, parquet_types
from curvedp.schema.types import declared_types, kind_of_type

Form = Literal["compact", "long"]

_HEAD = f"""\
# Fill in every column. Bounds and levels are public promises: take them from a codebook or from common
# knowledge, never from the data. Bounds can be bought, too: see curvedp bounds --help. Then name the target
# below, or when you fit.
#
{{forms}}
#
# record: what one row of the table is, in words. Its owner is who is protected.
# adjacency: "replace" protects what a record says; "add_remove" also hides that it is there.

record = {toml_value(RECORD)}
adjacency = {toml_value(ADJACENCY)}
# target = "..."
"""
_COMPACT = """\
#   age = [0, 120]                    a number: a value outside is clipped to the bounds
#   sex = ["f", "m"]                  a category: any other value counts as missing
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
_OPEN: Mapping[str, Mapping[str, Any]] = {
    "numeric": {"bounds": []},
    "date": {"bounds": []},
    "categorical": {"levels": []},
}


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
        What is publicly known of the columns: a Frictionless Table Schema, a codebook CSV (name, kind, low,
        high, levels), a JSON map from names to types, or another schema file.
    form : {"compact", "long"}, default="compact"
        One line for each column, or a [[column]] for each.

    Returns
    -------
    text : str
        TOML, to be completed with a kind and bounds or levels for every column that still lacks them.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp.schema import schema_template
    >>> text = schema_template({"age": "Int64", "sex": "category", "smoker": "bool"})
    >>> print(text[text.index("[columns]"):])
    [columns]
    age = "numeric"    # [low, high]
    sex = "categorical"    # ["a", "b"]
    smoker = "boolean"
    <BLANKLINE>
    """
    known = {} if dictionary is None else read_dictionary(dictionary)
    file = file if delimiter is None else replace(file, delimiter=delimiter)
    if names is not None:
        file = _with_names(source, file, names)
    if source is None:
        if dictionary is None:
            raise InvalidInput("name a table, a dictionary, or both: there is nothing to write a schema of")
        types = dict.fromkeys(known, "")
    else:
        types = column_types(source, file=file, header=header)
    columns = [_beside(name, text, known.get(name, Known(name, {}))) for name, text in types.items()]
    body = (
        "\n[columns]\n" + "".join(map(_line, columns)) if form == "compact" else "".join(map(_block, columns))
    )
    return _head(form, file) + body + _not_used([name for name in known if name not in types])


def column_types(source: Any, *, file: FileFormat = PLAIN, header: bool | None = None) -> dict[str, str]:
    """{column: declared type} of a table; the type is "" where a CSV file declares none."""
    if not is_path(source):
        return declared_types(source)
    if is_parquet(source):
        found = parquet_types(source)
        check_parquet_names(source, [name for name, _ in found], header)
        return dict(found)
    return dict.fromkeys(file.names or names_in_header(source, file=file, header=header), "")


def _with_names(source: Any, file: FileFormat, names: Sequence[str]) -> FileFormat:
    """The format of a file without a header. Its first line is a record, and says nothing of their number."""
    if not is_path(source) or is_parquet(source):
        raise InvalidInput("names are for a CSV file without a header: this table has its own")
    file = replace(file, names=tuple(names))
    header_cells(source, file=file)  # refuses what is no file
    return file


def _head(form: Form, file: FileFormat) -> str:
    if form not in ("compact", "long"):
        raise InvalidInput('form must be "compact" or "long"')
    told = file.to_dict()
    table = "\n" + to_toml({"file": told}).lstrip() if told else ""
    return _HEAD.format(forms=_COMPACT if form == "compact" else _LONG) + table


def _beside(name: str, type_text: str, known: Known) -> Known:
    """What is known of a column: its dictionary goes before its type."""
    told = {key: value for key, value in known.entry.items() if value != ""}
    return Known(name, {"kind": kind_of_type(type_text), **told}, known.hint)


def _line(column: Known) -> str:
    entry, kind, comment = column.entry, column.entry["kind"], ""
    if not column.is_complete:
        comment = column.hint or _HINTS.get(kind, "")
        if len(entry) > 1:
            entry = {"kind": kind, **_OPEN.get(kind, {}), **entry}
    words = f"    # {comment}" if comment else ""
    return f"{toml_key(column.name)} = {toml_value(compact_value(entry))}{words}\n"


def _block(column: Known) -> str:
    kind = column.entry["kind"]
    blank = _OPEN.get(kind, {}) if kind else {"bounds": [], "levels": []}
    whole = {"name": column.name, "kind": kind, **blank, **column.entry}
    return "\n" + to_toml({"column": [whole]}).lstrip()


def _not_used(names: Sequence[str]) -> str:
    """What the dictionary knows and the table does not have, as a comment."""
    lines = "".join(f"#   {toml_value(name)}\n" for name in names)
    return f"\n# In the dictionary, and not in the table:\n{lines}" if names else ""
