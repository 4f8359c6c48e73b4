"""What every estimator does: declarations → one private fit → fitted state, from which alone it predicts."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

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
from curvedp.data.targets import SeveralTargets, Target
from curvedp.errors import InvalidInput, PrivacyWarning, refuse_search, shielded, warn_of_exact_scores
from curvedp.mechanisms.base import Estimate, Mechanism, make_plan
from curvedp.plans import Plan
from curvedp.postprocess import noise as noises
from curvedp.postprocess.noise import CoefficientNoise, ThetaNoise, UserUnits
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
from curvedp.release.modelfile import Release
from curvedp.release.record import ReleaseRecord, keep, now


def coefficient_noise(at: Declared, noise: ThetaNoise, estimate: Estimate, outputs: int) -> CoefficientNoise:
    """For a row of coefficients per output, each with the same noise, in the user's units."""
    units = UserUnits.of(at.columns, at.target)
    if estimate.inference is not None:
        known = estimate.inference.of(units.each(outputs).L)
        told = np.where(known.resolved, estimate.trust * known.noise, np.nan)
        return CoefficientNoise.stated(told.reshape(outputs, -1)[:, :-1])
    if (found := noise.deviations(units.coefficients)) is None:
        return CoefficientNoise(None, noise.reason)
    scales = at.target.scales[:, None] if isinstance(at.target, SeveralTargets) else np.ones((outputs, 1))
    return CoefficientNoise.stated(found * scales)


def why_plain(problem: Problem, d: int, inference: bool | None) -> str:
    """Why a recentered fit of this problem with d columns has no intervals; "" where it has.

    `inference` is the parameter of the estimator, None where it has none.
    """
    if inference is None:
        return noises.ANOTHER_MODEL
    if not noises.is_free(problem):
        return noises.BENT
    if not noises.QuadraticModel(problem, np.empty((d, 0))).is_free:
        return noises.PENALISED
    return "" if inference else noises.WITH_INFERENCE


Part = TypeVar("Part")

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


