"""scikit-learn estimators: declared bounds in, a private linear model and its guarantee out.

Public bounds map each column to a centred range; the model is fitted there and its coefficients come
back in the user's units. `one_hot` lists blocks of 0/1 columns that code one category each. `alpha`
weighs the penalty in the SUMMED objective and acts on the coefficients of the mapped columns, the
intercept excepted. Scores computed on private rows, and a model chosen by them, are NOT covered by the
guarantee of any single fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from curvedp.constraints import ConstrainCoordinates, Constraint, Reals
from curvedp.domain import Adjacency, ColumnMap, Domain, FloatArray
from curvedp.errors import DataError, InvalidInput
from curvedp.fit import Charge, private_fit
from curvedp.ledger import Ledger
from curvedp.losses import Huber, Logistic, Loss, Multinomial, OneVsRest, Squared, SquaredHinge
from curvedp.mechanisms import named
from curvedp.mechanisms.base import Mechanism
from curvedp.privacy.guarantee import Guarantee
from curvedp.problem import Problem
from curvedp.regularizers import L1, L2, ElasticNet, NoRegularizer, OnCoordinates, Regularizer
from curvedp.rows import is_dask
from curvedp.tables import Table, is_table, read_table

Bounds = tuple[Any, Any] | Mapping[str, tuple[float, float]]
_PREDICT_CHUNK = 8192

_REFUSED = {
    "sample_weight": "a weight multiplies what one person can change, so no bound here would hold; "
    "repeat the analysis on the rows you want instead",
    "class_weight": "a weight multiplies what one person can change; declare `classes` and move the decision "
    "threshold after the release instead, which is free",
}


def _refuse(names: Mapping[str, Any]) -> None:
    for name in names:
        reason = _REFUSED.get(name, "it is not a parameter of a private fit")
        raise InvalidInput(f"{name} is refused: {reason}")


@dataclass(kw_only=True, eq=False, repr=False)
class _PrivateLinearModel(BaseEstimator):  # type: ignore[misc]
    """What the seven estimators share: public parameters, the column map, one private fit."""

    epsilon: float = 1.0
    delta: float = 1e-6
    bounds: Bounds | None = None
    adjacency: Adjacency = "replace"
    mechanism: str | Mechanism = "auto"
    accounting: Literal["auto", "paper", "spectral", "directional"] = "auto"
    radius: float = 1.0
    constraint: Constraint | None = None
    fit_intercept: bool = True
    one_hot: Sequence[Sequence[int | str]] = ()
    x_norm: float | None = None
    ledger: str | None = None
    random_state: int | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        _refuse({name: value for name, value in kwargs.items() if name in _REFUSED})
        instance: Self = super().__new__(cls)
        return instance

    def _loss(self) -> Loss:
        raise TypeError("a concrete estimator defines its loss")

    def _regularizer(self) -> Regularizer:
        return NoRegularizer()

    def _fit(self, X: Any, y: Any) -> FloatArray:
        """Release θ of shape (d, K) in mapped units; sets `privacy_`."""
        columns = self._columns()
        loss = self._loss()
        inputs = tuple(range(columns.n_inputs))
        regularizer: Regularizer = self._regularizer()
        constraint: Constraint = self.constraint if self.constraint is not None else Reals()
        if columns.intercept:
            regularizer = OnCoordinates(regularizer, inputs)
            constraint = ConstrainCoordinates(constraint, inputs)
        domain = Domain(x_norm=columns.norm_bound, y_bound=1.0, adjacency=self.adjacency)
        release = private_fit(
            Problem(loss, regularizer, constraint, domain),
            X,
            y,
            mechanism=self._mechanism(),
            random_state=self.random_state,
            columns=columns,
            charge=self._charge(),
        )
        self.privacy_: Guarantee = release.privacy
        theta, self._covariance = release.theta, release.covariance
        if self.constraint is None and isinstance(self._regularizer(), (NoRegularizer, L2)):
            theta, self._covariance = _level_blocks(theta, self._covariance, self._blocks())
        return theta

    def _mechanism(self) -> Mechanism:
        if not isinstance(self.mechanism, str):
            return self.mechanism
        return named(
            self.mechanism,
            epsilon=self.epsilon,
            delta=self.delta,
            accounting=self.accounting,
            radius=self.radius,
        )

    def _charge(self) -> Charge | None:
        if self.ledger is None:
            return None
        ledger = Ledger(self.ledger)
        label = type(self).__name__
        return lambda guarantee: ledger.charge(guarantee, label=label)

    def _columns(self) -> ColumnMap:
        """The public map of the columns; a missing bound is an error that says what to pass."""
        names = getattr(self, "feature_names_in_", None)
        low, high = _column_bounds(self.bounds, self.n_features_in_, names)
        return ColumnMap.from_bounds(
            low,
            high,
            intercept=1.0 if self.fit_intercept else 0.0,
            x_norm=self.x_norm,
            one_hot=self._blocks(),
        )

    def _blocks(self) -> list[list[int]]:
        return _block_indices(self.one_hot, self.n_features_in_, getattr(self, "feature_names_in_", None))

    def _standard_deviations(self, target_scale: float) -> FloatArray | None:
        """What the noise alone gives each coefficient, in user units; None where it is not released."""
        if self._covariance is None:
            return None
        columns = self._columns()
        deviation = np.sqrt(np.diag(self._covariance)).reshape(columns.d, -1)[: columns.n_inputs].T
        return np.squeeze(deviation / columns.scale * target_scale)

    def _read(self, X: Any, *, reset: bool) -> Any:
        """A matrix (dense, sparse or lazy) of numbers; values are never inspected, only their kind."""
        if is_table(X):
            table: Table = read_table(X)
            if reset:
                self.feature_names_in_ = np.asarray(table.names, dtype=object)
                self.n_features_in_ = len(table.names)
            elif list(table.names) != list(getattr(self, "feature_names_in_", table.names)):
                validate_data(self, X, skip_check_array=True, reset=False)
            return table.values
        if is_dask(X):
            return self._read_dask(X, reset)
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", ensure_all_finite=False, dtype="numeric"
        )

    def _read_dask(self, X: Any, reset: bool) -> Any:
        """X itself; names and width are those that the collection declares, nothing is computed."""
        from curvedp.rows.aligned import declared

        if not reset:
            raise InvalidInput("predictions are made in memory: map model.predict over the partitions of X")
        names, self.n_features_in_ = declared(X)
        self.__dict__.pop("feature_names_in_", None)
        if names:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        return X

    def _margins(self, X: Any) -> FloatArray:
        """clip(X, bounds) coefᵀ + intercept, shape (n, K); missing values take the middle of the bounds."""
        check_is_fitted(self)
        X = self._read(X, reset=False)
        columns = self._columns()
        middle = 0.5 * columns.low + 0.5 * columns.high
        coef = self.coef_.reshape(-1, columns.n_inputs).T
        parts = [
            np.clip(np.where(np.isnan(chunk), middle, chunk), columns.low, columns.high) @ coef
            for chunk in _chunks(X)
        ]
        return np.asarray(np.concatenate(parts) + np.reshape(self.intercept_, (1, -1)))

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


class _PrivateRegressor(RegressorMixin, _PrivateLinearModel):  # type: ignore[misc]
    """Regression on a declared target range; the target is mapped to [−1, 1] for the fit."""


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearRegression(_PrivateRegressor):
    """min Σ ½(xᵀθ − y)², privately. `target_bounds` = (low, high), public; targets are clipped to it."""

    target_bounds: tuple[float, float] | None = None

    def _loss(self) -> Loss:
        return Squared()

    def fit(self, X: Any, y: Any = None, **refused: Any) -> Self:
        """Release coefficients under (epsilon, delta); `refused` names parameters that cannot be private."""
        _refuse(refused)
        low, high = _target_bounds(self.target_bounds)
        X = self._read(X, reset=True)
        target = _numbers(_column(self, y), "y")
        middle, half = (low + high) / 2, (high - low) / 2
        theta = self._fit(X, (target - middle) / half)
        coef, intercept = self._columns().to_user_units(theta)
        self.coef_ = coef[:, 0] * half
        self.intercept_ = float(intercept[0] * half + middle)
        self.coef_std_ = self._standard_deviations(half)
        return self

    def predict(self, X: Any) -> FloatArray:
        """clip(X, bounds)·coef_ + intercept_."""
        return self._margins(X)[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # a private fit of a few dozen rows is mostly noise
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRidge(PrivateLinearRegression):
    """min Σ ½(xᵀθ − y)² + (alpha/2)‖θ‖², privately."""

    alpha: float = 1.0

    def _regularizer(self) -> Regularizer:
        return L2(self.alpha)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLasso(PrivateLinearRegression):
    """min Σ ½(xᵀθ − y)² + alpha‖θ‖₁, privately."""

    alpha: float = 1.0

    def _regularizer(self) -> Regularizer:
        return L1(self.alpha)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateElasticNet(PrivateLinearRegression):
    """min Σ ½(xᵀθ − y)² + alpha(l1_ratio‖θ‖₁ + ½(1−l1_ratio)‖θ‖²), privately."""

    alpha: float = 1.0
    l1_ratio: float = 0.5

    def _regularizer(self) -> Regularizer:
        return ElasticNet(self.alpha, self.l1_ratio)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateHuberRegressor(PrivateRidge):
    """min Σ Huber(xᵀθ − y) + (alpha/2)‖θ‖², privately; `width` in units of half the target range."""

    width: float = 0.25

    def _loss(self) -> Loss:
        return Huber(self.width)


@dataclass(kw_only=True, eq=False, repr=False)
class _PrivateClassifier(ClassifierMixin, _PrivateLinearModel):  # type: ignore[misc]
    """Classification among declared classes; a label outside them counts as the first class."""

    classes: Sequence[Any] | None = None
    alpha: float = 0.0

    def _regularizer(self) -> Regularizer:
        return L2(self.alpha)

    def fit(self, X: Any, y: Any = None, **refused: Any) -> Self:
        """Release coefficients under (epsilon, delta); `refused` names parameters that cannot be private."""
        _refuse(refused)
        self.classes_ = _declared_classes(self.classes)
        X = self._read(X, reset=True)
        index = _class_index(_column(self, y), self.classes_)
        theta = self._fit(X, 2.0 * index - 1.0 if self.classes_.size == 2 else index)
        coef, intercept = self._columns().to_user_units(theta)
        self.coef_, self.intercept_ = coef.T, intercept
        self.coef_std_ = self._standard_deviations(1.0)
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Margins: shape (n,) for two classes (positive: the second), (n, K) otherwise."""
        margins = self._margins(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: Any) -> Any:
        """The class with the largest margin."""
        margins = self.decision_function(X)
        index = (margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)
        return self.classes_[index]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a private fit of a few dozen rows is mostly noise
        tags.classifier_tags.multi_class = self.classes is None or len(self.classes) > 2
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLogisticRegression(_PrivateClassifier):
    """Logistic (two classes) or multinomial regression + (alpha/2)‖θ‖², privately."""

    def _loss(self) -> Loss:
        return Logistic() if self.classes_.size == 2 else Multinomial(int(self.classes_.size))

    def predict_proba(self, X: Any) -> FloatArray:
        """Class probabilities, shape (n, number of classes)."""
        margins = self._margins(X)
        if margins.shape[1] == 1:
            positive = expit(margins[:, 0])
            return np.column_stack([1.0 - positive, positive])
        return np.asarray(softmax(margins, axis=1))

    def predict_log_proba(self, X: Any) -> FloatArray:
        """log of `predict_proba`, from the margins (no underflow)."""
        margins = self._margins(X)
        if margins.shape[1] == 1:
            margins = np.column_stack([np.zeros(len(margins)), margins[:, 0]])
        return np.asarray(log_softmax(margins, axis=1))


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearSVC(_PrivateClassifier):
    """Squared-hinge classification + (alpha/2)‖θ‖², privately; one against the rest for more classes."""

    def _loss(self) -> Loss:
        if self.classes_.size == 2:
            return SquaredHinge()
        return OneVsRest(SquaredHinge(), int(self.classes_.size))


