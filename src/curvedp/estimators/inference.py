"""Intervals, standard errors and p-values of estimators fitted with `inference=True`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from curvedp.arrays import FloatArray, TableLike
from curvedp.columns import ColumnMap
from curvedp.errors import InvalidInput, NotCovered
from curvedp.estimators.summary import Row, Summary, outcome
from curvedp.released.inference import Clipping, Functionals, Inference
from curvedp.released.noise import OF_PERSONS, UNTOLD, WITH_INFERENCE
from curvedp.released.units import UserUnits

if TYPE_CHECKING:
    from collections.abc import Callable

    from curvedp.constraints import Constraint
    from curvedp.estimators.base import Declared
    from curvedp.losses import Loss
    from curvedp.mechanisms.base import Mechanism
    from curvedp.privacy.guarantee import Guarantee
    from curvedp.schema import Schema
    from curvedp.schema.targets import Target

    class _Model:
        """What the mixin asks of the estimator it is mixed into."""

        constraint: Constraint | None
        columns_: ColumnMap
        coef_: FloatArray
        coef_noise_reason_: str
        inference_: Inference | None
        privacy_: Guarantee
        schema_: Schema
        target_: Target

        def _mechanism(self) -> Mechanism: ...
        def _mechanism_of(self, declared: Declared) -> Mechanism: ...
        def _over_rows(self, X: TableLike, work: Callable[[FloatArray], FloatArray]) -> FloatArray: ...
        def _loss(self, target: Target) -> Loss: ...
else:
    _Model = object


INTERCEPT = "(intercept)"


class NoInference(InvalidInput, AttributeError):
    """The model was fitted without inference=True."""


@dataclass(kw_only=True, eq=False, repr=False)
class Inferring(_Model):
    """The parameter `inference`, and what an estimator knows of its errors once it was fitted with it.

    Everything follows from released numbers, at no further cost. The estimand is the coefficient of the
    population's bounded-influence fit on records clipped to the declared bounds: that of the plain fit
    unless a small group of records dominates it, or values lie outside of the bounds (`curvedp check`).
    """

    inference: bool = False

    def _mechanism_of(self, declared: Declared) -> Mechanism:
        if not self.inference:
            return super()._mechanism_of(declared)
        from curvedp.mechanisms.inference import RecenteredInference
        from curvedp.mechanisms.recentered import Recentered

        chosen = self._mechanism()
        name, alpha = type(self).__name__, getattr(self, "alpha", 0.0)
        if not isinstance(chosen, Recentered):
            raise InvalidInput(
                f"intervals need mechanism='auto': {chosen.name} does not release what they rest on"
            )
        if self.constraint is not None:
            raise NotCovered(
                "a constraint bends coefficients in a way that no interval here knows: pass constraint=None"
            )
        if alpha != 0:
            raise NotCovered(
                f"a penalty pulls coefficients towards 0, and intervals of {name} with them: pass alpha=0"
            )
        if declared.problem.loss.n_outputs > 1:
            raise NotCovered("intervals need two classes: fit two at a time, or without inference")
        return RecenteredInference(blocks=tuple(map(tuple, declared.schema.one_hot)), rule=chosen.rule)

    def _known(self, wanted: str) -> Inference:
        check_is_fitted(self)
        if self.inference_ is None:
            persons = self.privacy_.neighbours.unit is not None
            why = OF_PERSONS if persons else self.coef_noise_reason_
            next_step = "fit again with it" if why in ("", UNTOLD, WITH_INFERENCE) else why
            raise NoInference(f"{wanted} is for models that were fitted with inference=True: {next_step}")
        return self.inference_

    def _functionals(self, wanted: str) -> Functionals:
        """Of the coefficients and, last, the intercept, in the user's units."""
        units = UserUnits.of(self.columns_, self.target_)
        found = self._known(wanted).of(units.L)
        return replace(found, estimate=found.estimate + units.shift)

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
        return known.covariance_of(UserUnits.of(self.columns_, self.target_).coefficients)

    @property
    def pvalues_(self) -> FloatArray:
        """p of "the coefficient is 0", for each of `coef_`; NaN where not resolved.

        Of the estimand: the coefficient of the population's bounded-influence fit on records clipped to the
        declared bounds. The p at which the interval of level 1 − p ends at 0.
        """
        return self._functionals("pvalues_").pvalues()[:-1].reshape(self.coef_.shape)

    def conf_int(
        self,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        clipping: Clipping = "spread",
        intercept: bool = False,
    ) -> FloatArray:
        """Intervals that hold the population's coefficients, sampling and privacy noise together.

        The estimand is the coefficient of the population's bounded-influence fit on records clipped to the
        declared bounds. What declared bounds cut off is not covered: `curvedp check` shows how much that is.

        Parameters
        ----------
        level : float, default=0.95
            The probability with which an interval holds its coefficient.
        simultaneous : bool, default=False
            Whether all stated intervals hold together with that probability: Bonferroni over the
            coefficients that are stated, each at 1 − (1 − level)/number.
        clipping : {"spread", "worst"}, default="spread"
            How the records beyond the clip may pull: in directions of their own, or all in one.
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
        >>> model = PrivateLinearRegression(bounds=(-1, 1), target_bounds=(-1, 1), inference=True).fit(X, y)
        >>> low, high = model.conf_int()[0]
        >>> bool(low < model.coef_[0] < high), bool(low > 0)
        (True, True)
        """
        found = self._functionals("conf_int")
        if clipping not in ("spread", "worst"):
            raise InvalidInput(f'clipping must be "spread" or "worst", got {clipping!r}')
        shown = slice(None) if intercept else slice(-1)
        if simultaneous:
            level = 1.0 - (1.0 - _checked(level)) / max(int(found.resolved[shown].sum()), 1)
        half = found.half_width(_checked(level), clipping)
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
        known, units = self._known("predict_interval"), UserUnits.of(self.columns_, self.target_)
        loss, level = self._loss(self.target_), _checked(level)

        def ends(rows: FloatArray) -> FloatArray:
            found = known.of(units.margins(rows))
            half = found.half_width(level)
            middle = found.estimate + units.shift[-1]
            return np.column_stack([middle - half, middle + half])

        found = self._over_rows(X, ends)
        return np.asarray(loss.inverse_link(found))

    def summary(self, level: float = 0.95) -> Summary:
        """The table of coefficients that a publication shows.

        Parameters
        ----------
        level : float, default=0.95
            Of the intervals.

        Returns
        -------
        summary : Summary
            Prints as text and shows as HTML in a notebook; `as_text`, `as_html`, `as_latex`, `as_frame` and
            `table` give it in other forms.
        """
        found = self._functionals("summary")
        names = [*self.schema_.feature_names, INTERCEPT]
        kept = names if self.columns_.intercept else names[:-1]
        return Summary(
            target=outcome(self.schema_.target, getattr(self, "classes_", ())),
            estimator=type(self).__name__,
            level=level,
            privacy=self.privacy_,
            inference=self._known("summary"),
            rows=rows_of(found, names, _checked(level))[: len(kept)],
        )

    def contrast(self, weights: Mapping[str, float], level: float = 0.95) -> Row:
        """A weighted sum of coefficients with its interval, such as the difference of two levels.

        Coefficients of levels sum to zero, so that one rare level blurs all of them; differences of the
        others may still be resolved.

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
        known, units = self._known("contrast"), UserUnits.of(self.columns_, self.target_)
        names = [*self.schema_.feature_names, INTERCEPT]
        unknown = [name for name in weights if name not in names]
        if unknown or not weights:
            raise InvalidInput(f"weights must name some of {', '.join(map(repr, names))}")
        a = np.array([[float(weights.get(name, 0.0)) for name in names]])
        if not np.all(np.isfinite(a)):
            raise InvalidInput("weights must be finite numbers")
        found = known.of(a @ units.L)
        found = replace(found, estimate=found.estimate + a @ units.shift)
        return rows_of(found, [" ".join(f"{w:+g}·{name}" for name, w in weights.items())], _checked(level))[0]


def rows_of(found: Functionals, names: Sequence[str], level: float) -> tuple[Row, ...]:
    """One row per functional."""
    half, pvalues = found.half_width(level), found.pvalues()
    return tuple(
        Row(
            name=name,
            coefficient=float(found.estimate[j]),
            se=float(found.se[j]),
            noise=float(found.noise[j]),
            df=float(found.df[j]),
            low=float(found.estimate[j] - half[j]),
            high=float(found.estimate[j] + half[j]),
            pvalue=float(pvalues[j]),
            resolved=bool(found.resolved[j]),
        )
        for j, name in enumerate(names)
    )


def _checked(level: float) -> float:
    if not 0.0 < level < 1.0:
        raise InvalidInput(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    return level
