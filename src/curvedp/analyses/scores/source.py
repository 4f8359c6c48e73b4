"""Private records as a score reads them: a prediction, a target and a level each, nothing else.

What becomes of one record depends on no other: sums over columns are added one column after another, since a
product of matrices may round a row by where it stands, and a count must not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from curvedp.analyses.estimators.base import PrivateLinearModel, over_chunk
from curvedp.analyses.estimators.counts import expected_counts, known_part
from curvedp.analyses.scores.means import Positions
from curvedp.arrays import LARGEST_ENTRY, ColumnLike, FloatArray, TableLike
from curvedp.data.columns import Categorical, shown
from curvedp.data.dates import Boolean
from curvedp.data.frames import Table
from curvedp.data.roles import passed_unit
from curvedp.data.schema import Schema
from curvedp.data.targets import ClassTarget, CountTarget, NumericTarget
from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Neighbours

_DECLARE = "declare a categorical column with its `levels` in its place"
FARTHEST = 36.0  # |logit| beyond which a probability is 0 or 1 in double precision


@dataclass(frozen=True)
class ScoreLayout:
    """What is public about scored records: the model's task, its reach, the levels to compare, who is a
    neighbour.

    In a regression everything is in half ranges of the target, |target| ≤ 1; `reach` bounds |prediction|:
    1, since `predict` clips to the declared range. `counts`: targets are counts, from −1 for none on.
    """

    task: Literal["regression", "classification"]
    neighbours: Neighbours
    classes: tuple[str, ...] = ()
    probabilities: bool = False
    reach: float = 1.0
    unit: float = 1.0
    offset: float = 0.0
    by: str | None = None
    levels: tuple[str, ...] = ()
    counts: bool = False
    quantile: float | None = None  # that is predicted, in place of a mean

    @property
    def scored(self) -> tuple[int, ...]:
        """The classes that have a score of their own: the second of two, each of more."""
        return (1,) if len(self.classes) == 2 else tuple(range(len(self.classes)))


@dataclass(frozen=True, eq=False)
class ScoredRecords:
    """The records with a usable target, by position.

    `score` is the prediction, or a logit for each scored class, shape (n, C). `predicted` is a class,
    `target` a number or a class. `level` is −1 where the cell names no declared level. `loss` holds the
    squared (Brier) and the logarithmic loss of the predicted probabilities, shape (n, 2); zeros without any.
    `rows` counts the rows of the table, usable or not; where a unit is named, the persons. `parts` says how
    much of its person each record is (U-2); None: all.
    """

    layout: ScoreLayout
    score: FloatArray
    target: FloatArray
    level: Positions
    predicted: Positions
    loss: FloatArray
    rows: float
    parts: FloatArray | None = None


def schema_of(model: PrivateLinearModel, unit: ColumnLike = None) -> Schema:
    """The model's schema; persons are protected where it names a unit, or identifiers are passed."""
    schema: Schema = model.schema_
    return schema if unit is None else replace(schema, unit=passed_unit(schema.unit, unit))


def layout_of(
    model: PrivateLinearModel, by: str | Categorical | None = None, unit: ColumnLike = None
) -> ScoreLayout:
    """The public facts of scores of this model, by the levels of a declared column; refuses others."""
    if not isinstance(model, PrivateLinearModel):
        raise InvalidInput(
            "scores are for models of curvedp: pass one, its file, or pipeline[-1] and transformed rows"
        )
    check_is_fitted(model)
    schema, target = schema_of(model, unit), model.target_
    if schema.absorb is not None:
        raise InvalidInput(
            "a model with absorbed effects predicts changes within persons, and scores are of whole targets: "
            "score a model without absorb"
        )
    column = None if by is None else column_to_compare(schema, by)
    own: dict[str, Any] = {} if column is None else {"by": column.name, "levels": tuple(column.levels)}
    task: Literal["regression", "classification"] = "regression"
    scale, offset = 1.0, 0.0  # of margins
    match target:
        case ClassTarget():
            task, own["probabilities"] = "classification", hasattr(model, "predict_proba")
            own["classes"] = tuple(map(str, target.outputs))
        case CountTarget():
            own |= {"unit": 0.5 * target.high, "offset": 0.5 * target.high, "counts": True}
        case NumericTarget():
            scale, offset = target.scale, target.offset
            own |= {"unit": scale, "offset": offset, "quantile": getattr(model, "quantile", None)}
        case _:
            raise InvalidInput("scores are for one number, count or class: of several targets there are none")
    # |b_k| + Σ_j |coef_kj| max(|low_j|, |high_j|) bounds every partial sum of the margin k; `scale` ≤ 1e150.
    most, release = np.abs(model.schema_.bounds).max(axis=0), model.release_
    with np.errstate(over="ignore", invalid="ignore"):
        reach = (np.abs(release.coefficients) * most).sum(axis=1) + np.abs(release.intercept)
    if not np.all((reach + abs(offset)) / scale <= LARGEST_ENTRY):  # a file may say anything
        raise InvalidInput(
            "the predictions of this model exceed 1e150 within the declared bounds: its coefficients are no "
            "result of a fit; fit it again"
        )
    return ScoreLayout(task, schema.neighbours, **own)


