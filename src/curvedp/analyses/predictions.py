"""Predictions for tables on disk, chunk by chunk: what is asked for each row, and where it is written."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from curvedp.arrays import FloatArray, TableLike
from curvedp.data.columns import shown
from curvedp.data.delimited import PARQUET, write_csv_safely
from curvedp.data.frames import Table, is_path
from curvedp.data.source import NO_PYARROW
from curvedp.errors import InvalidInput
from curvedp.release.modelfile import Release


@dataclass(frozen=True)
class Wanted:
    """What is asked for each row, beside the prediction.

    Parameters
    ----------
    proba : bool, default=False
        The probability of each class.
    threshold : float, optional
        Of two classes, the second is predicted from this probability on; 1/2 by default.
    copied : sequence of str, optional
        Columns of the table that are copied beside the prediction, such as an identifier.

    Examples
    --------
    >>> from curvedp.analyses.predictions import Wanted
    >>> Wanted(threshold=0.2, copied=("id",))
    Wanted(proba=False, threshold=0.2, copied=('id',))
    """

    proba: bool = False
    threshold: float | None = None
    copied: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0.0 <= self.threshold <= 1.0:
            raise InvalidInput(f"a threshold is a probability between 0 and 1, got {self.threshold:g}")
        if len(set(self.copied)) < len(self.copied):
            raise InvalidInput("a column is copied once: name each of them once")


@dataclass(frozen=True, eq=False)
class Predicted:
    """A chunk of rows: copied columns, a prediction for each row, and a probability for each class."""

    copied: Sequence[Any]
    values: NDArray[Any]
    probabilities: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.values)

    def columns(self) -> list[list[Any]]:
        """Plain values, column by column, in the order of `Predictor.names`."""
        own = [] if self.probabilities is None else self.probabilities.T.tolist()
        return [*map(_listed, self.copied), self.values.tolist(), *own]


@dataclass(frozen=True)
class Predictor:
    """A model file that predicts what is wanted; refused where it cannot."""

    document: Release
    wanted: Wanted = field(default_factory=Wanted)

    def __post_init__(self) -> None:
        asked = "probabilities" if self.wanted.proba else "a threshold"
        if self.wanted.proba or self.wanted.threshold is not None:
            if self.document.classes is None:
                raise InvalidInput(f"this model predicts a number, not a class: leave {asked} out")
            if not hasattr(self._model, "predict_proba"):
                raise InvalidInput(
                    f"this model has no probabilities: leave {asked} out, or fit a logistic one"
                )
        if self.wanted.threshold is not None and len(self.document.classes or ()) != 2:
            raise InvalidInput("a threshold is for two classes: leave it out, and ask for probabilities")
        if len(set(self.names)) < len(self.names):
            raise InvalidInput("a copied column has the name of a predicted one: rename it, or leave it out")

    @cached_property
    def _model(self) -> Any:
        return self.document.to_estimator()

    @property
    def names(self) -> list[str]:
        """The headings: copied columns, the target (or "prediction"), and target=class for probabilities."""
        target, copied = self.document.schema.target or "prediction", self.wanted.copied
        own = "prediction" if target in copied else target
        return [*copied, own, *(f"{target}={label}" for label in self.labels)]

    @property
    def labels(self) -> tuple[Any, ...]:
        """The classes whose probabilities are wanted."""
        return (self.document.classes or ()) if self.wanted.proba else ()

    def of(self, table: Table) -> Predicted:
        """The rows of a chunk; missing and unreadable cells follow the rule of the schema."""
        copied = [table.column(name) for name in self.wanted.copied]
        if not self.wanted.proba and self.wanted.threshold is None:
            return Predicted(copied, np.asarray(self._model.predict(table)))
        p = np.asarray(self._model.predict_proba(table))
        if self.wanted.threshold is None:
            values = np.asarray(self._model.predict(table))
        else:
            values = np.asarray(self._model.classes_)[(p[:, 1] >= self.wanted.threshold).astype(np.intp)]
        return Predicted(copied, values, p if self.wanted.proba else None)

    def chunks(self, data: TableLike, *, delimiter: str | None = None) -> Iterator[Predicted]:
        """The rows of a file, a folder of Parquet files or another table, in order; one chunk at least."""
        schema, copied = self.document.schema, self.wanted.copied
        roles = {name for role, name in schema.roles.items() if role != "weight"}
        source = schema.source(data, only={*schema.encoding.sources, *roles, *copied}, delimiter=delimiter)
        for name in copied:
            if any(name not in head for head in source.heads):
                where = data if is_path(data) else "the table"
                raise InvalidInput(f"{where} has no column {shown(name)} to copy: check its name")
        mixed = _mixed(source.heads, copied)
        return (self.of(_with_texts(chunk, mixed)) for chunk in source.each())


def _mixed(heads: Sequence[Table], names: Sequence[str]) -> set[str]:
    """The columns whose types are not the same in every file."""
    return {
        name
        for name in names
        if len(heads) > 1 and len({str(head.columns[name].dtype) for head in heads}) > 1
    }


def _with_texts(table: Table, names: set[str]) -> Table:
    """The same, with those columns as text."""
    texts = {
        name: [None if cell is None else str(cell) for cell in table.columns[name].to_list()]
        for name in names
    }
    return replace(table, columns={**table.columns, **texts}) if texts else table


def write_rows(file: IO[str], names: Sequence[str], chunks: Iterator[Predicted]) -> None:
    """The chunks as CSV text; a table that is refused leaves no header behind."""
    known = chain([next(chunks)], chunks)
    rows = (row for chunk in known for row in zip(*chunk.columns(), strict=True))
    write_csv_safely(file, names, rows)


def write_file(file: IO[bytes], path: Path, names: Sequence[str], chunks: Iterator[Predicted]) -> None:
    """The chunks in the form that the path's suffix names: Parquet, CSV compressed by gzip, or CSV."""
    if path.suffix.lower() in PARQUET:
        _write_parquet(file, names, chunks)
    elif path.suffix.lower() == ".gz":
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
            _write_text(packed, names, chunks)
    else:
        _write_text(file, names, chunks)


