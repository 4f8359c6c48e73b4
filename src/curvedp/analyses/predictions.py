"""Predictions for tables on disk, chunk by chunk: what is asked for each row, and where it is written."""

from __future__ import annotations

import gzip
import io
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
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
from curvedp.data.source import NO_PYARROW, Source
from curvedp.errors import DataError, InvalidInput
from curvedp.release.modelfile import Release

OddCells = Mapping[str, Mapping[str, int]]  # column → kind → cells, as `Schema.odd_cells` counts them

CORRECT = (
    "Compare their decimals, units, codes and spelling with the schema and correct the table, or declare how "
    "it is written (`decimal`, `encoding`)"
)
_ODD = {
    "below": "below the lower bound",
    "above": "above the upper bound",
    "missing": "missing",
    "decimal comma": "with a decimal comma",
    "unreadable": "unreadable",
    "undeclared": "of undeclared levels",
}
_COLUMNS_NAMED = 10  # about what a terminal shows at a glance


@dataclass(frozen=True)
class Wanted:
    """What is asked for each row, beside the prediction.

    Parameters
    ----------
    proba : bool, default=False
        The probability of each class.
    threshold : float, optional
        Of two classes, the event is predicted from this probability on; 1/2 by default.
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
    """A chunk of rows: copied columns, a prediction for each row, a probability for each class, odd cells."""

    copied: Sequence[Any]
    values: NDArray[Any]
    probabilities: FloatArray  # a column for each class that they are wanted of
    odd: OddCells

    def __len__(self) -> int:
        return len(self.values)

    def columns(self) -> list[list[Any]]:
        """Plain values, column by column, in the order of `Predictor.names`."""
        copied = [c.to_list() if isinstance(c, nw.Series) else list(c) for c in self.copied]
        return [*copied, self.values.tolist(), *self.probabilities.T.tolist()]


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
                raise InvalidInput(f"it has no probabilities: leave {asked} out, or fit a logistic model")
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
        return tuple(self._model.classes_.tolist()) if self.wanted.proba else ()

    def chunks(self, data: TableLike, *, delimiter: str | None = None) -> Iterator[Predicted]:
        """The rows of a file, a folder of Parquet files or another table, in order; one chunk at least."""
        source, mixed = self._source(data, delimiter), []
        schema, wanted, model = self.document.schema, self.wanted, self._model
        for name in wanted.copied:
            if any(name not in head for head in source.heads):
                where = data if is_path(data) else "the table"
                raise InvalidInput(f"{where} has no column {shown(name)} to copy: check its name")
            if len(source.heads) > 1 and len({str(h.columns[name].dtype) for h in source.heads}) > 1:
                mixed.append(name)  # of other types in other files: copied as text

        def predicted(chunk: Table) -> Predicted:  # odd cells follow the rule of the schema
            cells = {name: chunk.columns[name].to_list() for name in mixed}
            texts = {name: [None if c is None else str(c) for c in own] for name, own in cells.items()}
            table = replace(chunk, columns={**chunk.columns, **texts}) if texts else chunk
            copied, odd = [table.column(name) for name in wanted.copied], schema.odd_cells(table)
            p = np.empty((len(table), 0))
            if wanted.proba or wanted.threshold is not None:
                p = np.asarray(model.predict_proba(table))
            if wanted.threshold is None:
                values = np.asarray(model.predict(table))
            else:
                event = p[:, np.flatnonzero(model.classes_ == model.event_)[0]]
                values = np.array(self.document.classes)[(event >= wanted.threshold).astype(np.intp)]
            return Predicted(copied, values, p if wanted.proba else p[:, :0], odd)

        return map(predicted, source.each())

    def require_declared(self, data: TableLike) -> None:
        """Refuse rows of which any cell is not what was declared; they are read once for it."""
        if odd := added(map(self.document.schema.odd_cells, self._source(data).each())):
            raise DataError(f"cells are not what the schema declares: {in_words(odd)}. {CORRECT}")

    def _source(self, data: TableLike, delimiter: str | None = None) -> Source:
        schema, copied = self.document.schema, self.wanted.copied
        roles = {name for role, name in schema.roles.items() if role != "weight"}
        return schema.source(data, only={*schema.encoding.sources, *roles, *copied}, delimiter=delimiter)


def added(chunks: Iterable[OddCells]) -> OddCells:
    """The counts of all chunks together."""
    total: dict[str, Counter[str]] = defaultdict(Counter)
    for name, counts in chain.from_iterable(odd.items() for odd in chunks):
        total[name].update(counts)
    return total


def in_words(odd: OddCells) -> str:
    """The columns with the most such cells first: "age: 1 missing, 2 above the upper bound; …"."""
    ranked = sorted(odd.items(), key=lambda item: -sum(item[1].values()))
    said = [
        f"{shown(name)}: " + ", ".join(f"{count:,} {_ODD[kind]}" for kind, count in counts.items())
        for name, counts in ranked[:_COLUMNS_NAMED]
    ]
    more = len(ranked) - len(said)
    return "; ".join([*said, f"and {more:,} more columns"] if more else said)


def write_rows(file: IO[str], names: Sequence[str], chunks: Iterator[Predicted]) -> None:
    """The chunks as CSV text; a table that is refused leaves no header behind."""
    known = chain([next(chunks)], chunks)
    rows = (row for chunk in known for row in zip(*chunk.columns(), strict=True))
    write_csv_safely(file, names, rows)


def write_file(file: IO[bytes], path: Path, names: Sequence[str], chunks: Iterator[Predicted]) -> None:
    """The chunks in the form that the path's suffix names: Parquet, CSV compressed by gzip, or CSV."""
    if (suffix := path.suffix.lower()) in PARQUET:
        require_form(path)
        from pyarrow.parquet import ParquetWriter

        first = _arrow(next(chunks), names)
        with ParquetWriter(file, first.schema) as writer:
            writer.write_table(first)
            for chunk in chunks:
                writer.write_table(_arrow(chunk, names).cast(first.schema))
        return
    packed = gzip.GzipFile(fileobj=file, mode="wb", mtime=0) if suffix == ".gz" else nullcontext(file)
    with packed as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="")  # type: ignore[type-var]
        write_rows(text, names, chunks)
        text.flush()
        text.detach()


def require_form(path: Path) -> None:
    """Refuse a file that could not be written in the end."""
    if path.suffix.lower() in PARQUET and find_spec("pyarrow") is None:
        raise InvalidInput(NO_PYARROW)


def _arrow(chunk: Predicted, names: Sequence[str]) -> Any:
    """A chunk as an Arrow table, of the types of the model and of the copied columns, whatever the rows.

    A column that is copied from a Parquet file is as it was there, one from a CSV file is text.
    """
    import pyarrow as pa

    text = pa.string()
    kind = None if chunk.values.dtype.kind in "fiub" else text
    columns = [c.to_native() if isinstance(c, nw.Series) else pa.array(list(c), text) for c in chunk.copied]
    columns.append(pa.array(chunk.values.tolist() if kind else chunk.values, type=kind))
    return pa.table(dict(zip(names, [*columns, *map(pa.array, chunk.probabilities.T)], strict=True)))