def _column_bounds(bounds: Any, d: int, names: Any) -> tuple[FloatArray, FloatArray]:
    """(low, high) arrays of length d from a pair or from {column: pair}."""
    if bounds is None:
        raise InvalidInput(
            "pass bounds=(low, high) or bounds={column: (low, high), ...}: public ranges that you declare; "
            "they are never read off the data"
        )
    if isinstance(bounds, Mapping):
        if names is None:
            raise InvalidInput(
                "bounds given by column name need a data frame; pass a (low, high) pair of arrays"
            )
        missing = [str(name) for name in names if name not in bounds]
        if missing:
            raise InvalidInput(
                f"no bounds for column {missing[0]!r}: add bounds[{missing[0]!r}] = (low, high)"
            )
        pairs = [bounds[name] for name in names]
        low, high = ([pair[side] for pair in pairs] for side in (0, 1))
    else:
        try:
            low, high = bounds
        except (TypeError, ValueError):
            raise InvalidInput("bounds must be a (low, high) pair or {column: (low, high)}") from None
    try:
        ends = [np.broadcast_to(np.asarray(side, dtype=np.float64), (d,)).copy() for side in (low, high)]
    except (TypeError, ValueError):
        raise InvalidInput(f"bounds must be two numbers or two arrays of length {d}") from None
    return ends[0], ends[1]


