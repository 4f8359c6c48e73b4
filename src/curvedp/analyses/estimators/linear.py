"""Private regressors: a declared target range, one private fit, coefficients in the user's units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin, RegressorMixin

from curvedp.analyses.estimators.refitting import Inferring, Refitting
from curvedp.analyses.estimators.summary import documented
from curvedp.arrays import FloatArray, TableLike
from curvedp.data.targets import ClassTarget, NumericTarget, Target
from curvedp.errors import InvalidInput
from curvedp.problems.losses.margin import Huber, Logistic, Loss, Squared, SquaredHinge
from curvedp.problems.losses.several import Multinomial, OneVsRest
from curvedp.problems.regularizers import L1, L2, ElasticNet, Regularizer


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRegressor(RegressorMixin, Refitting):  # type: ignore[misc]
    """Regression on a declared target range, mapped to [−1, 1] for the fit."""

    target_bounds: tuple[float, float] | None = None

    def _declared_target(self) -> Target:
        declared = self._schema_target(NumericTarget, "target_bounds", "a category: use a classifier")
        if declared is not None:
            return declared
        if self.target_bounds is None:
            raise InvalidInput(
                "pass target_bounds=(low, high): the public range of the target, never read off the data"
            )
        try:
            low, high = self.target_bounds
        except (TypeError, ValueError):
            raise InvalidInput("target_bounds must be a pair (low, high)") from None
        return NumericTarget(low, high)

    def _loss(self, target: Target) -> Loss:
        return Squared()

    def predict(self, X: TableLike) -> FloatArray:
        """clip(X, bounds)·coef_ + intercept_, clipped to the declared range of the target.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        y : array of shape (n,)
            Predictions in the user's units, within the bounds of the target: noise can carry the linear part
            beyond them, and no target lies there.
        """
        margins, target = self._margins(X)[:, 0], self.target_
        assert isinstance(target, NumericTarget)
        return np.clip(margins, target.low, target.high)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # a private fit of a few dozen rows is mostly noise
        return tags


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearRegression(Inferring, PrivateRegressor):
    """Linear regression: min Σ ½(xᵀθ − y)², released under (ε, δ)-differential privacy."""


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRidge(PrivateRegressor):
    """Ridge regression: min Σ ½(xᵀθ − y)² + (alpha/2)‖θ‖², released under (ε, δ)-differential privacy.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the penalty in the SUMMED objective; it acts on the coefficients of the mapped columns.
    """

    alpha: float = 1.0

    def _regularizer(self) -> Regularizer:
        return L2(self.alpha)


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLasso(PrivateRegressor):
    """Lasso: min Σ ½(xᵀθ − y)² + alpha‖θ‖₁, released under (ε, δ)-differential privacy.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the penalty in the SUMMED objective; it acts on the coefficients of the mapped columns.

    Examples
    --------
    The same from a raw table with text in it:

    >>> from curvedp import Categorical, Numeric, Schema
    >>> columns = Numeric("age", 16, 90), Categorical("sex", ("f", "m")), Numeric("wage", 0, 40_000)
    >>> table = {"age": [34, "n/a", 51], "sex": ["f", "m", "?"], "wage": [2800, 3100, None]}
    >>> model = PrivateLasso(schema=Schema(columns, target="wage")).fit(table)
    >>> model.schema_.feature_names
    ('age', 'sex=f', 'sex=m')
    """

    alpha: float = 1.0

    def _regularizer(self) -> Regularizer:
        return L1(self.alpha)


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateElasticNet(PrivateRegressor):
    """Elastic net: Σ ½(xᵀθ − y)² + alpha(l1_ratio‖θ‖₁ + ½(1−l1_ratio)‖θ‖²), (ε, δ)-differentially private.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the penalty in the SUMMED objective; it acts on the coefficients of the mapped columns.
    l1_ratio : float, default=0.5
        The part of the l1 norm in the penalty, between 0 and 1.
    """

    alpha: float = 1.0
    l1_ratio: float = 0.5

    def _regularizer(self) -> Regularizer:
        return ElasticNet(self.alpha, self.l1_ratio)


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateHuberRegressor(Inferring, PrivateRidge):
    """Huber regression: min Σ Huber(xᵀθ − y) + (alpha/2)‖θ‖², released under (ε, δ)-differential privacy.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the penalty in the SUMMED objective; it acts on the coefficients of the mapped columns.
    width : float, default=0.25
        Residuals beyond it count linearly; in units of half the target range.
    """

    width: float = 0.25

    def _loss(self, target: Target) -> Loss:
        return Huber(self.width)


# Private classifiers: declared classes, one private fit, coefficients in the user's units.


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, Refitting):  # type: ignore[misc]
    """Classification among declared classes."""

    classes: Sequence[Any] | None = None
    alpha: float = 0.0

    def _regularizer(self) -> Regularizer:
        return L2(self.alpha)

    def _declared_target(self) -> Target:
        declared = self._schema_target(ClassTarget, "classes", "a number: use a regressor")
        if declared is not None:
            return declared
        if self.classes is None:
            raise InvalidInput(
                "pass classes=[...]: the labels that may occur, declared; never read off the data"
            )
        return ClassTarget(tuple(self.classes))

    @property
    def classes_(self) -> NDArray[Any]:
        target = self.release_.target
        assert isinstance(target, ClassTarget)
        return target.labels

    def decision_function(self, X: TableLike) -> FloatArray:
        """Margins of new records.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        margins : array of shape (n,) or (n, classes)
            For two classes one number per record, positive: the second class.
        """
        margins = self._margins(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: TableLike) -> NDArray[Any]:
        """The class with the largest margin.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        labels : array of shape (n,)
            Declared labels.
        """
        margins = self.decision_function(X)
        index = (margins > 0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)
        labels: NDArray[Any] = np.asarray(self.classes_)[index]
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a private fit of a few dozen rows is mostly noise
        tags.classifier_tags.multi_class = self.classes is None or len(self.classes) > 2
        return tags


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLogisticRegression(Inferring, PrivateClassifier):
    """Logistic (two classes) or multinomial regression + (alpha/2)‖θ‖², under (ε, δ)-differential privacy.

    Parameters
    ----------
    alpha : float, default=0.0
        Weight of the penalty in the SUMMED objective; it acts on the coefficients of the mapped columns.
    """

    def _loss(self, target: Target) -> Loss:
        assert isinstance(target, ClassTarget)
        K = len(target.classes)
        return Logistic() if K == 2 else Multinomial(K)

    def predict_proba(self, X: TableLike) -> FloatArray:
        """Class probabilities.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        probabilities : array of shape (n, classes)
            In the order of `classes_`.
        """
        margins = self._margins(X)
        predicted = self._loss(self.target_).inverse_link(margins)
        return predicted if predicted.shape[1] > 1 else np.column_stack([1.0 - predicted, predicted])

    def predict_log_proba(self, X: TableLike) -> FloatArray:
        """Logarithms of `predict_proba`, from the margins: they do not underflow.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        logarithms : array of shape (n, classes)
            In the order of `classes_`.
        """
        margins = self._margins(X)
        if margins.shape[1] == 1:
            margins = np.column_stack([np.zeros(len(margins)), margins[:, 0]])
        return np.asarray(log_softmax(margins, axis=1))


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLinearSVC(PrivateClassifier):
    """Squared-hinge classification + (alpha/2)‖θ‖², under (ε, δ)-differential privacy; one against the rest.

    Parameters
    ----------
    alpha : float, default=0.0
        Weight of the penalty in the SUMMED objective; it acts on the coefficients of the mapped columns.
    """

    def _loss(self, target: Target) -> Loss:
        assert isinstance(target, ClassTarget)
        K = len(target.classes)
        return SquaredHinge() if K == 2 else OneVsRest(SquaredHinge(), K)
