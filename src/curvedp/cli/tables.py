"""`curvedp schema` and `predict`: declarations before a fit, predictions after it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated

import typer

from curvedp.cli.console import emit_json, emit_text, say
from curvedp.cli.options import DelimiterOption, ForceOption, JsonOption, QuietOption

OutOption = Annotated[Path | None, typer.Option("--out", help="Write it here; default: stdout.")]


def schema(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The table: a CSV or Parquet file.")],
    out_path: OutOption = None,
    header: Annotated[
        bool,
        typer.Option("--header", help="The first line names the columns, though it looks like data."),
    ] = False,
    delimiter: DelimiterOption = ",",
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a schema to fill in: the column names of a table, and nothing else of it.

    Bounds and levels are public promises, so a person writes them; they are never read off the data.
    """
    from curvedp.outputs import claimed
    from curvedp.schema import schema_template

    with claimed({"--out": out_path}, inputs={"the data": data}, force=force) as files:
        text = schema_template(data, delimiter=delimiter, header=True if header else None)
        for file in files.values():
            file.write(text)
    if json:
        emit_json({"schema": None if out_path is None else str(out_path), "template": text})
    elif out_path is None:
        emit_text(text)
    elif not quiet:
        say(f"Fill in {out_path}, then: curvedp fit {data} --schema {out_path} …")


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file written by curvedp fit.")],
    data: Annotated[
        Path, typer.Argument(metavar="CSV", help="New rows with the same columns; no target needed.")
    ],
    out_path: OutOption = None,
    delimiter: DelimiterOption = ",",
    force: ForceOption = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict new rows with a released model. This is free: the privacy of the training rows is paid."""
    from curvedp import modelfile
    from curvedp.outputs import claimed
    from curvedp.schema.delimited import write_csv_safely

    with claimed({"--out": out_path}, inputs={"the model": model, "the data": data}, force=force) as files:
        document = modelfile.load(model)
        values = document.predict(data, delimiter=delimiter).tolist()
        text = io.StringIO()
        write_csv_safely(text, [document.schema.target or "prediction"], ([value] for value in values))
        for file in files.values():
            file.write(text.getvalue())
    if json:
        emit_json({"target": document.schema.target, "predictions": values})
    elif out_path is None:
        emit_text(text.getvalue())
    elif not quiet:
        say(f"Predictions written to {out_path}.")