def _block_indices(blocks: Sequence[Sequence[int | str]], d: int, names: Any) -> list[list[int]]:
    """One-hot blocks, given by column index or name, as indices below d."""
    known = {} if names is None else {name: j for j, name in enumerate(names)}
    found = [[known.get(column, column) for column in block] for block in blocks]
    for column in (column for block in found for column in block):
        if not (isinstance(column, (int, np.integer)) and 0 <= column < d):
            raise InvalidInput(
                f"one_hot names {column!r}, which is no column: pass indices below {d} or names"
            )
    return [[int(column) for column in block] for block in found]


def _level_blocks(
    theta: FloatArray, covariance: FloatArray | None, blocks: Sequence[Sequence[int]]
) -> tuple[FloatArray, FloatArray | None]:
    """θ with the coefficients of every one-hot block summing to zero; declared levels predict the same.

    Their common value is free (a coded row sums to zero), so noise alone would move it; at zero, a missing or
    undeclared level predicts the average of the levels.
    """
    P = np.eye(len(theta))
    for block in blocks:
        P[np.ix_(block, block)] -= 1.0 / len(block)
    if covariance is None:
        return P @ theta, None
    wide = np.kron(P, np.eye(theta.shape[1]))
    return P @ theta, wide @ covariance @ wide.T


