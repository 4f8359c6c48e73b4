"""What every estimator does: declarations → one private fit → fitted state, from which alone it predicts."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted

from curvedp.arrays import ColumnLike, FloatArray, TableLike
from curvedp.data.frames import Table, declared
from curvedp.data.mapping import ColumnMap
from curvedp.data.roles import passed_unit
from curvedp.data.rows.base import Rows
from curvedp.data.rows.blocked import Beside, Passed, read_records, rows_of
from curvedp.data.schema import Schema
from curvedp.data.source import unreadable
from curvedp.data.targets import ClassTarget, NumericTarget, SeveralTargets, Target
from curvedp.errors import InvalidInput, PrivacyWarning, refuse_search, shielded, warn_of_exact_scores
from curvedp.mechanisms.base import Estimate, Mechanism, make_plan
from curvedp.plans import Plan
from curvedp.postprocess.inference import Inference
from curvedp.postprocess.noise import (
    ANOTHER_MODEL,
    BENT,
    FAINT,
    PENALISED,
    UNTOLD,
    WITH_INFERENCE,
    CoefficientNoise,
    LocalObjective,
    QuadraticModel,
    ThetaNoise,
    UserUnits,
    is_free,
    scale_and_offset,
)
from curvedp.privacy.budget import Adjacency, Budget, Neighbours
from curvedp.privacy.guarantee import Guarantee
from curvedp.problems import Problem
from curvedp.problems.constraints import ConstrainCoordinates, Constraint, Reals
from curvedp.problems.domain import Domain
from curvedp.problems.losses.margin import Loss, Squared
from curvedp.problems.losses.several import SquaredSeveral, Weighted
from curvedp.problems.regularizers import L2, NoRegularizer, OnCoordinates, Regularizer
from curvedp.release import catalogue, modelfile
from curvedp.release.door import Payer, account, execute
from curvedp.release.ledger.file import Ledger
from curvedp.release.ledger.storage import Receipt
from curvedp.release.modelfile import Release
from curvedp.release.record import ReleaseRecord, keep, now

# `coef_noise_`: the deviation that privacy noise alone gives each coefficient, in the user's units.


def coefficient_noise(
    columns: ColumnMap,
    target: Target,
    noise: ThetaNoise,
    inference: Inference | None,
    trust: float,
    outputs: int,
) -> CoefficientNoise:
    """For a row of coefficients per output, each with the same noise."""
    units = UserUnits.of(columns, target)
    if inference is not None:
        known = inference.of(units.each(outputs).L)
        told = np.where(known.resolved, trust * known.noise, np.nan)
        return CoefficientNoise.stated(told.reshape(outputs, -1)[:, :-1])
    found = noise.deviations(units.coefficients)
    if found is None:
        return CoefficientNoise(None, noise.reason)
    scales = target.scales[:, None] if isinstance(target, SeveralTargets) else np.ones((outputs, 1))
    return CoefficientNoise.stated(found * scales)


def why_plain(problem: Problem, d: int, inference: bool | None) -> str:
    """Why a recentered fit of this problem with d columns has no intervals; "" where it has.

    `inference` is the parameter of the estimator, None where it has none.
    """
    if inference is None:
        return ANOTHER_MODEL
    if not is_free(problem):
        return BENT
    if not QuadraticModel(problem, np.empty((d, 0))).is_free:
        return PENALISED
    return "" if inference else WITH_INFERENCE


Kind = TypeVar("Kind", NumericTarget, ClassTarget)

_CHUNK = 8192  # rows predicted at a time
_COLUMN_VECTOR = "A column-vector y was passed when a 1d array was expected; pass y[:, 0]"


@dataclass(frozen=True, eq=False)
class Declared:
    """What is public about a fit before its plan: the declarations and the problem that follows from them."""

    problem: Problem
    schema: Schema
    columns: ColumnMap
    target: Target
    named: bool  # whether the table has names of columns
    beside: Beside = field(default_factory=Beside)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearModel(BaseEstimator):  # type: ignore[misc]
    """The parameters that all estimators share, and the one way from them to a release."""

    epsilon: float = 1.0
    delta: float = 1e-6
    schema: Schema | None = None
    bounds: Any = None
    formula: str | None = None
    adjacency: Adjacency | None = None
    mechanism: str | Mechanism = "auto"
    constraint: Constraint | None = None
    fit_intercept: bool = True
    x_norm: float | None = None
    weight_max: float | None = None
    absorb: str | None = None
    ledger: Payer = None
    random_state: int | None = None
    _several: ClassVar[bool] = False  # whether y has a column for each of several targets

    @abstractmethod
    def _declared_target(self) -> Target:
        """What is declared of the target, by the schema or by this estimator; refused where both or none."""

    def _schema_target(self, kind: type[Kind], shorthand: str, other: str) -> Kind | None:
        """The target of the schema, None where it names none; refused beside the shorthand for it."""
        schema = self._given_schema
        if schema is None or not schema.has_target:
            return None
        if getattr(self, shorthand) is not None:
            raise InvalidInput(f"the schema declares the target: leave {shorthand} out")
        target = schema.declared_target
        if not isinstance(target, kind):
            raise InvalidInput(f"the schema's target is {other}")
        return target

    @property
    def _given_schema(self) -> Schema | None:
        """The schema, with the terms of the formula."""
        if self.schema is None or self.formula is None:
            return self.schema
        return self.schema.with_formula(self.formula)

    @abstractmethod
    def _loss(self, target: Target) -> Loss: ...

    def _regularizer(self) -> Regularizer:
        return NoRegularizer()

    def fit(
        self,
        X: TableLike,
        y: ColumnLike = None,
        sample_weight: ColumnLike = None,
        *,
        unit: ColumnLike = None,
    ) -> Self:
        """Release coefficients under (epsilon, delta).

        Parameters
        ----------
        X : data frame, mapping, array, sparse matrix, Dask collection or path of a CSV or Parquet file
            The records. With `schema=` a raw table: text, missing and unreadable cells follow the rule of
            the schema, cell by cell. Nothing about them is reported.
        y : column of length n, optional
            The target. May be left out where the schema names the target and X holds it. A record whose
            target is missing, unreadable or undeclared contributes nothing.
        sample_weight : column of length n, optional
            How much each record counts, at most `weight_max`. A missing or unreadable weight is 0. Leave it
            out where the schema names the weight and X holds it.
        unit : column of length n, optional
            Identifiers that say whose row it is: a person with all rows is protected then, not a row. May be
            left out where the schema names the unit and X holds it. A row without one contributes nothing.

        Returns
        -------
        self : object
            The fitted estimator; `privacy_` states what was promised.
        """
        return self._fitted(X, y, unit, {"weight": sample_weight})

    def _fitted(self, X: TableLike, y: ColumnLike, unit: ColumnLike, passed: Passed) -> Self:
        target = self._declared_target()
        if getattr(y, "shape", ())[1:] == (1,) and not self._several:
            warnings.warn(_COLUMN_VECTOR, DataConversionWarning, stacklevel=3)
        declared = self._declare(X, target, unit, passed)
        if declared.schema.unit_advice:
            warnings.warn(declared.schema.unit_advice, PrivacyWarning, stacklevel=3)
        plan, ledger = self._plan(declared), account(self.ledger)
        rows, begun = self._read_rows(X, y, declared, unit, passed), now()
        released = execute(
            plan, rows, ledger=ledger, label=type(self).__name__, random_state=self.random_state
        )
        record = ReleaseRecord.of(declared.schema, released.privacy, released.receipt, begun)
        self._keep_estimate(released.value, released.privacy, declared, record)
        keep(ledger, released.receipt, self.release_.to_dict)
        return self

    def plan(self) -> Plan[Rows, Estimate]:
        """What `fit` would release, calibrated from the schema alone: no table is read, nothing is charged.

        Whatever is refused for a public reason is refused here.

        Returns
        -------
        plan : Plan
            `plan.guarantee` is what a fit promises and an account is charged.

        Examples
        --------
        >>> from curvedp import Numeric, PrivateLinearRegression, Schema
        >>> schema = Schema([Numeric("age", 18, 90), Numeric("wage", 0, 9_000)], target="wage")
        >>> plan = PrivateLinearRegression(schema=schema, epsilon=0.5, delta=1e-6).plan()
        >>> plan.guarantee.epsilon, plan.guarantee.delta
        (0.5, 1e-06)
        """
        if self.schema is None:
            raise InvalidInput("a plan without a table follows from its declarations: pass a `schema`")
        return self._plan(self._declare(None, self._declared_target()))

    def _plan(self, at: Declared) -> Plan[Rows, Estimate]:
        budget = Budget(self.epsilon, self.delta)
        return make_plan(self._mechanism_of(at), at.problem, at.columns.d, budget)

    def _declare(
        self, X: TableLike, target: Target, unit: ColumnLike = None, passed: Passed | None = None
    ) -> Declared:
        """The declarations, from what is public about X."""
        n_features, names = shielded(partial(self._width, X), unreadable)
        schema = self._declarations(n_features, names)
        if unit is not None:
            schema = replace(schema, unit=passed_unit(schema.unit, unit))
        if self.absorb is not None:
            schema = replace(schema, absorb=self.absorb)
        columns = schema.column_map(intercept=1.0 if self.fit_intercept else 0.0, x_norm=self.x_norm)
        beside = self._beside(schema, passed or {})
        problem = self._problem(beside.loss(self._loss(target)), columns, schema.neighbours, target)
        if columns.absorbed and not isinstance(self._loss(target), Squared | SquaredSeveral):
            raise InvalidInput(
                f"differences within persons are free of their effects for a squared loss alone: choose the "
                f"model linear or ridge in the place of {catalogue.said(self)}, or leave absorb out"
            )
        return Declared(problem, schema, columns, target, names is not None, beside)

    def _beside(self, schema: Schema, passed: Passed) -> Beside:
        """Weights and offsets, as declared; refused where this model has no place for them."""
        found = Beside.declared(schema, passed, self.weight_max)
        if found.offset is not None:
            raise InvalidInput(
                f"{catalogue.said(self)} has no offset and no exposure: choose the model poisson, or declare "
                "the column as a feature"
            )
        return found

    def _keep_estimate(
        self, estimate: Estimate, privacy: Guarantee, at: Declared, record: ReleaseRecord
    ) -> None:
        """Set `release_`, from which everything else follows."""
        theta, noise, penalty = estimate.theta, estimate.noise, at.problem.regularizer
        inner = penalty.inner if isinstance(penalty, OnCoordinates) else penalty
        inference = estimate.inference
        if self.constraint is None and isinstance(inner, (NoRegularizer, L2)) and inference is None:
            H = np.eye(len(theta)) if estimate.local is None else estimate.local.H
            C = at.columns.coding.contrasts(H)  # of an inference levels are contrasts already
            theta, noise = C @ theta, noise.after(C)
        if estimate.local is not None and noise.reason == UNTOLD:
            noise = ThetaNoise(reason=self._why_plain(at) or FAINT)
        coef, intercept = at.columns.to_user_units(theta)
        scale, offset = scale_and_offset(at.target)
        self.release_ = Release(
            estimator=type(self).__name__,
            settings=modelfile.kept_settings(self, at.schema),
            guarantee=privacy,
            schema=at.schema,
            target=at.target,
            named=at.named,
            coefficients=(coef * scale).T,
            intercept=intercept * scale + (0.0 if at.columns.absorbed else offset),
            record=record,
            noise=coefficient_noise(at.columns, at.target, noise, inference, estimate.trust, coef.shape[1]),
            trust=estimate.trust,
            objective=estimate.local,
            inference=inference,
        )

    def _read_rows(
        self,
        X: TableLike,
        y: ColumnLike,
        at: Declared,
        unit: ColumnLike = None,
        passed: Passed | None = None,
    ) -> Rows:
        """The records, read cell by cell and clipped into the domain."""
        if y is None and not at.schema.has_target:
            raise InvalidInput(
                f"{type(self).__name__} requires y to be passed, but the target y is None: pass y, or a "
                "schema that names the target"
            )
        beside = {"y": y, "unit": unit, **(passed or {})}
        read = partial(read_records, schema=at.schema, coded=at.beside.coded(at.schema, at.target))
        found = at.schema.source(X, beside=beside)
        return rows_of(found, read, at.problem.domain, at.columns, at.schema.rows_per_person)

    def _width(self, X: TableLike) -> tuple[int, tuple[str, ...] | None]:
        """The number of raw feature columns and their names, from what is public about X."""
        schema = self._given_schema
        if schema is not None:
            names = tuple(column.name for column in schema.features)
            return len(names), names
        found, width = declared(X)
        if width is None and isinstance(self.bounds, list):  # a pair for each column
            width = len(self.bounds)
        if width is None:
            raise InvalidInput(
                "a list of rows does not say how many columns there are: pass an array, a pair of bounds for "
                "each column, or a schema"
            )
        return width, found

    def _declarations(self, n_features: int, names: tuple[str, ...] | None) -> Schema:
        """The schema: as given, or made of the shorthand `bounds`."""
        schema = self._given_schema
        if schema is None:
            plain = Schema.of_bounds(
                self.bounds, n_features=n_features, names=names, adjacency=self.adjacency or "replace"
            )
            return plain if self.formula is None else plain.with_formula(self.formula)
        if self.bounds is not None:
            raise InvalidInput("pass schema or bounds, not both: the schema declares the bounds")
        if self.adjacency not in (None, schema.adjacency):
            raise InvalidInput(
                f"`adjacency={self.adjacency!r}` contradicts the schema, which says "
                f"{schema.adjacency!r}: leave it out, or change the schema"
            )
        return schema

    def _problem(self, loss: Loss, columns: ColumnMap, neighbours: Neighbours, target: Target) -> Problem:
        inputs = tuple(range(columns.n_inputs))
        regularizer = self._regularizer()
        constraint: Constraint = Reals() if self.constraint is None else self.constraint
        if columns.intercept and not isinstance(regularizer, NoRegularizer):
            regularizer = OnCoordinates(regularizer, inputs)
        if columns.intercept and self.constraint is not None:
            constraint = ConstrainCoordinates(constraint, inputs)
        weighted, absorbed = isinstance(loss, Weighted), columns.absorbed
        y_bound = 2.0 * target.bound if absorbed else target.bound
        domain = Domain(
            columns.norm_bound, y_bound, neighbours.adjacency, neighbours.unit, weighted, absorbed
        )
        return Problem(loss, regularizer, constraint, domain)

    def _mechanism(self) -> Mechanism:
        return catalogue.mechanism(self.mechanism) if isinstance(self.mechanism, str) else self.mechanism

    def _mechanism_of(self, declared: Declared) -> Mechanism:
        """The mechanism of a fit under these declarations: what is public of the columns, and intervals
        where there can be some.
        """
        from curvedp.mechanisms.recentered import Recentered

        chosen = self._mechanism()
        if not isinstance(chosen, Recentered):
            return chosen
        return replace(chosen, coding=declared.columns.coding, inference=not self._why_plain(declared))

    def _why_plain(self, at: Declared) -> str:
        """Why a recentered fit has no intervals; "" where it has."""
        return why_plain(at.problem, at.columns.d, getattr(self, "inference", None))

    @property
    def privacy_(self) -> Guarantee:
        return self.release_.guarantee

    @property
    def schema_(self) -> Schema:
        return self.release_.schema

    @property
    def target_(self) -> Target:
        return self.release_.target

    @property
    def columns_(self) -> ColumnMap:
        return self.release_.columns

    @property
    def objective_(self) -> LocalObjective | None:
        return self.release_.objective

    @property
    def inference_(self) -> Inference | None:
        return self.release_.inference

    @property
    def trust_(self) -> float:
        return self.release_.trust

    @property
    def record_(self) -> ReleaseRecord:
        return self.release_.record

    @property
    def receipt_(self) -> Receipt | None:
        return self.release_.record.receipt

    @property
    def coef_(self) -> FloatArray:
        coefficients = self.release_.coefficients
        return coefficients[0] if self.release_.flat else coefficients

    @property
    def intercept_(self) -> float | FloatArray:
        intercept = self.release_.intercept
        return float(intercept[0]) if self.release_.flat else intercept

    @property
    def coef_noise_(self) -> FloatArray | None:
        deviations = self.release_.noise.deviations
        return None if deviations is None else deviations.reshape(self.coef_.shape)

    @property
    def coef_noise_reason_(self) -> str:
        return self.release_.noise.reason

    @property
    def n_features_in_(self) -> int:
        return len(self.release_.schema.features)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        if not self.release_.named:
            raise AttributeError("the table of the fit had no names of columns")
        return np.array([column.name for column in self.release_.schema.features], dtype=object)

    def _margins(self, X: TableLike) -> FloatArray:
        """clip(X, bounds) coefᵀ + intercept, shape (n, K); a missing number is the middle of its bounds."""
        check_is_fitted(self)
        coef = np.reshape(self.coef_, (-1, self.columns_.n_inputs)).T
        intercept = np.reshape(self.intercept_, (1, -1))  # tasks of Dask take along what they need, no model
        return self._over_rows(X, lambda rows: rows @ coef + intercept)

    def _over_rows(self, X: TableLike, work: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """`work` on blocks of the encoded rows of X, each within its bounds."""
        warn_of_exact_scores()
        source = self.schema_.source(X, only=self.schema_.encoding.sources)
        return np.concatenate(source.over(partial(_over_chunk, self.schema_, self.columns_, work)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model as a JSON document; see `curvedp.load`.

        Parameters
        ----------
        path : str or path
            Where it goes. The file is complete or it is not there.
        """
        check_is_fitted(self)
        ledger = self.ledger.path if isinstance(self.ledger, Ledger) else self.ledger
        self.release_.save(path, ledger=ledger if isinstance(ledger, str | os.PathLike) else None)

    def _require_budget(self) -> None:
        if self.random_state is None and isinstance(ledger := account(self.ledger), Ledger):
            ledger.refuse_beyond(self.epsilon, self.delta)

    def __sklearn_clone__(self) -> Self:
        """A copy without the fit; refused before the first fold of a search for which no budget is left."""
        refuse_search(self._require_budget)
        return super().__sklearn_clone__()  # type: ignore[no-any-return]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the coefficients, in the order of `coef_`: those of levels are "sex=f", "sex=m".

        Parameters
        ----------
        input_features : ignored
            The names are those that were declared.

        Returns
        -------
        names : array of str
            One for each column that the model multiplies.
        """
        check_is_fitted(self)
        return np.array(self.release_.schema.feature_names, dtype=object)

    @property
    def set_output(self) -> Any:
        raise AttributeError(
            "set_output is for transformers, and this estimator predicts: set it on the steps before it, and "
            "wrap what predict returns, as in pandas.Series(model.predict(X), index=X.index)"
        )

    def __getstate__(self) -> dict[str, Any]:
        """A pickle of a fitted model holds no seed."""
        state: dict[str, Any] = super().__getstate__()
        return {**state, "random_state": None} if "release_" in state else state

    @property
    def _repr_html_(self) -> Any:
        inner = super()._repr_html_
        if not hasattr(self, "privacy_"):
            return inner
        return lambda: inner() + self.privacy_._repr_html_()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True  # a missing value takes the middle of its declared bounds
        tags.non_deterministic = self.random_state is None
        return tags


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model file as the estimator that wrote it.

    Parameters
    ----------
    path : str or path
        A file written by `save` or by `curvedp fit`.

    Returns
    -------
    model : estimator
        Fitted; it predicts what the saved one did, and `privacy_` states the guarantee.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> import curvedp
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = curvedp.PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(pathlib.Path(folder) / "model.json")
    ...     again = curvedp.load(pathlib.Path(folder) / "model.json")
    >>> bool(np.allclose(again.predict(X), model.predict(X)))
    True
    """
    return modelfile.load(path).to_estimator()


def _over_chunk(
    schema: Schema, columns: ColumnMap, work: Callable[[FloatArray], FloatArray], chunk: Table
) -> FloatArray:
    """`work` on dense blocks of the encoded rows of a chunk; a sparse block is expanded alone."""
    X = schema.matrix(chunk)
    parts = []
    for start in range(0, max(X.shape[0], 1), _CHUNK):
        block = X[start : start + _CHUNK]
        dense = np.asarray(block.toarray() if sparse.issparse(block) else block, dtype=np.float64)
        parts.append(work(columns.clip(dense)))
    return np.concatenate(parts)
