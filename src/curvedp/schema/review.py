"""A schema file looked over before it is used: what is still open, what is wrong, what will cost accuracy.

Only the file is read, and of a table its names and declared types.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curvedp.errors import CurvedpError, InvalidInput
from curvedp.schema.column_entries import column_of
from curvedp.schema.columns import Ignored, shown
from curvedp.schema.compact import entry_of
from curvedp.schema.files import parse_toml
from curvedp.schema.kinds import Column
from curvedp.schema.known import Known
from curvedp.schema.schema import Schema

WIDE = 1e9  # between bounds that nobody thought about
MANY_LEVELS, MANY_COLUMNS = 100, 300
_TO_WRITE = {
    "": 'write [low, high], ["a", "b"], "boolean", "ignored" or a first and a last day',
    "numeric": "write its bounds, [low, high]",
    "date": "write its first and its last day, [2020-01-01, 2024-12-31]",
    "categorical": 'write its levels, ["a", "b"]',
}


@dataclass(frozen=True)
class Review:
    """What `review` found.

    Attributes
    ----------
    unfilled : tuple of str
        Columns that are still to fill in, each with what to write.
    problems : tuple of str
        What a fit would refuse.
    warnings : tuple of str
        What a fit takes and will pay for, or what is easily overlooked.
    columns : int
        How many columns the file declares.
    """

    unfilled: tuple[str, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    columns: int

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
    >>> from curvedp.schema.review import review
    >>> found = review('[columns]\\nage = [0, 120]\\nwage = "numeric"\\n', names=["age", "pay"])
    >>> found.unfilled
    ("column 'wage': write its bounds, [low, high]",)
    >>> found.problems
    ("column 'wage' is not in the table: correct its name, or remove it",)
    """
    try:
        content = parse_toml(text)
    except InvalidInput as error:
        return Review((), (str(error),), (), 0)
    columns: list[Column] = []
    unfilled: list[str] = []
    problems: list[str] = []
    entries = _entries(content, problems)
    for entry in entries:
        known = Known.of(entry)
        if known.is_complete:
            columns += _declared(entry, folder, problems)
        else:
            unfilled.append(
                f"column {shown(known.name)}: {_TO_WRITE.get(str(entry.get('kind')), _TO_WRITE[''])}"
            )
    schema = None if unfilled or problems else _schema(content, folder, problems)
    warnings = _costs(columns)
    if names is not None:
        unit = [content["unit"]] if isinstance(content.get("unit"), str) else []
        declared, present = {entry["name"] for entry in entries} | set(unit), set(names)
        extra = [name for name in names if name not in declared]
        problems += [_absent(c, extra) for c in _needed(entries, unit) if c not in present]
        if extra:
            warnings.append(f"not declared, and so not read: {_few(extra)}")
    if schema is not None:
        if not schema.has_target:
            warnings.append(
                'no target is named: write target = "..." above the columns, or pass it when you fit'
            )
        if empty is not None:
            problems += _against_types(schema, empty)
    return Review(tuple(unfilled), tuple(problems), tuple(warnings), len(entries))


def declared_names(text: str) -> list[str]:
    """The columns that a schema file names, filled in or not."""
    return [entry["name"] for entry in _entries(parse_toml(text), [])]


def _needed(entries: Sequence[Mapping[str, Any]], unit: Sequence[str]) -> list[str]:
    """The columns that the table must have: all that are not ignored, and whose row it is."""
    return [*(entry["name"] for entry in entries if entry.get("kind") != "ignored"), *unit]


def _entries(content: Mapping[str, Any], problems: list[str]) -> list[Mapping[str, Any]]:
    """Every column of the file in the long form; a line that cannot be read becomes a problem."""
    found: list[Mapping[str, Any]] = []
    lines, blocks = content.get("columns", {}), content.get("column", [])
    for name, value in lines.items() if isinstance(lines, Mapping) else ():
        try:
            found.append(entry_of(name, value))
        except InvalidInput as error:
            problems.append(str(error))
    for position, entry in enumerate(blocks if isinstance(blocks, list) else (), start=1):
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str) and entry["name"]:
            found.append(entry)
        else:
            problems.append(f'[[column]] {position} of the schema has no name: write name = "..."')
    if not (found or problems):
        problems.append("the schema has no columns: write [columns] with a line for each")
    return found


def _declared(entry: Mapping[str, Any], folder: Path | None, problems: list[str]) -> list[Column]:
    try:
        return [column_of(entry, 1, folder)]
    except InvalidInput as error:
        problems.append(str(error))
        return []


def _schema(content: Mapping[str, Any], folder: Path | None, problems: list[str]) -> Schema | None:
    """The whole of it: names that occur twice, the target, what belongs together."""
    try:
        return Schema.from_dict(content, folder)
    except InvalidInput as error:
        problems.append(str(error))
        return None


def _against_types(schema: Schema, empty: Any) -> list[str]:
    try:
        schema.read(empty)
        schema.persons(empty)
        if schema.has_target:
            schema.declared_target.encode(schema.target_cells(empty))
    except CurvedpError as error:
        return [str(error)]
    return []


def _costs(columns: Sequence[Column]) -> list[str]:
    """What will cost accuracy whatever the data are: noise grows with ranges and with columns."""
    found, total = [], 0
    for column in columns:
        if isinstance(column, Ignored):
            continue
        total += len(column.encoded_names)
        width = max(high - low for low, high in column.encoded_bounds)
        if width >= WIDE:
            found.append(
                f"column {shown(column.name)}: its bounds are {width:.2g} apart, and noise is in proportion: "
                "declare the range in which nearly all values lie"
            )
        if len(column.encoded_names) >= MANY_LEVELS:
            found.append(
                f"column {shown(column.name)}: {len(column.encoded_names)} levels are as many coefficients, "
                "each with noise of its own: merge the rare ones"
            )
    if total >= MANY_COLUMNS:
        found.append(f"{total} encoded columns share one budget: leave out what is not needed")
    return found


def _absent(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {shown(near[0])}?" if near else "correct its name, or remove it"
    return f"column {shown(name)} is not in the table: {hint}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(shown, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