def column_to_compare(schema: Schema, by: str | Categorical) -> Categorical | Boolean:
    """The declared column whose levels are compared."""
    name = by.name if isinstance(by, Categorical) else by
    if name is not None and name == schema.target:
        raise InvalidInput(f"{shown(name)} is the target: choose another column to compare")
    if isinstance(by, Categorical):
        return by
    if (found := next((column for column in schema.columns if column.name == by), None)) is None:
        able = [c for c in schema.columns if isinstance(c, Categorical | Boolean) and c.name != schema.target]
        choices = f"choose one of {', '.join(c.name for c in able)}, or " if able else ""
        raise InvalidInput(f"{shown(str(by))} is not a column of the model's schema: {choices}{_DECLARE}")
    if not isinstance(found, Categorical | Boolean):
        kind = {"numeric": "a number", "date": "a date"}.get(found.kind, "not read")
        raise InvalidInput(f"column {shown(by)} is {kind} in the model's schema: {_DECLARE}")
    return found


def read_scored(
    model: PrivateLinearModel,
    X: TableLike,
    y: ColumnLike = None,
    by: str | Categorical | None = None,
    *,
    unit: ColumnLike = None,
    exposure: ColumnLike = None,
    delimiter: str | None = None,
) -> ScoredRecords:
    """The table through the model, chunk by chunk; a record without a usable target is not among them."""
    layout, schema = layout_of(model, by, unit), schema_of(model, unit)
    if y is None and not schema.has_target:
        raise InvalidInput(
            "the model's schema names no target: pass the targets, or a model of a table with its target"
        )
    column = None if by is None else column_to_compare(schema, by)
    known = schema.declared_offset
    if exposure is not None and known is None:
        raise InvalidInput("this model was fitted without an exposure: leave it out")
    exposed = None if known is None or exposure is not None else schema.offset_column
    needed = {*schema.encoding.sources, schema.target_source, None if column is None else column.name}
    names = [name for name in {*needed, exposed, schema.unit if unit is None else None} if name is not None]
    beside = {"y": y, "unit": unit, "offset": exposure}
    source = schema.source(X, only=names, beside=beside, delimiter=delimiter)
    source = source.of_persons(schema.unit, schema.rows_per_person)
    columns, target = model.columns_, model.target_
    margins = partial(margins_of, model.release_.coefficients, model.release_.intercept)
    loss = model._loss(target) if layout.counts else None

    def read(chunk: Table) -> ScoredRecords:  # in a task of Dask, too: it holds public things alone
        coded = target.encode(chunk.beside["y"] if "y" in chunk.beside else schema.target_in(chunk))
        coded = np.asarray(coded, dtype=np.float64)
        usable, level = ~np.isnan(coded), np.full(len(coded), -1, dtype=np.intp)
        if column is not None:
            level = column.places(chunk.cells(column.name))
        reach = over_chunk(schema, columns, margins, chunk)
        reach += 0.0 if known is None else known_part(known, schema.offset_column, chunk)
        own, level, reach = coded[usable], level[usable], reach[usable]
        if loss is not None:
            assert isinstance(target, CountTarget)
            own = (target.decode(own) - layout.offset) / layout.unit
            reach = expected_counts(reach, target, loss)
        every = chunk.parts
        rows, parts = float(every.sum()), None if schema.unit is None else every[usable]
        if layout.task == "regression":
            score = np.clip(np.nan_to_num((reach - layout.offset) / layout.unit), -layout.reach, layout.reach)
            nothing, losses = np.zeros(len(own), dtype=np.intp), np.zeros((len(own), 2))
            return ScoredRecords(layout, score, own, level, nothing, losses, rows, parts)
        position = (own > 0).astype(np.float64) if len(layout.classes) == 2 else own
        return replace(class_records(layout, reach, position, level, rows), parts=parts)

    chunks = source.over(read)
    names = ["score", "target", "level", "predicted", "loss", *(["parts"] if schema.unit is not None else [])]
    joined: dict[str, Any] = {n: np.concatenate([getattr(chunk, n) for chunk in chunks]) for n in names}
    return replace(chunks[0], rows=sum(chunk.rows for chunk in chunks), **joined)


def margins_of(coef: FloatArray, intercept: FloatArray, rows: FloatArray) -> FloatArray:
    """rows coefᵀ + intercept, shape (n, K), one column of X after another."""
    total = np.tile(intercept, (len(rows), 1))
    for j in range(rows.shape[1]):
        total += rows[:, j, None] * coef[None, :, j]
    return total


def class_records(
    layout: ScoreLayout, margins: FloatArray, target: FloatArray, level: Positions, rows: float
) -> ScoredRecords:
    """Records of a classifier by its margins and the position of their class."""
    loss, own = np.zeros((len(target), 2)), target.astype(np.intp)
    margins = np.clip(np.nan_to_num(margins), -LARGEST_ENTRY, LARGEST_ENTRY)  # 0 where there is no number
    if margins.shape[1] == 1:
        predicted = (margins[:, 0] > 0).astype(np.intp)
        logit = np.clip(margins, -FARTHEST, FARTHEST)
        right = np.where(own == 1, logit[:, 0], -logit[:, 0])
        loss[:, 0] = expit(-right) ** 2
    else:
        predicted, logit = margins.argmax(axis=1), margins
        if layout.probabilities:  # log p_k/(1 − p_k) = m_k − log Σ_{j≠k} e^{m_j}
            others = [np.delete(margins, k, axis=1) for k in range(margins.shape[1])]
            logit = margins - np.column_stack([np.logaddexp.reduce(other, axis=1) for other in others])
        logit = np.clip(logit, -FARTHEST, FARTHEST)
        right = np.take_along_axis(logit, own[:, None], axis=1)[:, 0]
        for k in range(margins.shape[1]):
            loss[:, 0] += np.where(own == k, expit(-logit[:, k]), expit(logit[:, k])) ** 2
    loss[:, 1] = np.logaddexp(0.0, -right)
    shown_losses = loss if layout.probabilities else np.zeros_like(loss)
    return ScoredRecords(layout, logit, target, level, predicted, shown_losses, rows)
