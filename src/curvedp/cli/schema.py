"""`curvedp schema`, `dummy` and `split`: declarations to fill in; a made-up table; two parts of a table."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from curvedp.cli import charging as o
from curvedp.cli.console import REFUSED, emit_json, emit_text, err, say
from curvedp.errors import InvalidInput

if TYPE_CHECKING:
    from curvedp.data.delimited import FileFormat
    from curvedp.data.templates import Review

Form = Literal["compact", "long"]


def schema(
    data: Annotated[
        Path | None, typer.Argument(metavar="DATA", help="The table: a CSV file, also .gz, or Parquet files.")
    ] = None,
    dictionary: Annotated[
        Path | None,
        typer.Option(
            "--dictionary",
            help="What is publicly known of the columns: a Frictionless Table Schema, the YAML of SmartNoise "
            "or Lomas, a DDI codebook (XML), a codebook CSV (name, kind, low, high, levels), a JSON map from "
            "names to types, or another schema.",
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
            lists = {key: list(getattr(found, key)) for key in ("unfilled", "problems", "warnings")}
            emit_json({"complete": found.complete, "columns": found.columns, **lists})
        elif not quiet:
            print_review(found, check)
        if not found.complete:
            raise typer.Exit(REFUSED)
        return
    if table is not None:
        raise InvalidInput("--table goes with --check: name the table alone to write a schema of it")
    from curvedp.data.delimited import FileFormat
    from curvedp.data.dictionaries import read_dictionary
    from curvedp.data.templates import schema_template
    from curvedp.release.outputs import claimed

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
    return sys.stdin.isatty() and err.is_terminal


def vouched(data: Path, file: FileFormat, header: bool | None, declared: Collection[str] = ()) -> bool | None:
    """Whether the header names the columns: as said, as declared, or as answered where it looks like data."""
    from curvedp.data.delimited import header_cells, is_parquet, looks_like_data
    from curvedp.data.source import parquet_types

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
    from curvedp.data.delimited import FileFormat, is_parquet
    from curvedp.data.files import parse_toml, read_toml
    from curvedp.data.source import empty_table
    from curvedp.data.templates import column_types, declared_names, review
    from curvedp.release.outputs import with_levels

    with_levels({"the schema": path, "the table": table})
    text = read_toml(path)
    if table is None:
        return review(text, folder=path.parent)
    file = FileFormat.from_dict(parse_toml(text).get("file", {})).but(**told)
    declared = declared_names(text)
    found = list(column_types(table, file=file, header=vouched(table, file, header, declared)))
    return review(text, found, empty=empty_table(table) if is_parquet(table) else None, folder=path.parent)


def print_review(found: Review, path: Path) -> None:
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


# `curvedp dummy`: a table of made-up cells, from declarations alone.


def dummy(
    schema: Annotated[Path, typer.Argument(metavar="FILE", help="The schema, filled in.")],
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows you declare: so many are made up.")] = 1000,
    out_path: Annotated[
        Path | None, typer.Option("--out", help="File to write: the table, as CSV; default: stdout.")
    ] = None,
    missing: Annotated[float, typer.Option("--missing", help="The chance of a cell to be missing.")] = 0.05,
    odd: Annotated[
        float, typer.Option("--odd", help="The chance of a cell to be none of what is declared.")
    ] = 0.0,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="The same seed, the same table.")] = None,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Make up a table of the declared columns, to write an analysis on before the data are touched.

    Levels, numbers and days are drawn from the declarations alone, and no data are opened: nothing in it is
    private, and nothing in it is true. It is written as the schema says that files are.
    """
    from curvedp.analyses.split import as_csv
    from curvedp.analyses.split import dummy as made_up
    from curvedp.data.schema import Schema
    from curvedp.release.outputs import claimed

    with claimed({"--out": out_path}, inputs={"the schema": schema}, force=force) as files:
        declared = Schema.load(schema)
        table = made_up(declared, rows, seed=seed, missing=missing, odd=odd)
        content = as_csv(table, declared.file)
        for output in files.values():
            output.write(content)
    if json:
        emit_json(
            {"table": None if out_path is None else str(out_path), "rows": rows, "columns": list(table)}
        )
    elif out_path is None:
        emit_text(content.decode(declared.file.encoding))
    elif not quiet:
        say(f"{rows:,} made-up rows written to {out_path}. Nothing in it is true.")


# `curvedp split`: two parts of a table, by a coin per record or per person.


COST = (
    "The split costs no privacy: coins know nothing of the records, and one record is in one part only. "
    "Releases from both parts together cost what the dearer one does: keep a ledger for each part."
)
PEOPLE = (
    "All rows of a person are in one part: one person, added, removed or replaced, changes one part only. "
    "A ledger that protects single rows under replace is not covered by such a split."
)
KEPT_KEY = (
    "With a key that is used again this holds where neighbours differ by one person added or removed "
    "(add_remove), not where one replaces another."
)


def split(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="The sensitive table: CSV, also .gz, or Parquet.")
    ],
    train_path: Annotated[Path, typer.Option("--train-out", help="File to write: the first part.")],
    test_path: Annotated[Path, typer.Option("--test-out", help="File to write: the second part.")],
    test: Annotated[
        float, typer.Option("--test", help="The chance of a record to be in the second part.")
    ] = 0.2,
    unit: Annotated[
        str | None,
        typer.Option("--unit", help="The column that says whose row it is: a person stays in one part."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", help="With --unit: a secret file, made once; the same person, the same part."),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="Declared columns; says how the file is written, and whose row it is."),
    ] = None,
    header: o.HeaderOption = None,
    names: o.NamesOption = None,
    delimiter: o.DelimiterOption = None,
    encoding: o.EncodingOption = None,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Split a table for training and testing, so that one record changes one part only. Costs nothing.

    A coin is tossed for every record, or for every person with --unit. Shuffling n rows and cutting them
    would let one record move many others from part to part. The parts are as sensitive as the table.
    """
    from curvedp.analyses import split as splitting
    from curvedp.data.delimited import FileFormat
    from curvedp.data.files import read_toml
    from curvedp.data.templates import declared_file, declared_names, declared_unit
    from curvedp.release.outputs import claimed

    if names is not None and header:
        raise InvalidInput("--names are for a file without a header: leave --header or --names out")
    wanted = {"--train-out": train_path, "--test-out": test_path}
    inputs = {"the data": data, "the key": key, "the schema": schema}
    with claimed(wanted, inputs=inputs, force=force, source=data) as files:
        text = None if schema is None else read_toml(schema)
        if unit is None and text is not None:
            unit = declared_unit(text)
        if key is not None and unit is None:
            raise InvalidInput("--key is for a split by person: pass --unit, too")
        file = FileFormat() if text is None else declared_file(text)
        file = file.but(encoding=encoding, delimiter=delimiter)
        if names is not None:
            file = replace(file, names=tuple(o.listed(names)))
        header = vouched(data, file, header, () if text is None else declared_names(text))
        secret = None if key is None else splitting.kept_key(key)
        first, second = splitting.split(data, test, unit=unit, key=secret, file=file, header=header)
        files["--train-out"].write(first)
        files["--test-out"].write(second)
    if json:
        emit_json({"train": str(train_path), "test": str(test_path), "unit": unit, "key": key and str(key)})
    elif not quiet:
        say(f"Parts written to {train_path} and {test_path}.")
        say(COST)
        if unit is not None:
            say(PEOPLE if key is None else f"{PEOPLE} {KEPT_KEY}")
