"""Private regression of counts and rates: a declared range, one private fit, a logarithmic link."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from curvedp.analyses.estimators.linear import PrivateRegressor, PrivateRidge, estimator
from curvedp.analyses.estimators.refitting import Inferring
from curvedp.arrays import ColumnLike, FloatArray, TableLike
from curvedp.data.columns import Numeric
from curvedp.data.frames import Table
from curvedp.data.roles import KnownMargin
from curvedp.data.rows.blocked import Beside, Passed
from curvedp.data.schema import Schema
from curvedp.data.targets import CountTarget, NumericTarget, SeveralTargets, Target
from curvedp.errors import InvalidInput
from curvedp.problems.losses.margin import Loss, Poisson, Squared
from curvedp.problems.losses.several import SquaredSeveral


@estimator
class PrivatePoissonRegressor(Inferring, PrivateRegressor):
    """Poisson regression of counts: min Σ μ − y log μ + (alpha/2)‖θ‖², log μ = xᵀθ, under (ε, δ)-DP.

    With an exposure (days, persons at risk) μ is the exposure times the rate e^{xᵀθ}. The link is e^s up to
    log(max_rate) and straight above, so that the curvature has a public bound; below max_rate it is the
    textbook's. Standard errors are robust: counts may vary more than a Poisson law (quasi-Poisson).

    Parameters
    ----------
    max_rate : float, optional
        The largest count to expect, public, and the unit of counts in the objective; by default the largest
        count of `target_bounds`. The nearer to the largest mean, the more accurate the fit.
    exposure_bounds : (low, high), optional
        The public range of the exposure that `fit` gets, low > 0; a schema with an exposure declares it.
    """

    alpha: float = 0.0
    max_rate: float | None = None
    exposure_bounds: tuple[float, float] | None = None

    def _declared_target(self) -> Target:
        if (schema := self._given_schema) is not None and schema.derived_target is not None:
            raise InvalidInput(f"{schema.target} is no count: name the column itself, the model has the log")
        target = super()._declared_target()
        assert isinstance(target, NumericTarget)
        if target.low < 0:
            raise InvalidInput("counts are not negative: declare bounds of the target from 0 on")
        rate = target.high if self.max_rate is None else self.max_rate
        if not 0 < rate <= target.high:
            raise InvalidInput(
                f"`max_rate` must lie between 0 and the largest count {target.high:g}, got {rate!r}"
            )
        known = self._known_margin()
        if not self.fit_intercept:
            if known is not None:
                raise InvalidInput("an exposure needs fit_intercept=True: the constant is a rate, then")
            return CountTarget(target.high, target.column)
        middle = 0.0 if known is None else known.middle
        return CountTarget(target.high, target.column, rate=rate, known=middle)

    def _known_margin(self) -> KnownMargin | None:
        """The declared exposure or offset, of the schema or of `exposure_bounds`."""
        schema = self._given_schema
        found = None if schema is None else schema.declared_offset
        if self.exposure_bounds is None:
            return found
        if found is not None:
            raise InvalidInput("the schema declares the exposure: leave exposure_bounds out")
        try:
            low, high = self.exposure_bounds
        except (TypeError, ValueError):
            raise InvalidInput("exposure_bounds must be a pair (low, high)") from None
        return KnownMargin(low, high, log=True)

    def _declarations(self, X: TableLike) -> tuple[Schema, bool]:
        schema, named = super()._declarations(X)
        if self.exposure_bounds is None:
            return schema, named
        taken = {column.name for column in schema.columns}
        name = next(n for n in ("exposure" + "_" * i for i in range(len(taken) + 1)) if n not in taken)
        columns = (*schema.columns, Numeric(name, *self.exposure_bounds))
        return replace(schema, columns=columns, exposure=name), named

    def _beside(self, schema: Schema, passed: Passed) -> Beside:
        found = Beside.declared(schema, passed, self.weight_max)
        if passed.get("offset") is not None and self.exposure_bounds is None:
            raise InvalidInput(
                "pass exposure_bounds=(low, high), the public range of the exposure"
                if found.offset is None
                else "the schema declares the exposure, and the table holds it: leave exposure out"
            )
        if self.exposure_bounds is not None and passed.get("offset") is None:
            raise InvalidInput("exposure_bounds declares an exposure: pass exposure= to fit")
        return found

    def _loss(self, target: Target) -> Loss:
        assert isinstance(target, CountTarget)
        largest = target.high if self.max_rate is None else self.max_rate
        return Poisson(max_margin=math.log(largest / target.rate))

    def fit(
        self,
        X: TableLike,
        y: ColumnLike = None,
        sample_weight: ColumnLike = None,
        *,
        exposure: ColumnLike = None,
        unit: ColumnLike = None,
    ) -> Self:
        """Release coefficients under (epsilon, delta).

        Parameters
        ----------
        X, y, sample_weight, unit
            As for every estimator; y are counts.
        exposure : column of length n, optional
            How long, or how many, a count was counted over, within `exposure_bounds`. A record without one
            contributes nothing. Leave it out where the schema names the exposure and X holds it.

        Returns
        -------
        self : object
            The fitted estimator; `privacy_` states what was promised.
        """
        return self._fitted(X, y, {"weight": sample_weight, "offset": exposure, "unit": unit})

    def predict(self, X: TableLike, *, exposure: ColumnLike = None) -> FloatArray:
        """Expected counts, exp(clip(X, bounds)·coef_ + intercept_) times the exposure.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit, and with the exposure where the schema names it.
        exposure : column of length n, optional
            In the place of a column of X. A missing one counts as the middle of its range.

        Returns
        -------
        y : array of shape (n,)
            Expected counts, at most the largest that is declared.
        """
        logarithms = self._margins(X) + self._known_part(X, exposure)
        return expected_counts(logarithms, self.target_, self._loss(self.target_))[:, 0]

    def predict_interval(
        self, X: TableLike, level: float = 0.95, *, exposure: ColumnLike = None
    ) -> FloatArray:
        """Intervals for the expected counts of new records.

        They are about the population's fit, not about a single record, whose count varies around it.

        Parameters
        ----------
        X, exposure
            As for `predict`.
        level : float, default=0.95
            The probability with which an interval holds.

        Returns
        -------
        intervals : array of shape (n, 2)
            Lower and upper ends; NaN where the release does not resolve a prediction.
        """
        logarithms = self._margin_ends(X, level) + self._known_part(X, exposure)
        return expected_counts(logarithms, self.target_, self._loss(self.target_))

    def _known_part(self, X: TableLike, exposure: ColumnLike) -> FloatArray | float:
        """The known part of the margins, shape (n, 1)."""
        known, schema = self.schema_.declared_offset, self.schema_
        if known is None:
            if exposure is not None:
                raise InvalidInput("this model was fitted without an exposure: leave it out")
            return 0.0
        name = schema.offset_column
        source = schema.source(X, only=[*schema.encoding.sources, name], beside={"offset": exposure})
        if exposure is None and name not in source.heads[0]:
            raise InvalidInput(f"this model has an exposure: pass exposure=, or a table with column {name!r}")
        return np.concatenate(source.over(partial(known_part, known, name)))

    def score(self, X: TableLike, y: ColumnLike, sample_weight: ColumnLike = None) -> float:
        """D², the fraction of the Poisson deviance that the model explains.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            As for `predict`.
        y : column of length n
            Their counts.
        sample_weight : column of length n, optional
            How much each record counts.

        Returns
        -------
        score : float
            1 for a perfect model, 0 for a constant one. Not private: for records that may be looked at.
        """
        from sklearn.metrics import d2_tweedie_score  # slow to load

        expected = np.maximum(self.predict(X), np.finfo(np.float64).tiny)
        return float(d2_tweedie_score(y, expected, sample_weight=sample_weight, power=1))


def known_part(known: KnownMargin, name: str, chunk: Table) -> FloatArray:
    """Of the margins of a chunk, shape (n, 1); the middle of its range where it is missing."""
    found = known.encode(chunk.beside["offset"] if "offset" in chunk.beside else chunk.cells(name))
    return np.asarray(known.middle + np.where(np.isnan(found), 0.0, found)[:, None])


def expected_counts(logarithms: FloatArray, target: Target, loss: Loss) -> FloatArray:
    """Of records with such logarithms by the model, at most the largest count that is declared."""
    assert isinstance(target, CountTarget)
    rates = loss.inverse_link(logarithms - math.log(target.rate))
    return np.minimum(target.decode(rates), target.high)


@estimator
class PrivateMultiTaskRidge(PrivateRidge):
    """Ridge regression of several targets: min Σ ½‖xᵀΘ − y‖² + (alpha/2)‖Θ‖², (ε, δ)-differentially private.

    One release serves all targets: the curvature is shared, and the gradient of a record, a matrix with a
    column for each target, is clipped as one. `target_bounds` is a list with a pair for each target, y has a
    column for each, mapped onto [−1, 1]. The schema, if there is one, names no target.
    """

    _several: ClassVar[bool] = True

    def _declared_target(self) -> Target:
        if (schema := self._given_schema) is not None and schema.has_target:
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
        return Squared() if len(target.targets) == 1 else SquaredSeveral(len(target.targets))
