"""A schema file looked over before it is used: what is still open, what is wrong, what will cost accuracy.

Only the file is read, and of a table its names and declared types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curvedp.errors import CurvedpError
from curvedp.schema.column_entries import column_of
from curvedp.schema.columns import Ignored, nearest, shown
from curvedp.schema.compact import entry_of
from curvedp.schema.dictionaries import Known
from curvedp.schema.files import parse_toml
from curvedp.schema.kinds import Column
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
    columns: list[Column] = []
    unfilled: list[str] = []
    problems: list[str] = []
    content: Mapping[str, Any] = {}
    with _noted(problems):
        content = parse_toml(text)
    if problems:
        return Review((), tuple(problems), (), 0)
    entries = _entries(content, problems)
    for entry in entries:
        known = Known.of(entry)
        if known.is_complete:
            with _noted(problems):
                columns.append(column_of(entry, 1, folder))
        else:
            unfilled.append(
                f"column {shown(known.name)}: {_TO_WRITE.get(str(entry.get('kind')), _TO_WRITE[''])}"
            )
    schema = None
    if not (unfilled or problems):
        with _noted(problems):  # the whole of it: names that occur twice, the target, what belongs together
            schema = Schema.from_dict(content, folder)
    warnings = _costs(columns)
    if names is not None:
        unit = [content["unit"]] if isinstance(content.get("unit"), str) else []
        needed = [*(entry["name"] for entry in entries if entry.get("kind") != "ignored"), *unit]
        declared, present = {*unit, *(entry["name"] for entry in entries)}, set(names)
        extra = [name for name in names if name not in declared]
        problems += [_absent(name, extra) for name in needed if name not in present]
        if extra:
            warnings.append(f"not declared, and so not read: {_few(extra)}")
    if schema is not None:
        if not schema.has_target:
            warnings.append(
                'no target is named: write target = "..." above the columns, or pass it when you fit'
            )
        if empty is not None:
            with _noted(problems):
                schema.read(empty)
                schema.persons(empty)
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
    return [entry["name"] for entry in _entries(parse_toml(text), [])]


def _entries(content: Mapping[str, Any], problems: list[str]) -> list[Mapping[str, Any]]:
    """Every column of the file in the long form; a line that cannot be read becomes a problem."""
    found: list[Mapping[str, Any]] = []
    lines, blocks = content.get("columns", {}), content.get("column", [])
    for name, value in lines.items() if isinstance(lines, Mapping) else ():
        with _noted(problems):
            found.append(entry_of(name, value))
    for position, entry in enumerate(blocks if isinstance(blocks, list) else (), start=1):
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
    hint = nearest(name, names, "correct its name, or remove it")
    return f"column {shown(name)} is not in the table: {hint}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(shown, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
