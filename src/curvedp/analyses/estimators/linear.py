"""Private regressors: a declared target range, one private fit, coefficients in the user's units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from curvedp.arrays import FloatArray, TableLike
from curvedp.errors import InvalidInput
from curvedp.estimators.documentation import documented
from curvedp.estimators.inference import Inferring
from curvedp.estimators.refitting import Refitting
from curvedp.losses import Huber, Loss, Squared
from curvedp.regularizers import L1, L2, ElasticNet, Regularizer
from curvedp.schema import NumericTarget
from curvedp.schema.targets import Target


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

    >>> from curvedp import Schema
    >>> from curvedp.schema import Categorical, Numeric
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
