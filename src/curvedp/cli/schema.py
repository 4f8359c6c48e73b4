"""`curvedp schema`: declarations to fill in, and whether they are filled in."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from curvedp.cli import options as o
from curvedp.cli.console import REFUSED, emit_json, emit_text, err, say
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.schema import FileFormat
    from curvedp.schema.review import Review

Form = Literal["compact", "long"]


def schema(
    data: Annotated[
        Path | None,
        typer.Argument(metavar="DATA", help="The table: a CSV file, also .gz, or Parquet files."),
    ] = None,
    dictionary: Annotated[
        Path | None,
        typer.Option(
            "--dictionary",
            help="What is publicly known of the columns: a Frictionless Table Schema, a codebook CSV (name, "
            "kind, low, high, levels), a JSON map from names to types, or another schema.",
        ),
    ] = None,
    out_path: Annotated[
        Path | None, typer.Option("--out", help="File to write: the schema; default: stdout.")
    ] = None,
    header: o.HeaderOption = None,
    names: o.NamesOption = None,
    form: Annotated[
        Form, typer.Option("--form", help="compact: a line for each column; long: a table for each.")
    ] = "compact",
    check: Annotated[
        Path | None,
        typer.Option("--check", help="Look this schema over instead: is it complete? Costs nothing."),
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--table", help="With --check: compare with the columns of this table.")
    ] = None,
    delimiter: o.DelimiterOption = None,
    encoding: o.EncodingOption = None,
    decimal: o.DecimalOption = None,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Write a schema to fill in: the names and types of a table's columns, and nothing else of it.

    Bounds and levels are public promises, so a person or a dictionary says them; they are never read off the
    data. With --check, say what a schema still lacks. Exit code 0: a fit can use it; 2: it cannot yet.
    """
    told = {"delimiter": delimiter, "encoding": encoding, "decimal": decimal}
    listed = o.listed(names) or None
    if listed and header:
        raise InvalidInput("--names are for a file without a header: leave --header or --names out")
    if check is not None:
        if out_path is not None or dictionary is not None:
            raise InvalidInput(
                "--check looks a schema over and writes nothing: leave --out and --dictionary out"
            )
        if listed:
            raise InvalidInput("a schema keeps the names of a file without a header: leave --names out")
        found = reviewed(check, table or data, told, header)
        if json:
            emit_json({"complete": found.complete, "columns": found.columns, **as_lists(found)})
        elif not quiet:
            print_review(found, check)
        if not found.complete:
            raise typer.Exit(REFUSED)
        return
    if table is not None:
        raise InvalidInput("--table goes with --check: name the table alone to write a schema of it")
    from curvedp.outputs import claimed
    from curvedp.schema import FileFormat, schema_template
    from curvedp.schema.dictionaries import read_dictionary

    inputs = {"the data": data, "the dictionary": dictionary}
    with claimed({"--out": out_path}, inputs=inputs, force=force) as files:
        file = FileFormat().but(**told)
        known = () if dictionary is None else read_dictionary(dictionary)
        text = schema_template(
            data,
            file=file,
            header=None if data is None or listed else vouched(data, file, header, known),
            names=listed,
            dictionary=dictionary,
            form=form,
        )
        for output in files.values():
            output.write(text)
    if json:
        emit_json({"schema": None if out_path is None else str(out_path), "template": text})
    elif out_path is None:
        emit_text(text)
    elif not quiet:
        say(f"Fill in {out_path}, then: curvedp schema --check {out_path}")


def is_watched() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and err.is_terminal


def vouched(data: Path, file: FileFormat, header: bool | None, declared: Collection[str] = ()) -> bool | None:
    """Whether the header names the columns: as said, as declared, or as answered where it looks like data."""
    from curvedp.schema.delimited import header_cells
    from curvedp.schema.headers import looks_like_data
    from curvedp.schema.stored import is_parquet, parquet_types

    if header is not None or file.names:
        return header
    stored = is_parquet(data)
    cells = [name for name, _ in parquet_types(data)] if stored else header_cells(data, file=file)
    if set(cells) <= set(declared):
        return True
    if not looks_like_data(cells) or not is_watched():
        return None
    what = f"The names in {data} look" if stored else f"The first line of {data} looks"
    return typer.confirm(
        f"{what} like data, so it is not shown. Are these the names of its {len(cells)} columns?", err=True
    )


def reviewed(path: Path, table: Path | None, told: dict[str, str | None], header: bool | None) -> Review:
    """A schema file, against the names and types of a table where there is one."""
    from curvedp.outputs import with_levels
    from curvedp.schema.files import parse_toml, read_toml
    from curvedp.schema.formats import FileFormat
    from curvedp.schema.review import declared_names, review
    from curvedp.schema.stored import empty_table, is_parquet
    from curvedp.schema.templates import column_types

    with_levels({"the schema": path, "the table": table})
    text = read_toml(path)
    if table is None:
        return review(text, folder=path.parent)
    file = FileFormat.from_dict(parse_toml(text).get("file", {})).but(**told)
    declared = declared_names(text)
    found = list(column_types(table, file=file, header=vouched(table, file, header, declared)))
    return review(text, found, empty=empty_table(table) if is_parquet(table) else None, folder=path.parent)


def as_lists(found: Review) -> dict[str, list[str]]:
    return {key: list(getattr(found, key)) for key in ("unfilled", "problems", "warnings")}


def print_review(found: Review, path: Path) -> None:
    """What was found, for people."""
    for title, lines, style in (
        ("Still to fill in:", found.unfilled, "yellow"),
        ("Wrong:", found.problems, "red"),
        ("Worth a thought:", found.warnings, "dim"),
    ):
        if lines:
            say(title, style=style)
            for line in lines:
                say(f"  {line}")
    columns = f"{found.columns} column{'s' if found.columns != 1 else ''}"
    if found.complete:
        say(f"{path} is complete: {columns}.", style="green")
    else:
        lacking = len(found.unfilled) + len(found.problems)
        say(f"{path} is not complete: {columns}, {lacking} thing{'s' if lacking != 1 else ''} to do.")
