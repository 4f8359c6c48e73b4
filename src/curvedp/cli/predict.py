"""`curvedp predict`: new rows with a released model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curvedp.cli import charging as o
from curvedp.cli.console import Steps, emit_json, emit_text, out, progress, say

if TYPE_CHECKING:
    from curvedp.analyses.predictions import Predicted, Predictor

STDOUT = Path("-")


def predict(
    model: o.ModelArgument,
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="New rows, CSV or Parquet, with the same columns; no target needed."
        ),
    ],
    out_path: Annotated[
        Path | None,
        typer.Option(
            "--out", help="File to write: .csv, .csv.gz or .parquet; default, and -: stdout, as CSV."
        ),
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="The probability of each class, beside the class.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", help="Of two classes, predict the second from this probability on."),
    ] = None,
    copied: Annotated[
        list[str] | None,
        typer.Option("--id", help="A column of DATA to copy beside the prediction; may be given again."),
    ] = None,
    delimiter: o.DelimiterOption = None,
    encoding: o.EncodingOption = None,
    decimal: o.DecimalOption = None,
    force: o.ForceOption = False,
    json: o.JsonOption = False,
    quiet: o.QuietOption = False,
) -> None:
    """Predict new rows with a released model. This is free: the privacy of the training rows is paid.

    Numbers stay within the declared range of the target. Missing and unreadable cells follow the schema's
    rules, as in the fit. Rows are read in chunks. What is copied is as sensitive as DATA.
    """
    from curvedp.release.outputs import claimed

    path = None if out_path == STDOUT else out_path
    inputs = {"the model": model, "the data": data}
    with claimed({"--out": path}, inputs=inputs, force=force, source=data) as files:
        from curvedp.analyses.predictions import Predictor, Wanted, require_form, write_file, write_rows
        from curvedp.release import modelfile

        wanted = Wanted(proba=proba, threshold=threshold, copied=tuple(copied or ()))
        document = modelfile.load(model).with_file(encoding=encoding, delimiter=delimiter, decimal=decimal)
        predictor = Predictor(document, wanted)
        if path is not None:
            require_form(path)
        shown = not (json or quiet) and (path is not None or not out.is_terminal)
        with progress("predicting", total=rows_of(data), show=shown) as steps:
            chunks = counted(predictor.chunks(data), steps)
            if json and path is None:
                emit_json(document_of(predictor, list(chunks)))
            elif path is None:
                write_rows(_Stdout(), predictor.names, chunks)  # type: ignore[arg-type]
            else:
                with files["--out"].stream() as file:
                    write_file(file, path, predictor.names, chunks)
    if path is not None and json:
        emit_json({"predictions": str(path), "columns": predictor.names})
    elif path is not None and not quiet:
        say(f"Predictions written to {path}.")


def counted(chunks: Iterator[Predicted], steps: Steps) -> Iterator[Predicted]:
    """The chunks, their rows told to the progress bar."""
    for chunk in chunks:
        yield chunk
        steps.done(len(chunk))


def rows_of(data: Path) -> int | None:
    """The number of rows where a file declares it."""
    from curvedp.data.delimited import is_parquet
    from curvedp.data.source import parquet_rows

    return parquet_rows(data) if is_parquet(data) else None


def document_of(predictor: Predictor, chunks: list[Predicted]) -> dict[str, Any]:
    """All predictions for machines."""
    parts = zip(*(chunk.columns() for chunk in chunks), strict=True)
    joined = ([cell for part in column for cell in part] for column in parts)
    columns = dict(zip(predictor.names, joined, strict=True))
    own = list(columns)[len(predictor.wanted.copied) :]
    labels = map(str, predictor.labels)
    return {
        "target": predictor.document.schema.target,
        "predictions": columns[own[0]],
        "probabilities": dict(zip(labels, (columns[name] for name in own[1:]), strict=True)),
        "copied": {name: columns[name] for name in predictor.wanted.copied},
    }


class _Stdout:
    """Where lines of CSV go, refused where stdout cannot hold one of their letters."""

    def write(self, text: str) -> int:
        emit_text(text)
        return len(text)
