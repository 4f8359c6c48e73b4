"""Other penalties, constraints and submodels of a fitted model, at no cost: its release already holds them.

A recentered release leaves a private quadratic model of the summed loss, `objective_`. Minimising it with
another penalty is post-processing. The privacy is free, the accuracy is not: the curvature is an estimate,
and the clip belongs to the old centre, so that a refit is good near the fit that was paid for.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from markupsafe import Markup
from scipy.special import expit, logsumexp, softmax
from sklearn.utils.validation import check_is_fitted

from curvedp.analyses.estimators import summary as tables
from curvedp.analyses.estimators.base import Declared, PrivateLinearModel
from curvedp.analyses.estimators.summary import INTERCEPT, Frame, Label, Row, Summary
from curvedp.arrays import BoolArray, FloatArray, TableLike, kron
from curvedp.data.targets import ClassTarget, CountTarget
from curvedp.errors import InvalidInput, NotCovered
from curvedp.mechanisms.base import Estimate
from curvedp.postprocess.inference import Functionals, Inference, checked, in_user_units
from curvedp.postprocess.noise import REFITTED, LocalObjective, ThetaNoise, UserUnits
from curvedp.problems.constraints import Constraint
from curvedp.problems.losses.margin import Loss
from curvedp.problems.regularizers import OnCoordinates, Regularizer
from curvedp.release import catalogue

# How far a refit may move a typical prediction, in deviations of the release's own noise. Measured against
# fresh fits on five tables (three for Huber) with κ from 70 to 1,200: there a refit is within 2.4 deviations.
TRUST = {"squared": 4.0, "huber": 2.0}
KAPPA = 30.0


class Refitting(PrivateLinearModel):
    """What follows from a release at no cost: its tables; `refit` and `path` where it keeps `objective_`."""

    def summary(
        self, level: float = 0.95, *, exp: bool = False, reference: Mapping[str, str] | None = None
    ) -> Summary:
        """The table of coefficients that a publication shows, with intervals where the fit has some.

        Parameters
        ----------
        level : float, default=0.95
            Of the intervals.
        exp : bool, default=False
            Whether to state odds ratios of two classes, or rate ratios of counts, with their intervals.
        reference : mapping of str to str, optional
            The level of each column that its others are stated against; by default what the schema declares.
            {}: every level against the mean of all records, as `coef_` has them.

        Returns
        -------
        summary : Summary
            Prints as text and shows as HTML in a notebook; `as_text`, `as_html`, `as_latex`, `as_frame`,
            `tidy` and `table` give it in other forms. Where there are no intervals, it says why.

        Examples
        --------
        >>> import numpy as np
        >>> from curvedp import Boolean, Categorical, PrivateLogisticRegression, Schema
        >>> random = np.random.default_rng(0)
        >>> table = {"sex": random.choice(["f", "m"], 20_000)}
        >>> table["died"] = random.random(20_000) < np.where(table["sex"] == "m", 0.4, 0.2)
        >>> schema = Schema([Categorical("sex", ["f", "m"], reference="f"), Boolean("died")], target="died")
        >>> found = PrivateLogisticRegression(schema=schema).fit(table).summary(exp=True)
        >>> found.rows[0].name, found.rows[0].low > 1
        ('sex=m vs f', True)
        """
        check_is_fitted(self)
        return Summary.of(self.release_, level, exp, reference)

    def tidy(
        self, level: float = 0.95, *, exp: bool = False, reference: Mapping[str, str] | None = None
    ) -> Frame:
        """`summary` as a data frame with the columns of R's broom: see `Summary.tidy`.

        Parameters
        ----------
        level, exp, reference
            As in `summary`.

        Returns
        -------
        frame : pandas.DataFrame or polars.DataFrame
            term, estimate, std.error, statistic, p.value, conf.low, conf.high.
        """
        return self.summary(level, exp=exp, reference=reference).tidy()

    def glance(self) -> Frame:
        """One line about the fit, as broom's `glance`: see `Summary.glance`.

        Returns
        -------
        frame : pandas.DataFrame or polars.DataFrame
            nobs, df.residual, kappa, trust, epsilon, delta, adjacency, unit, mechanism.
        """
        return self.summary().glance()

    def refit(
        self,
        *,
        alpha: float | None = None,
        penalty: Regularizer | None = None,
        constraint: Constraint | None = None,
        columns: Sequence[str] | None = None,
        trust: float | None = None,
    ) -> Self:
        """Another penalty, constraint or submodel from the same release: nothing is charged.

        For squared and Huber losses fitted by the default mechanism. Choose by what is public or by numbers
        that were released; choosing by a score on private rows is a release of its own
        (`curvedp.analyses.search.PrivateSearch`).

        Parameters
        ----------
        alpha : float, optional
            Another weight of the estimator's own penalty.
        penalty : Regularizer, optional
            One of `curvedp.problems.regularizers`, in the place of the estimator's own.
        constraint : Constraint, optional
            One of `curvedp.problems.constraints`; by default the constraint of the fit.
        columns : list of str, optional
            The raw columns to keep; the coefficients of all others are 0.
        trust : float, optional
            How far typical predictions may move, in deviations of the release's noise: 4 for the squared
            loss and 2 for Huber by default, where κ ≥ 30; as far as a refit was measured to match a fresh
            fit. A larger one goes further at your own risk.

        Returns
        -------
        model : estimator
            A new one, with the same guarantee. `self` stays as it is.

        Examples
        --------
        >>> import numpy as np
        >>> from curvedp import PrivateRidge
        >>> X = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
        >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1), random_state=0).fit(X, X[:, 0] / 2)
        >>> stronger = model.refit(alpha=2.0)
        >>> bool(stronger.coef_[0] < model.coef_[0]), stronger.privacy_ is model.privacy_
        (True, True)
        """
        made, theta = self._refitted(alpha, penalty, constraint, columns)
        objective, loss = self._refittable()
        (moved,), radius = self._moves([theta]), TRUST[loss.name] if trust is None else trust
        if not radius > 0:
            raise InvalidInput(f"`trust` must be a positive number, got {trust!r}")
        if trust is None and objective.kappa < KAPPA:
            raise NotCovered(
                f"the signal-to-noise ratio κ of this release is {objective.kappa:.2g}: below {KAPPA:g} no "
                "refit was measured to match a fresh fit; fit again, or pass `trust` at your own risk"
            )
        if moved > radius:
            raise NotCovered(
                f"this moves typical predictions by {moved:.3g} times the noise of the release, and a refit "
                f"is trusted up to {radius:g}: choose something nearer, fit again, or pass a larger `trust`"
            )
        return made

    def path(self, alphas: Sequence[float]) -> RefitPath:
        """The coefficients for every alpha, from the same release: nothing is charged.

        Parameters
        ----------
        alphas : sequence of float
            Weights of the estimator's own penalty.

        Returns
        -------
        path : RefitPath
            Coefficients by alpha, and which of them lie within the trust region of `refit`. Shown as a
            picture in a notebook.
        """
        if len(alphas) == 0:
            raise InvalidInput("pass at least one alpha")
        (objective, loss), weights = self._refittable(), tuple(map(float, alphas))
        models, thetas = zip(*map(self._refitted, weights), strict=True)
        moves, coefs = self._moves(thetas), np.array([np.ravel(model.coef_) for model in models])
        intercepts = np.array([float(model.intercept_) for model in models])
        trusted = (moves <= TRUST[loss.name]) & (objective.kappa >= KAPPA)
        return RefitPath(weights, self.schema_.feature_names, coefs, intercepts, moves, trusted)

    def _refittable(self) -> tuple[LocalObjective, Loss]:
        """The released model of the objective, and the loss; refused where nothing was measured."""
        check_is_fitted(self)
        loss = self._loss(self.target_)
        if self.objective_ is None:
            raise InvalidInput(
                "this model holds no released model of its objective: fit it with the mechanism recentered"
            )
        if loss.name not in TRUST:
            raise NotCovered(
                f"refits were measured for squared and Huber losses; with the {loss.name} loss they are far "
                "from fresh fits: fit again, or choose with a private search"
            )
        return self.objective_, loss

    def _refitted(
        self,
        alpha: float | None = None,
        penalty: Regularizer | None = None,
        constraint: Constraint | None = None,
        columns: Sequence[str] | None = None,
    ) -> tuple[Self, FloatArray]:
        """A new estimator, and its θ on all columns."""
        (objective, loss), made, changes = self._refittable(), copy.copy(self), []
        kept = list(range(self.columns_.d))
        if alpha is not None:
            if not hasattr(self, "alpha"):
                raise InvalidInput(
                    f"{catalogue.said(self)} has no penalty of its own: fit the model ridge or lasso"
                )
            made.alpha = alpha
            changes.append(f"alpha = {alpha:g}")
        if penalty is not None:
            changes.append(f"the penalty {type(penalty).__name__}")
        if constraint is not None:
            made.constraint = constraint
            changes.append(f"the constraint {type(constraint).__name__}")
        if columns is not None:
            kept = self._coordinates(columns)
            changes.append(f"the columns {', '.join(columns)} alone")
        problem = made._problem(loss, self.columns_.at(kept), self.schema_.neighbours, self.target_)
        if penalty is not None:
            inputs = range(len(kept) - (1 if self.columns_.intercept else 0))
            problem = replace(problem, regularizer=OnCoordinates(penalty, tuple(inputs)))
        problem.check(len(kept))
        theta = np.zeros_like(objective.centre)
        theta[kept] = objective.among(kept).minimize(problem)
        at = Declared(problem, self.schema_, self.columns_, self.target_, self.release_.named)
        told = " and ".join(changes) or "nothing changed"
        record = self.record_.after(f"Refitted from this release at no further cost, with {told}.")
        refitted = Estimate(theta, objective, ThetaNoise(reason=REFITTED))
        made._keep_estimate(refitted, self.privacy_, at, record)
        return made, theta

    def _coordinates(self, columns: Sequence[str]) -> list[int]:
        """The model columns of some columns or terms, and the constant."""
        blocks = self.schema_.encoding.blocks
        known = {block.name for block in blocks}
        if (unknown := [name for name in columns if name not in known]) or not columns:
            raise InvalidInput(
                f"columns must name some of {', '.join(map(repr, sorted(known)))}"
                + (f"; {unknown[0]!r} is none of them" if unknown else "")
            )
        owners = [block.name for block in blocks for _ in block.encoded_names]
        kept = [j for j, owner in enumerate(owners) if owner in columns]
        return kept + ([self.columns_.n_inputs] if self.columns_.intercept else [])

    def _moves(self, thetas: Sequence[FloatArray]) -> FloatArray:
        """How far each θ moves typical predictions from the release's, in deviations of its noise."""
        (objective, loss), (_, own) = self._refittable(), self._refitted()
        return np.array([objective.distance(theta, own) for theta in thetas]) / objective.spread(loss.rank)


