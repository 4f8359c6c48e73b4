"""`curvedp split`: two parts of a table, by a coin per record or per person."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from curvedp.cli import options as o
from curvedp.cli.console import emit_json, say
from curvedp.cli.schema import vouched
from curvedp.errors import InvalidInput

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
    from curvedp.outputs import claimed
    from curvedp.schema import FileFormat
    from curvedp.schema.edits import declared_file, declared_unit
    from curvedp.schema.files import read_toml
    from curvedp.schema.review import declared_names
    from curvedp.selection import split as splitting

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