def _target_bounds(bounds: Any) -> tuple[float, float]:
    if bounds is None:
        raise InvalidInput(
            "pass target_bounds=(low, high): the public range of the target; it is never read off the data"
        )
    low, high = (float(side) for side in bounds)
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InvalidInput(f"target_bounds must be finite with low < high, got ({low:g}, {high:g})")
    return low, high


def _declared_classes(classes: Sequence[Any] | None) -> Any:
    if classes is None:
        raise InvalidInput("pass classes=[...]: the labels that may occur, declared; never read off the data")
    values = np.asarray(classes)
    if values.ndim != 1 or values.size < 2 or np.unique(values).size != values.size:
        raise InvalidInput("classes must list at least two different labels")
    return np.sort(values)


def _class_index(y: Any, classes: Any) -> Any:
    """Index of each label in the sorted classes; an undeclared label counts as class 0."""
    if is_dask(y):
        from curvedp.rows.aligned import elementwise

        return elementwise(partial(_class_index, classes=classes), y)
    labels = np.asarray(y)
    if labels.dtype.kind != classes.dtype.kind and "U" in (labels.dtype.kind, classes.dtype.kind):
        labels = labels.astype(str) if classes.dtype.kind == "U" else np.full(labels.shape, np.nan)
    index = np.minimum(np.searchsorted(classes, labels), classes.size - 1)
    return np.where(classes[index] == labels, index, 0).astype(np.float64)


def _column(estimator: Any, y: Any) -> Any:
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    if is_dask(y):
        from curvedp.rows.aligned import column

        return column(y)
    return column_or_1d(y, warn=True)


def _numbers(values: Any, name: str) -> Any:
    """float64, or an error that names the column and no value."""
    if is_dask(values):
        from curvedp.rows.aligned import elementwise

        return elementwise(partial(_numbers, name=name), values)
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name} must hold numbers; convert it before fitting") from None


def _chunks(X: Any) -> Iterator[FloatArray]:
    """Dense row blocks of X; a sparse block is expanded alone."""
    for start in range(0, max(X.shape[0], 1), _PREDICT_CHUNK):
        block = X[start : start + _PREDICT_CHUNK]
        yield np.asarray(block.toarray() if sparse.issparse(block) else block, dtype=np.float64)