@dataclass(frozen=True, eq=False)
class RefitPath:
    """Coefficients along a path of penalties, all from one release.

    Attributes
    ----------
    alphas : tuple of float
        The weights.
    names : tuple of str
        The encoded columns.
    coefs : array of shape (alphas, columns)
        Coefficients in the user's units.
    intercepts : array of shape (alphas,)
        The constants.
    moves : array of shape (alphas,)
        How far typical predictions moved, in deviations of the release's noise.
    trusted : array of bool
        Whether a refit was measured that far.
    """

    alphas: tuple[float, ...]
    names: tuple[str, ...]
    coefs: FloatArray
    intercepts: FloatArray
    moves: FloatArray
    trusted: BoolArray

    def rows(self) -> list[tuple[float, float, bool]]:
        """(alpha, move, trusted), one by one."""
        return list(zip(self.alphas, self.moves.tolist(), self.trusted.tolist(), strict=True))

    def chart(self) -> Markup:
        """The path as an SVG picture: every coefficient in units of the largest one of its column."""
        from curvedp.pages import Axis, Series, legend, line_chart

        shown = sorted(range(len(self.names)), key=lambda j: -float(np.abs(self.coefs[:, j]).max()))[:6]
        sizes = np.abs(self.coefs).max(axis=0)
        scaled = self.coefs / np.where(sizes > 0, sizes, 1.0)
        order = np.argsort(self.alphas)
        x = [max(self.alphas[i], 1e-12) for i in order]
        series = [Series(self.names[j], x, scaled[order, j].tolist()) for j in shown]
        low, high = x[0], x[-1]
        at = Axis("alpha", low, high if high > low else 2 * low, log=True)
        picture = line_chart("Coefficients by alpha", at, Axis("coefficient / largest", -1.0, 1.0), series)
        return picture + legend(series)

    def _repr_html_(self) -> str:
        from curvedp.pages import framed

        return framed(self.chart())


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
            reason = tables.why_no_intervals(self.release_)
            raise NoInference(f"{wanted} is for fits with intervals: {reason}")
        return self.inference_

    def _functionals(self, wanted: str) -> Functionals:
        """Of the coefficients and, last, the intercept, in the user's units; class after class."""
        found = in_user_units(self._known(wanted), self.release_.units.each(len(self.release_.intercept)))
        return replace(found, se=np.where(found.resolved, found.se, np.nan))

    def _slopes(self, numbers: FloatArray) -> FloatArray:
        """Those of coefficients without intercepts, in the shape of `coef_`."""
        return numbers.reshape(len(self.release_.intercept), -1)[:, :-1].reshape(self.coef_.shape)

    @property
    def coef_se_(self) -> FloatArray:
        """Standard errors of `coef_`, sampling and privacy noise together; NaN where not resolved."""
        return self._slopes(self._functionals("coef_se_").se)

    @property
    def intercept_se_(self) -> float | FloatArray:
        """The standard error of the intercept, of several classes of each; NaN where not resolved."""
        se = self._functionals("intercept_se_").se.reshape(len(self.release_.intercept), -1)[:, -1]
        return float(se[0]) if len(se) == 1 else se

    @property
    def coef_df_(self) -> FloatArray:
        """Degrees of freedom of the standard errors: how well the noise lets them be known."""
        return self._slopes(self._functionals("coef_df_").df)

    @property
    def coef_cov_(self) -> FloatArray:
        """The covariance of the coefficients, NaN where one is not resolved: of `coef_`, row after row."""
        known, K = self._known("coef_cov_"), len(self.release_.intercept)
        return known.covariance_of(kron(np.eye(K), self.release_.units.coefficients))

    @property
    def pvalues_(self) -> FloatArray:
        """p of "the coefficient is 0", for each of `coef_`; NaN where not resolved.

        Of the coefficient of the population's fit on records clipped to the declared bounds; the p at which
        the interval of level 1 − p ends at 0.
        """
        return self._slopes(self._functionals("pvalues_").pvalues())

    def conf_int(
        self,
        level: float = 0.95,
        *,
        simultaneous: bool = False,
        intercept: bool = False,
        as_frame: bool = False,
    ) -> Frame:
        """Intervals that hold the population's coefficients, sampling and privacy noise together.

        The estimand is the coefficient of the population's fit on records clipped to the declared bounds.
        What these cut off is not covered: `curvedp check` shows how much that is. Of several classes the
        coefficients add up to 0, each against the mean of all; `summary` states them against one of them.

        Parameters
        ----------
        level : float, default=0.95
            The probability with which an interval holds its coefficient.
        simultaneous : bool, default=False
            Whether all stated intervals hold together with that probability: Bonferroni over the
            coefficients that are stated, each at 1 − (1 − level)/number.
        intercept : bool, default=False
            Whether a last row has the interval of the intercept.
        as_frame : bool, default=False
            Whether to return a data frame with the columns term, conf.low and conf.high.

        Returns
        -------
        intervals : array of shape (columns, 2), of several classes (classes, columns, 2); or data frame
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
        found, names, K = self._functionals("conf_int"), self._names, len(self.release_.intercept)
        shown = np.arange(len(names)).reshape(K, -1)[:, : None if intercept else -1].ravel()
        if simultaneous:
            level = 1.0 - (1.0 - checked(level)) / max(int(found.resolved[shown].sum()), 1)
        half = found.half_width(checked(level))
        ends = np.column_stack([found.estimate - half, found.estimate + half])[shown]
        if not as_frame:
            return ends if K == 1 else ends.reshape(K, -1, 2)
        low, high = ends.T.tolist()
        return tables.frame_of({"term": [names[j] for j in shown], "conf.low": low, "conf.high": high})

    @property
    def _names(self) -> list[str]:
        """Of `coef_` and the intercepts, class after class."""
        names = [*self.schema_.feature_names, INTERCEPT]
        if len(self.release_.intercept) == 1:
            return names
        return [f"{label}: {name}" for label in self.release_.classes or () for name in names]

    def marginal_effects(
        self,
        level: float = 0.95,
        *,
        at: Mapping[str, Label] | None = None,
        reference: Mapping[str, str] | None = None,
    ) -> Frame:
        """How far one unit of a column moves the mean response: for two classes, the event's probability.

        Of counts it is the rate, the expected count at an exposure of 1.
        Of a logistic model the effect p(1 − p)·coefficient differs from record to record. The mean of
        p(1 − p) over all records is not released; the means of the columns are. So the effects are those at
        the mean record, as statsmodels' `get_margeff(at="mean")` has them, with errors by the delta method.
        The mean record is taken as it was released: its own noise and sampling are not in the errors.

        Parameters
        ----------
        level : float, default=0.95
            The probability with which an interval holds its effect.
        at : mapping of str to cell, optional
            Another record, by column: {"age": 40, "sex": "f"}.
        reference : mapping of str to str, optional
            As in `summary`.

        Returns
        -------
        frame : pandas.DataFrame or polars.DataFrame
            The columns of `tidy`.
        """
        known, units = self._known("marginal_effects"), self.release_.units
        if len(self.release_.intercept) > 1:
            raise InvalidInput("marginal effects are of one response: fit two classes, or ask for ratios")
        T, names = tables.stated_against(self.release_, reference)
        slopes = [j for j, name in enumerate(names) if name != INTERCEPT]
        coefficients = T[slopes] @ units.L
        constant, local = self.columns_.coding.constant, self.objective_
        if at is not None:
            row = self.columns_.clip(self.schema_.read({name: [cell] for name, cell in at.items()}))
            margin = units.margins(row)
        elif constant is None or local is None:
            raise InvalidInput("the means of the columns are not released without an intercept: pass at=")
        else:
            margin = local.H[None, :, constant] / local.H[constant, constant]
        slope, bend = 1.0, 0.0
        if isinstance(self.target_, ClassTarget):
            p = float(expit((margin @ known.theta)[0, 0]))
            slope, bend = p * (1.0 - p), p * (1.0 - p) * (1.0 - 2.0 * p)
        elif isinstance(self.target_, CountTarget):
            slope = bend = float(np.exp((margin @ known.theta)[0, 0] + units.shift[-1]))
        estimate = (coefficients @ known.theta)[:, 0]
        found = known.of(slope * coefficients + bend * np.outer(estimate, margin[0]))
        found = replace(found, estimate=slope * estimate)
        rows = tables.rows_of(found, [names[j] for j in slopes], checked(level))
        return Summary(self.release_, level, rows).tidy()

    def predict_interval(self, X: TableLike, level: float = 0.95) -> FloatArray:
        """Intervals for the mean response of new records: of classes the event's probability, or each's.

        They are about the population's fit, not about a single record, whose target varies around it.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.
        level : float, default=0.95
            The probability with which an interval holds.

        Returns
        -------
        intervals : array of shape (n, 2), of several classes (n, classes, 2)
            Lower and upper ends in the user's units; NaN where the release does not resolve a prediction.
        """
        link = expit if len(self.release_.intercept) > 1 else self._loss(self.target_).inverse_link
        return np.asarray(link(self._margin_ends(X, level)))

    def _margin_ends(self, X: TableLike, level: float) -> FloatArray:
        """Of intervals for margins; of several classes for the log-odds of each against all others."""
        known, units, level = self._known("predict_interval"), self.release_.units, checked(level)

        def ends(rows: FloatArray) -> FloatArray:
            margins = units.margins(rows)
            if known.theta.shape[1] == 1:
                found = known.of(margins)
                half, middle = found.half_width(level), found.estimate + units.shift[-1]
                return np.column_stack([middle - half, middle + half])
            return _log_odds_ends(known, margins, level)

        return self._over_rows(X, ends)

    def contrast(self, weights: Mapping[str, float], level: float = 0.95) -> Row:
        """A weighted sum of coefficients with its interval, such as the difference of two levels.

        Coefficients of levels are stated against the mean of all records; a difference of two may be resolved
        where one of them is not.

        Parameters
        ----------
        weights : mapping of str to float
            By encoded column, as in `schema_.feature_names`, or "(intercept)"; of several classes by class
            and column: {"b: age": 1, "c: age": -1}.
        level : float, default=0.95
            The probability with which the interval holds.

        Returns
        -------
        row : Row
            coefficient, se, noise, df, low, high, pvalue and resolved, in the user's units.
        """
        known, units = self._known("contrast"), self.release_.units.each(len(self.release_.intercept))
        names = self._names
        if not weights or not set(weights) <= set(names):
            raise InvalidInput(f"weights must name some of {', '.join(map(repr, names))}")
        a = np.array([[float(weights.get(name, 0.0)) for name in names]])
        if not np.all(np.isfinite(a)):
            raise InvalidInput("weights must be finite numbers")
        found = in_user_units(known, UserUnits(a @ units.L, a @ units.shift))
        said = " ".join(f"{w:+g}·{name}" for name, w in weights.items())
        return tables.rows_of(found, [said], checked(level))[0]


def _log_odds_ends(known: Inference, margins: FloatArray, level: float) -> FloatArray:
    """Ends of intervals for log(p_k/(1 − p_k)) of every class, shape (n, K, 2), by the delta method.

    By the margins of the classes its derivative is e_k − Σ_{l≠k} q_l e_l, q_l = p_l/(1 − p_k).
    """
    s, parts = margins @ known.theta, []
    for k in range(s.shape[1]):
        others = s.copy()
        others[:, k] = -np.inf
        weights = -softmax(others, axis=1)
        weights[:, k] = 1.0
        found = known.of((weights[:, :, None] * margins[:, None, :]).reshape(len(s), -1))
        half, middle = found.half_width(level), s[:, k] - logsumexp(others, axis=1)
        parts.append(np.column_stack([middle - half, middle + half]))
    return np.stack(parts, axis=1)
