"""Private regression of several targets at once: declared ranges, one private fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from curvedp.arrays import FloatArray, TableLike
from curvedp.errors import InvalidInput
from curvedp.estimators.documentation import documented
from curvedp.estimators.regression import PrivateRidge
from curvedp.losses import Loss, Squared, SquaredSeveral
from curvedp.schema.targets import NumericTarget, SeveralTargets, Target


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateMultiTaskRidge(PrivateRidge):
    """Ridge regression of several targets: min Σ ½‖xᵀΘ − y‖² + (alpha/2)‖Θ‖², (ε, δ)-differentially private.

    One release serves all targets: the curvature is shared, and the gradient of a record, a matrix with a
    column for each target, is clipped as one. `target_bounds` is a list with a pair for each target, y has a
    column for each. The schema, if there is one, names no target.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of the penalty in the SUMMED objective; it acts on the coefficients of the mapped columns, with
        every target mapped onto [−1, 1].
    """

    _several: ClassVar[bool] = True

    def _declared_target(self) -> Target:
        schema = self._given_schema
        if schema is not None and schema.has_target:
            raise InvalidInput(
                "a schema names one target: leave it out, pass y with a column for each, and target_bounds"
            )
        pairs: Any = self.target_bounds
        try:
            bounds = [(low, high) for low, high in pairs]
        except (TypeError, ValueError):
            raise InvalidInput(
                "pass target_bounds=[(low, high), ...]: the public range of each target, never read off data"
            ) from None
        return SeveralTargets(tuple(NumericTarget(low, high) for low, high in bounds))

    def _loss(self, target: Target) -> Loss:
        assert isinstance(target, SeveralTargets)
        T = len(target.targets)
        return Squared() if T == 1 else SquaredSeveral(T)

    def predict(self, X: TableLike) -> FloatArray:
        """clip(X, bounds)·coef_ᵀ + intercept_, each target within its declared range.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        y : array of shape (n, targets)
            Predictions in the user's units.
        """
        check_is_fitted(self)
        target = self.target_
        assert isinstance(target, SeveralTargets)
        return np.clip(self._margins(X), target.offsets - target.scales, target.offsets + target.scales)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags
