"""`curvedp schema`, `dummy` and `split`: declarations to fill in; a made-up table; two parts of a table."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import curvedp
from curvedp.cli import charging as o
from curvedp.cli.charging import Terms, says, sharing
from curvedp.cli.console import REFUSED, emit_json, emit_text, err, say
from curvedp.errors import InvalidInput
from curvedp.release.outputs import claimed, with_levels

if TYPE_CHECKING:
    from curvedp.data.delimited import FileFormat

Form = Literal["compact", "long"]


@sharing("delimiter", "encoding", "decimal", "force", "json", "quiet")
def schema(
    terms: Terms,
    data: Annotated[Path | None, "DATA", "The table: a CSV file, also .gz, or Parquet files."] = None,
    dictionary: Annotated[
        Path | None,
        "What is publicly known of the columns: a Frictionless Table Schema, the YAML of SmartNoise "
        "or Lomas, a DDI codebook (XML), a codebook CSV (name, kind, low, high, levels), a JSON map from "
        "names to types, or another schema.",
    ] = None,
    out: Annotated[Path | None, "File to write: the schema; default: stdout."] = None,
    header: o.HeaderOption = None,
    names: o.NamesOption = None,
    form: Annotated[Form, "compact: a line for each column; long: a table for each."] = "compact",
    check: Annotated[Path | None, "Look this schema over instead: is it complete? Costs nothing."] = None,
    table: Annotated[Path | None, "With --check: compare with the columns of this table."] = None,
) -> None:
    """Write a schema to fill in: the names and types of a table's columns, and nothing else of it.

    Bounds and levels are public promises, so a person or a dictionary says them; they are never read off the
    data. With --check, say what a schema still lacks. Exit code 0: a fit can use it; 2: it cannot yet.
    """
    listed = o.listed(names) or None
    if listed and header:
        raise InvalidInput("--names are for a file without a header: leave --header or --names out")
    if check is not None:
        if out is not None or dictionary is not None:
            raise InvalidInput(
                "--check looks a schema over and writes nothing: leave --out and --dictionary out"
            )
        if listed:
            raise InvalidInput("a schema keeps the names of a file without a header: leave --names out")
        look_over(check, table or data, terms, header)
        return
    if table is not None:
        raise InvalidInput("--table goes with --check: name the table alone to write a schema of it")
    from curvedp.data import FileFormat, dictionaries

    inputs = {"the data": data, "the dictionary": dictionary}
    with claimed({"--out": out}, inputs=inputs, force=terms.force) as files:
        file = FileFormat().but(**terms.file)
        known = () if dictionary is None else dictionaries.read_dictionary(dictionary)
        text = curvedp.schema_template(
            data,
            file=file,
            header=None if data is None or listed else vouched(data, file, header, known),
            names=listed,
            dictionary=dictionary,
            form=form,
        )
        for output in files.values():
            output.write(text)
    if terms.json:
        emit_json({"schema": out, "template": text})
    elif out is None:
        emit_text(text)
    elif not terms.quiet:
        say(f"Fill in {out}, then: curvedp schema --check {out}")


def is_watched() -> bool:
    return sys.stdin.isatty() and err.is_terminal


def vouched(data: Path, file: FileFormat, header: bool | None, declared: Collection[str] = ()) -> bool | None:
    """Whether the header names the columns: as said, as declared, or as answered where it looks like data."""
    from curvedp.data import delimited, source

    if header is not None or file.names:
        return header
    stored = delimited.is_parquet(data)
    cells = source.empty_table(data).column_names if stored else delimited.header_cells(data, file)
    if set(cells) <= set(declared):
        return True
    if not delimited.looks_like_data(cells) or not is_watched():
        return None
    what = f"The names in {data} look" if stored else f"The first line of {data} looks"
    return typer.confirm(
        f"{what} like data, so it is not shown. Are these the names of its {len(cells)} columns?", err=True
    )


def look_over(path: Path, table: Path | None, terms: Terms, header: bool | None) -> None:
    """Say what a schema file lacks, also against the names and types of a table where there is one."""
    from curvedp.data import delimited, files, source, templates

    with_levels({"the schema": path, "the table": table})
    text, names, empty = files.read_toml(path), None, None
    if table is not None:
        file = templates.declared_file(text).but(**terms.file)
        header = vouched(table, file, header, templates.declared_names(text))
        names = list(templates.column_types(table, file=file, header=header))
        empty = source.empty_table(table) if delimited.is_parquet(table) else None
    found = templates.review(text, names, empty=empty, folder=path.parent)
    styles = {"unfilled": "yellow", "problems": "red", "warnings": "dim"}
    lists = {key: list(getattr(found, key)) for key in styles}
    if terms.answers({"complete": found.complete, "columns": found.columns, **lists}):
        titles = ("Still to fill in:", "Wrong:", "Worth a thought:")
        for title, (key, lines) in zip(titles, lists.items(), strict=True):
            if lines:
                say(title, style=styles[key])
                for line in lines:
                    say(f"  {line}")
        columns = f"{found.columns} column{'s' if found.columns != 1 else ''}"
        lacking = len(found.unfilled) + len(found.problems)
        if found.complete:
            say(f"{path} is complete: {columns}.", style="green")
        else:
            say(f"{path} is not complete: {columns}, {lacking} thing{'s' if lacking != 1 else ''} to do.")
    if not found.complete:
        raise typer.Exit(REFUSED)


@sharing("force", "json", "quiet")
def dummy(
    terms: Terms,
    schema: Annotated[Path, "FILE", "The schema, filled in."],
    rows: Annotated[int, says("Rows you declare: so many are made up.", min=1)] = 1000,
    out: Annotated[Path | None, "File to write: the table, as CSV; default: stdout."] = None,
    missing: Annotated[float, "The chance of a cell to be missing."] = 0.05,
    odd: Annotated[float, "The chance of a cell to be none of what is declared."] = 0.0,
    seed: Annotated[int | None, says("The same seed, the same table.", min=0)] = None,
) -> None:
    """Make up a table of the declared columns, to write an analysis on before the data are touched.

    Levels, numbers and days are drawn from the declarations alone, and no data are opened: nothing in it is
    private, and nothing in it is true. It is written as the schema says that files are.
    """
    from curvedp.analyses.split import as_csv

    with claimed({"--out": out}, inputs={"the schema": schema}, force=terms.force) as files:
        declared = curvedp.Schema.load(schema)
        table = curvedp.dummy(declared, rows, seed=seed, missing=missing, odd=odd)
        content = as_csv(table, declared.file)
        for output in files.values():
            output.write(content)
    if terms.json:
        emit_json({"table": out, "rows": rows, "columns": list(table)})
    elif out is None:
        emit_text(content.decode(declared.file.encoding))
    elif not terms.quiet:
        say(f"{rows:,} made-up rows written to {out}. Nothing in it is true.")


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


@sharing("delimiter", "encoding", "force", "json", "quiet")
def split(
    terms: Terms,
    data: Annotated[Path, "DATA", "The sensitive table: CSV, also .gz, or Parquet."],
    train_out: Annotated[Path, "File to write: the first part."],
    test_out: Annotated[Path, "File to write: the second part."],
    test: Annotated[float, "The chance of a record to be in the second part."] = 0.2,
    unit: Annotated[str | None, "The column that says whose row it is: a person stays in one part."] = None,
    key: Annotated[
        Path | None, "With --unit: a secret file, made once; the same person, the same part."
    ] = None,
    schema: Annotated[
        Path | None, "Declared columns; says how the file is written, and whose row it is."
    ] = None,
    header: o.HeaderOption = None,
    names: o.NamesOption = None,
) -> None:
    """Split a table for training and testing, so that one record changes one part only. Costs nothing.

    A coin is tossed for every record, or for every person with --unit. Shuffling n rows and cutting them
    would let one record move many others from part to part. The parts are as sensitive as the table.
    """
    from curvedp.analyses import split as splitting
    from curvedp.data import templates
    from curvedp.data.files import parse_toml, read_toml

    if names is not None and header:
        raise InvalidInput("--names are for a file without a header: leave --header or --names out")
    wanted = {"--train-out": train_out, "--test-out": test_out}
    inputs = {"the data": data, "the key": key, "the schema": schema}
    with claimed(wanted, inputs=inputs, force=terms.force, source=data) as files:
        text = "" if schema is None else read_toml(schema)
        unit = parse_toml(text).get("unit") if unit is None else unit
        if key is not None and unit is None:
            raise InvalidInput("--key is for a split by person: pass --unit, too")
        file = templates.declared_file(text).but(**terms.file)
        if names is not None:
            file = replace(file, names=tuple(o.listed(names)))
        header = vouched(data, file, header, templates.declared_names(text))
        secret = None if key is None else splitting.kept_key(key)
        first, second = splitting.split(data, test, unit=unit, key=secret, file=file, header=header)
        files["--train-out"].write(first)
        files["--test-out"].write(second)
    if terms.answers({"train": train_out, "test": test_out, "unit": unit, "key": key}):
        say(f"Parts written to {train_out} and {test_out}.")
        say(COST)
        if unit is not None:
            say(PEOPLE if key is None else f"{PEOPLE} {KEPT_KEY}")
