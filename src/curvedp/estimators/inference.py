"""Intervals, standard errors and p-values of estimators that are fitted with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sklearn.utils.validation import check_is_fitted

from curvedp.arrays import FloatArray, TableLike
from curvedp.errors import InvalidInput
from curvedp.estimators.base import PrivateLinearModel
from curvedp.estimators.summary import INTERCEPT, Row, checked, in_user_units, rows_of, why_no_intervals
from curvedp.released.inference import Functionals, Inference
from curvedp.released.units import UserUnits


class NoInference(InvalidInput, AttributeError):
    """The fit has no intervals; the message says why, and what to do."""


@dataclass(kw_only=True, eq=False, repr=False)
class Inferring(PrivateLinearModel):
    """The parameter `inference`, and what an estimator knows of its errors where a fit has intervals.

    Everything follows from released numbers, at no further cost. The estimand is the coefficient of the
    population's fit on records clipped to the declared bounds (`curvedp check` counts what they clip).
    """

    inference: bool = True

    def _known(self, wanted: str) -> Inference:
        check_is_fitted(self)
        if self.inference_ is None:
            raise NoInference(f"{wanted} is for fits with intervals: {why_no_intervals(self.release_)}")
        return self.inference_

    def _functionals(self, wanted: str) -> Functionals:
        """Of the coefficients and, last, the intercept, in the user's units."""
        return in_user_units(self._known(wanted), self.release_.units)

    @property
    def coef_se_(self) -> FloatArray:
        """Standard errors of `coef_`, sampling and privacy noise together; NaN where not resolved."""
        found = self._functionals("coef_se_")
        return np.where(found.resolved, found.se, np.nan)[:-1].reshape(self.coef_.shape)

    @property
    def intercept_se_(self) -> float:
        """The standard error of the intercept; NaN where not resolved."""
        found = self._functionals("intercept_se_")
        return float(found.se[-1]) if found.resolved[-1] else float("nan")

    @property
    def coef_df_(self) -> FloatArray:
        """Degrees of freedom of the standard errors: how well the noise lets them be known."""
        return self._functionals("coef_df_").df[:-1].reshape(self.coef_.shape)

    @property
    def coef_cov_(self) -> FloatArray:
        """The covariance of the coefficients, shape (columns, columns); NaN where one is not resolved."""
        known = self._known("coef_cov_")
        return known.covariance_of(self.release_.units.coefficients)

    @property
    def pvalues_(self) -> FloatArray:
        """p of "the coefficient is 0", for each of `coef_`; NaN where not resolved.

        Of the coefficient of the population's fit on records clipped to the declared bounds; the p at which
        the interval of level 1 − p ends at 0.
        """
        return self._functionals("pvalues_").pvalues()[:-1].reshape(self.coef_.shape)

    def conf_int(
        self, level: float = 0.95, *, simultaneous: bool = False, intercept: bool = False
    ) -> FloatArray:
        """Intervals that hold the population's coefficients, sampling and privacy noise together.

        The estimand is the coefficient of the population's fit on records clipped to the declared bounds.
        What these cut off is not covered: `curvedp check` shows how much that is.

        Parameters
        ----------
        level : float, default=0.95
            The probability with which an interval holds its coefficient.
        simultaneous : bool, default=False
            Whether all stated intervals hold together with that probability: Bonferroni over the
            coefficients that are stated, each at 1 − (1 − level)/number.
        intercept : bool, default=False
            Whether a last row has the interval of the intercept.

        Returns
        -------
        intervals : array of shape (columns, 2)
            In the order of `coef_`; NaN where the release does not resolve a coefficient.

        Examples
        --------
        >>> import numpy as np
        >>> from curvedp import PrivateLinearRegression
        >>> random = np.random.default_rng(0)
        >>> X = random.uniform(-1, 1, (20_000, 2))
        >>> y = X @ [0.5, 0.0] + random.normal(0, 0.1, 20_000)
        >>> model = PrivateLinearRegression(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, y)
        >>> low, high = model.conf_int()[0]
        >>> bool(low < model.coef_[0] < high), bool(low > 0)
        (True, True)
        """
        found = self._functionals("conf_int")
        shown = slice(None) if intercept else slice(-1)
        if simultaneous:
            level = 1.0 - (1.0 - checked(level)) / max(int(found.resolved[shown].sum()), 1)
        half = found.half_width(checked(level))
        return np.column_stack([found.estimate - half, found.estimate + half])[shown]

    def predict_interval(self, X: TableLike, level: float = 0.95) -> FloatArray:
        """Intervals for the mean response of new records; for two classes, of the second one's probability.

        They are about the population's fit, not about a single record, whose target varies around it.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.
        level : float, default=0.95
            The probability with which an interval holds.

        Returns
        -------
        intervals : array of shape (n, 2)
            Lower and upper ends in the user's units; NaN where the release does not resolve a prediction.
        """
        known, units = self._known("predict_interval"), self.release_.units
        loss, level = self._loss(self.target_), checked(level)

        def ends(rows: FloatArray) -> FloatArray:
            found = known.of(units.margins(rows))
            half = found.half_width(level)
            middle = found.estimate + units.shift[-1]
            return np.column_stack([middle - half, middle + half])

        found = self._over_rows(X, ends)
        return np.asarray(loss.inverse_link(found))

    def contrast(self, weights: Mapping[str, float], level: float = 0.95) -> Row:
        """A weighted sum of coefficients with its interval, such as the difference of two levels.

        Coefficients of levels are stated against the mean of all records; a difference of two may be resolved
        where one of them is not.

        Parameters
        ----------
        weights : mapping of str to float
            By encoded column, as in `schema_.feature_names`, or "(intercept)".
        level : float, default=0.95
            The probability with which the interval holds.

        Returns
        -------
        row : Row
            coefficient, se, noise, df, low, high, pvalue and resolved, in the user's units.
        """
        known, units = self._known("contrast"), self.release_.units
        names = [*self.schema_.feature_names, INTERCEPT]
        unknown = [name for name in weights if name not in names]
        if unknown or not weights:
            raise InvalidInput(f"weights must name some of {', '.join(map(repr, names))}")
        a = np.array([[float(weights.get(name, 0.0)) for name in names]])
        if not np.all(np.isfinite(a)):
            raise InvalidInput("weights must be finite numbers")
        found = in_user_units(known, UserUnits(a @ units.L, a @ units.shift))
        return rows_of(found, [" ".join(f"{w:+g}·{name}" for name, w in weights.items())], checked(level))[0]