def require_form(path: Path) -> None:
    """Refuse a file that could not be written in the end."""
    if path.suffix.lower() in PARQUET:
        _pyarrow()


def _write_text(file: Any, names: Sequence[str], chunks: Iterator[Predicted]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    write_rows(text, names, chunks)
    text.flush()
    text.detach()


def _write_parquet(file: IO[bytes], names: Sequence[str], chunks: Iterator[Predicted]) -> None:
    pa = _pyarrow()
    from pyarrow.parquet import ParquetWriter

    first = _arrow(next(chunks), names, pa)
    with ParquetWriter(file, first.schema) as writer:
        writer.write_table(first)
        for chunk in chunks:
            writer.write_table(_arrow(chunk, names, pa).cast(first.schema))


def _arrow(chunk: Predicted, names: Sequence[str], pa: Any) -> Any:
    """A chunk as an Arrow table, of the types of the model and of the copied columns, whatever the rows."""
    own = [] if chunk.probabilities is None else list(chunk.probabilities.T)
    kind = None if chunk.values.dtype.kind in "fiub" else pa.string()
    predicted = pa.array(chunk.values.tolist() if kind else chunk.values, type=kind)
    columns = [*(_stored(column, pa) for column in chunk.copied), predicted, *map(pa.array, own)]
    return pa.table(dict(zip(names, columns, strict=True)))


def _stored(column: Any, pa: Any) -> Any:
    """A copied column: of a Parquet file as it is, of a CSV file as text."""
    return column.to_native() if isinstance(column, nw.Series) else pa.array(list(column), type=pa.string())


def _listed(column: Any) -> list[Any]:
    return column.to_list() if isinstance(column, nw.Series) else list(column)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise InvalidInput(NO_PYARROW) from None
    return pyarrow
