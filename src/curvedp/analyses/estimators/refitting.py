"""Other penalties, constraints and submodels of a fitted model, at no cost: its release already holds them.

A recentered release leaves a private quadratic model of the summed loss, `objective_`. Minimising it with
another penalty is post-processing. The privacy is free, the accuracy is not: the curvature is an estimate,
and the clip belongs to the old centre, so that a refit is good near the fit that was paid for.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from markupsafe import Markup
from sklearn.utils.validation import check_is_fitted

from curvedp import catalogue
from curvedp.arrays import BoolArray, FloatArray
from curvedp.columns import Coding, ColumnMap
from curvedp.constraints import Constraint
from curvedp.errors import InvalidInput, NotCovered
from curvedp.estimators.base import Declared, PrivateLinearModel
from curvedp.mechanisms.base import Estimate
from curvedp.regularizers import OnCoordinates, Regularizer
from curvedp.released.noise import REFITTED, ThetaNoise
from curvedp.released.quadratic_model import LocalObjective

# How far a refit may move a typical prediction, in deviations of the release's own noise. Measured against
# fresh fits on five tables (three for Huber) with κ from 70 to 1,200: there a refit is within 2.4 deviations.
TRUST = {"squared": 4.0, "huber": 2.0}
KAPPA = 30.0


@dataclass(kw_only=True, eq=False, repr=False)
class Refitting(PrivateLinearModel):
    """`refit` and `path` of an estimator that keeps `objective_`."""

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
        (`curvedp.selection.PrivateSearch`).

        Parameters
        ----------
        alpha : float, optional
            Another weight of the estimator's own penalty.
        penalty : Regularizer, optional
            One of `curvedp.regularizers`, in the place of the estimator's own.
        constraint : Constraint, optional
            One of `curvedp.constraints`; by default the constraint of the fit.
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
        >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0] / 2)
        >>> stronger = model.refit(alpha=20.0)
        >>> bool(stronger.coef_[0] < model.coef_[0]), stronger.privacy_ is model.privacy_
        (True, True)
        """
        made, theta = self._refitted(alpha, penalty, constraint, columns)
        self._trusted(theta, trust)
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
        objective, rank = self._refittable()
        found = [self._refitted(float(alpha), None, None, None) for alpha in alphas]
        radius, spread = TRUST[self._loss(self.target_).name], objective.spread(rank)
        moves = np.array([objective.distance(theta, self._theta()) / spread for _, theta in found])
        return RefitPath(
            tuple(float(alpha) for alpha in alphas),
            self.schema_.feature_names,
            np.array([np.ravel(model.coef_) for model, _ in found]),
            np.array([float(model.intercept_) for model, _ in found]),
            moves,
            (moves <= radius) & (objective.kappa >= KAPPA),
        )

    def _refittable(self) -> tuple[LocalObjective, int]:
        """The released model of the objective, the rank of the loss; refused where nothing was measured."""
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
        return self.objective_, loss.rank

    def _refitted(
        self,
        alpha: float | None,
        penalty: Regularizer | None,
        constraint: Constraint | None,
        columns: Sequence[str] | None,
    ) -> tuple[Self, FloatArray]:
        """A new estimator, and its θ on all columns."""
        objective, _ = self._refittable()
        made = copy.copy(self)
        if alpha is not None:
            if not hasattr(self, "alpha"):
                raise InvalidInput(
                    f"{catalogue.said(self)} has no penalty of its own: fit the model ridge or lasso"
                )
            made.alpha = alpha
        if constraint is not None:
            made.constraint = constraint
        kept = list(range(self.columns_.d)) if columns is None else self._coordinates(columns)
        problem = made._problem(
            self._loss(self.target_), _columns_at(self.columns_, kept), self.schema_.neighbours, self.target_
        )
        if penalty is not None:
            inputs = range(len(kept) - (1 if self.columns_.intercept else 0))
            problem = replace(problem, regularizer=OnCoordinates(penalty, tuple(inputs)))
        problem.check(len(kept))
        theta = np.zeros_like(objective.centre)
        theta[kept] = objective.among(kept).minimize(problem)
        at = Declared(problem, self.schema_, self.columns_, self.target_, self.release_.named)
        record = self.record_.after(_refit_words(alpha, penalty, constraint, columns))
        refitted = Estimate(theta, objective, ThetaNoise(reason=REFITTED))
        made._keep_estimate(refitted, self.privacy_, at, record)
        return made, theta

    def _coordinates(self, columns: Sequence[str]) -> list[int]:
        """The model columns of some columns or terms, and the constant."""
        blocks = self.schema_.encoding.blocks
        known = {block.name for block in blocks}
        unknown = [name for name in columns if name not in known]
        if unknown or not columns:
            raise InvalidInput(
                f"columns must name some of {', '.join(map(repr, sorted(known)))}"
                + (f"; {unknown[0]!r} is none of them" if unknown else "")
            )
        chosen = set(columns)
        owners = [block.name for block in blocks for _ in block.names]
        kept = [j for j, owner in enumerate(owners) if owner in chosen]
        return kept + ([self.columns_.n_inputs] if self.columns_.intercept else [])

    def _theta(self) -> FloatArray:
        """The minimiser that was released."""
        return self._refitted(None, None, None, None)[1]

    def _trusted(self, theta: FloatArray, trust: float | None) -> None:
        objective, rank = self._refittable()
        moved = objective.distance(theta, self._theta()) / objective.spread(rank)
        radius = TRUST[self._loss(self.target_).name] if trust is None else trust
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


def _refit_words(
    alpha: float | None,
    penalty: Regularizer | None,
    constraint: Constraint | None,
    columns: Sequence[str] | None,
) -> str:
    """What a refit changed, for the record."""
    changes = [
        "" if alpha is None else f"alpha = {alpha:g}",
        "" if penalty is None else f"the penalty {type(penalty).__name__}",
        "" if constraint is None else f"the constraint {type(constraint).__name__}",
        "" if columns is None else f"the columns {', '.join(columns)} alone",
    ]
    told = " and ".join(filter(None, changes)) or "nothing changed"
    return f"Refitted from this release at no further cost, with {told}."


def _columns_at(columns: ColumnMap, kept: Sequence[int]) -> ColumnMap:
    """The map of some model columns; the norm bound stays, so that the domain does."""
    index = [j for j in kept if j < columns.n_inputs]
    return replace(
        columns,
        low=columns.low[index],
        high=columns.high[index],
        center=columns.center[index],
        scale=columns.scale[index],
        coding=Coding(),
    )


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
        trusted = [bool(one) for one in self.trusted]
        return list(zip(self.alphas, self.moves.tolist(), trusted, strict=True))

    def chart(self) -> Markup:
        """The path as an SVG picture: every coefficient in units of the largest one of its column."""
        from curvedp.charts import Axis, Series, legend, line_chart

        shown = sorted(range(len(self.names)), key=lambda j: -float(np.abs(self.coefs[:, j]).max()))[:6]
        sizes = np.abs(self.coefs).max(axis=0)
        scaled = self.coefs / np.where(sizes > 0, sizes, 1.0)
        order = np.argsort(self.alphas)
        x = [max(self.alphas[i], 1e-12) for i in order]
        series = [Series(self.names[j], x, scaled[order, j].tolist()) for j in shown]
        low, high = min(x), max(x)
        at = Axis("alpha", low, high if high > low else 2 * low, log=True)
        picture = line_chart("Coefficients by alpha", at, Axis("coefficient / largest", -1.0, 1.0), series)
        return picture + legend(series)

    def _repr_html_(self) -> str:
        from curvedp.charts import framed

        return framed(self.chart())