class View(Generic[Part]):
    """A part of the release of a fitted estimator, as an attribute of it."""

    def __init__(self, part: Callable[[Release], Part]) -> None:
        self.part = part

    def __get__(self, model: PrivateLinearModel, kind: type) -> Part:
        return self.part(model.release_)


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

    def _schema_target(self, kind: type, shorthand: str, other: str) -> Target | None:
        """The target of the schema, None where it names none; refused beside the shorthand for it."""
        if (schema := self._given_schema) is None or not schema.has_target:
            return None
        if getattr(self, shorthand) is not None:
            raise InvalidInput(f"the schema declares the target: leave {shorthand} out")
        if not isinstance(target := schema.declared_target, kind):
            raise InvalidInput(f"the schema's target is {other}")
        return target

    @property
    def _given_schema(self) -> Schema | None:
        if self.schema is None or self.formula is None:
            return self.schema
        return self.schema.with_formula(self.formula)

    @abstractmethod
    def _loss(self, target: Target) -> Loss: ...

    def _regularizer(self) -> Regularizer:
        """(alpha/2)‖θ‖² of an estimator with an `alpha`, unless it says otherwise."""
        return L2(self.alpha) if hasattr(self, "alpha") else NoRegularizer()

    def fit(
        self, X: TableLike, y: ColumnLike = None, sample_weight: ColumnLike = None, *, unit: ColumnLike = None
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
        return self._fitted(X, y, {"weight": sample_weight, "unit": unit})

    def _fitted(self, X: TableLike, y: ColumnLike, passed: Passed) -> Self:
        declared = self._declare(X, passed)
        if getattr(y, "shape", ())[1:] == (1,) and not self._several:
            warnings.warn(_COLUMN_VECTOR, DataConversionWarning, stacklevel=3)
        if declared.schema.unit_advice:
            warnings.warn(declared.schema.unit_advice, PrivacyWarning, stacklevel=3)
        plan, ledger = self._plan(declared), account(self.ledger)
        rows, begun = self._read_rows(X, y, declared, passed), now()
        label = type(self).__name__
        released = execute(plan, rows, ledger=ledger, label=label, random_state=self.random_state)
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
        return self._plan(self._declare(None))

    def _plan(self, at: Declared) -> Plan[Rows, Estimate]:
        return make_plan(self._mechanism_of(at), at.problem, at.columns.d, Budget(self.epsilon, self.delta))

    def _declare(self, X: TableLike, passed: Passed | None = None) -> Declared:
        """The declarations, from what is public about X and the columns that are passed beside it."""
        target, (schema, named), passed = self._declared_target(), self._declarations(X), passed or {}
        if passed.get("unit") is not None:
            schema = replace(schema, unit=passed_unit(schema.unit, passed["unit"]))
        if self.absorb is not None:
            schema = replace(schema, absorb=self.absorb)
        columns = schema.column_map(intercept=1.0 if self.fit_intercept else 0.0, x_norm=self.x_norm)
        beside = self._beside(schema, passed)
        problem = self._problem(beside.loss(self._loss(target)), columns, schema.neighbours, target)
        if columns.absorbed and not isinstance(self._loss(target), Squared | SquaredSeveral):
            raise InvalidInput(
                f"differences within persons are free of their effects for a squared loss alone: choose the "
                f"model linear or ridge in the place of {catalogue.said(self)}, or leave absorb out"
            )
        return Declared(problem, schema, columns, target, named, beside)

    def _beside(self, schema: Schema, passed: Passed) -> Beside:
        """Weights and offsets, as declared; refused where this model has no place for them."""
        if (found := Beside.declared(schema, passed, self.weight_max)).offset is not None:
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
        if self.constraint is None and isinstance(inner, L2) and estimate.inference is None:
            coding, local, means = at.columns.coding, estimate.local, np.zeros(len(theta))
            if local is not None and coding.constant is not None:
                means = local.H[coding.constant] / local.H[coding.constant, coding.constant]
            C = coding.contrasts(means)  # of an inference levels are contrasts already
            theta, noise = C @ theta, noise.after(C)
        if estimate.local is not None and noise.reason == noises.UNTOLD:
            noise = ThetaNoise(reason=self._why_plain(at) or noises.FAINT)
        coef, intercept = at.columns.to_user_units(theta)
        scale, offset = noises.scale_and_offset(at.target)
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
            noise=coefficient_noise(at, noise, estimate, coef.shape[1]),
            trust=estimate.trust,
            objective=estimate.local,
            inference=estimate.inference,
        )

    def _read_rows(self, X: TableLike, y: ColumnLike, at: Declared, passed: Passed | None = None) -> Rows:
        """The records, read cell by cell and clipped into the domain."""
        if y is None and not at.schema.has_target:
            raise InvalidInput(
                f"{type(self).__name__} requires y to be passed, but the target y is None: pass y, or a "
                "schema that names the target"
            )
        read = partial(read_records, schema=at.schema, coded=at.beside.coded(at.schema, at.target))
        source = at.schema.source(X, beside={"y": y, **(passed or {})})
        return rows_of(source, read, at.problem.domain, at.columns, at.schema.rows_per_person)

    def _declarations(self, X: TableLike) -> tuple[Schema, bool]:
        """The schema, as given or made of the shorthand `bounds`; and whether the columns of X have names."""
        if (schema := self._given_schema) is None:
            names, width = shielded(partial(declared, X), unreadable)
            if width is None and isinstance(self.bounds, list):  # a pair for each column
                width = len(self.bounds)
            if width is None:
                raise InvalidInput(
                    "a list of rows does not say how many columns there are: pass an array, a pair of bounds "
                    "for each column, or a schema"
                )
            adjacency = self.adjacency or "replace"
            plain = Schema.of_bounds(self.bounds, n_features=width, names=names, adjacency=adjacency)
            return plain if self.formula is None else plain.with_formula(self.formula), names is not None
        if self.bounds is not None:
            raise InvalidInput("pass schema or bounds, not both: the schema declares the bounds")
        if self.adjacency not in (None, schema.adjacency):
            raise InvalidInput(
                f"`adjacency={self.adjacency!r}` contradicts the schema, which says "
                f"{schema.adjacency!r}: leave it out, or change the schema"
            )
        return schema, True

    def _problem(self, loss: Loss, columns: ColumnMap, neighbours: Neighbours, target: Target) -> Problem:
        inputs, regularizer = tuple(range(columns.n_inputs)), self._regularizer()
        constraint: Constraint = Reals() if self.constraint is None else self.constraint
        if columns.intercept and not isinstance(regularizer, NoRegularizer):
            regularizer = OnCoordinates(regularizer, inputs)
        if columns.intercept and self.constraint is not None:
            constraint = ConstrainCoordinates(constraint, inputs)
        bounds = columns.norm_bound, 2.0 * target.bound if columns.absorbed else target.bound
        weighted, near = isinstance(loss, Weighted), (neighbours.adjacency, neighbours.unit)
        return Problem(loss, regularizer, constraint, Domain(*bounds, *near, weighted, columns.absorbed))

    def _mechanism_of(self, at: Declared) -> Mechanism:
        """Under these declarations: with what is public of the columns, and intervals where there can be."""
        from curvedp.mechanisms.recentered import Recentered

        chosen = self.mechanism
        chosen = catalogue.mechanism(chosen) if isinstance(chosen, str) else chosen
        if not isinstance(chosen, Recentered):
            return chosen
        return replace(chosen, coding=at.columns.coding, inference=not self._why_plain(at))

    def _why_plain(self, at: Declared) -> str:
        return why_plain(at.problem, at.columns.d, getattr(self, "inference", None))

    privacy_ = View(lambda release: release.guarantee)
    schema_ = View(lambda release: release.schema)
    target_ = View(lambda release: release.target)
    columns_ = View(lambda release: release.columns)
    objective_ = View(lambda release: release.objective)
    inference_ = View(lambda release: release.inference)
    trust_ = View(lambda release: release.trust)
    record_ = View(lambda release: release.record)
    receipt_ = View(lambda release: release.record.receipt)
    coef_ = View(lambda release: release.coefficients[0] if release.flat else release.coefficients)
    intercept_ = View(lambda release: float(release.intercept[0]) if release.flat else release.intercept)
    coef_noise_reason_ = View(lambda release: release.noise.reason)
    n_features_in_ = View(lambda release: len(release.schema.features))

    @property
    def coef_noise_(self) -> FloatArray | None:
        deviations = self.release_.noise.deviations
        return None if deviations is None else deviations.reshape(self.coef_.shape)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        if not self.release_.named:
            raise AttributeError("the table of the fit had no names of columns")
        return np.array([column.name for column in self.release_.schema.features], dtype=object)

    def _margins(self, X: TableLike) -> FloatArray:
        """clip(X, bounds) coefᵀ + intercept, shape (n, K); a missing number is the middle of its bounds."""
        check_is_fitted(self)
        coef, intercept = self.release_.coefficients.T, self.release_.intercept  # no model in a task of Dask
        return self._over_rows(X, lambda rows: rows @ coef + intercept)

    def _over_rows(self, X: TableLike, work: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """`work` on blocks of the encoded rows of X, each within its bounds."""
        warn_of_exact_scores()
        source = self.schema_.source(X, only=self.schema_.encoding.sources)
        return np.concatenate(source.over(partial(over_chunk, self.schema_, self.columns_, work)))

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
        return inner if not hasattr(self, "privacy_") else lambda: inner() + self.privacy_._repr_html_()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True  # a missing value takes the middle of its declared bounds
        tags.target_tags.multi_output, tags.target_tags.single_output = self._several, not self._several
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


def over_chunk(
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
