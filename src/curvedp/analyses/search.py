"""`PrivateSearch`: choose among settings of a private estimator, end to end under one (ε, δ)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from curvedp import catalogue
from curvedp.arrays import ColumnLike, FloatArray, TableLike
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.estimators.base import Declared, PrivateLinearModel
from curvedp.ledger import Ledger
from curvedp.mechanisms.recentered import Recentered
from curvedp.record import ReleaseRecord, keep, now
from curvedp.release import execute
from curvedp.released.noise import CHOSEN, ThetaNoise
from curvedp.selection.refits import RefitsPlan, plan_refits
from curvedp.selection.trials import TrialsPlan, plan_trials

Strategy = Literal["auto", "refits", "trials"]
FREE = frozenset({"alpha", "l1_ratio", "constraint"})  # what a refit can change
FIXED = frozenset(
    {
        *("epsilon", "delta", "ledger", "random_state", "inference"),
        *("schema", "bounds", "formula", "adjacency", "target_bounds", "classes", "fit_intercept", "x_norm"),
    }
)
QUADRATIC = frozenset({"squared", "huber"})  # their model serves penalties on both sides of the one it has


@dataclass(frozen=True)
class Candidate:
    """One candidate of a search.

    Attributes
    ----------
    params : dict
        What it changes.
    improvement : float or None
        How much less it loses per record than the reference, with noise; None where no comparison left.
    error : float or None
        The standard deviation of that noise.
    """

    params: Mapping[str, Any]
    improvement: float | None = None
    error: float | None = None


def _best_has(name: str) -> Any:
    return available_if(lambda search: hasattr(search.estimator, name))


@dataclass(eq=False, repr=False)
class PrivateSearch(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Choose among settings of a private estimator; fits, scores and choice together are (ε, δ)-private.

    Where only penalties and constraints differ, one fit gives every candidate for free, and one noisy
    comparison on the same rows chooses. Elsewhere a random number of trials is made, and the best one leaves;
    that costs about as much as fits of half of ε.

    Parameters
    ----------
    estimator : PrivateLinearModel
        A private estimator; its own epsilon, delta and ledger are not used.
    grid : dict of lists, or list of such dicts
        Values to try, by parameter, as for scikit-learn's `GridSearchCV`.
    epsilon : float, default=1.0
        ε of everything together.
    delta : float, default=1e-6
        δ of everything together.
    strategy : {"auto", "refits", "trials"}, default="auto"
        How candidates are made; "auto" makes refits where they suffice.
    trials : float, optional
        The mean of the random number of trials; by default the number of candidates.
    ledger : Ledger or path, optional
        The budget that is charged once, before anything is computed.
    random_state : int, optional
        A seed, for research: the search is then not private, and a ledger refuses it.

    Attributes
    ----------
    best_estimator_ : estimator
        The chosen one, fitted; `best_estimator_.privacy_` states the cost of the whole search.
    best_params_ : dict
        Its settings; empty where no trial was made and the public answer θ = 0 was returned.
    best_index_ : int or None
        Its place in `candidates_`.
    candidates_ : list of Candidate
        All of them, with noisy improvements over the reference where they were compared.
    privacy_ : Guarantee
        What the search promises.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateRidge
    >>> from curvedp.selection import PrivateSearch
    >>> X = np.random.default_rng(0).uniform(-1, 1, (5000, 3))
    >>> ridge = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1))
    >>> search = PrivateSearch(ridge, {"alpha": [0.1, 10.0, 1000.0]}, epsilon=0.5).fit(X, X[:, 0] / 2)
    >>> search.best_estimator_.privacy_.epsilon, len(search.candidates_)
    (0.5, 3)
    """

    estimator: PrivateLinearModel
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]]
    epsilon: float = 1.0
    delta: float = 1e-6
    _: KW_ONLY
    strategy: Strategy = "auto"
    trials: float | None = None
    ledger: Ledger | str | os.PathLike[str] | None = None
    random_state: int | None = None

    def fit(self, X: TableLike, y: ColumnLike = None) -> Self:
        """Search under (epsilon, delta), charged once.

        Parameters
        ----------
        X : data frame, mapping, array, sparse matrix, path or Dask collection
            The records, as the estimator takes them.
        y : column of length n, optional
            The target.

        Returns
        -------
        self : object
            Fitted; `best_estimator_` is the chosen model.
        """
        budget = Budget(self.epsilon, self.delta)
        candidates = self._candidates()
        plain = {"inference": False} if hasattr(self.estimator, "inference") else {}  # it would not hold
        models = [clone(self.estimator).set_params(**params, **plain) for params in candidates]
        target = models[0]._declared_target()
        declared = [model._declare(X, target) for model in models]
        declared[0].problem.domain.neighbours.refuse_units(
            "a search compares candidates row by row", "fit one setting, and use refit and path"
        )
        plan = self._plan(models, declared, candidates, budget)
        ledger = self.ledger if isinstance(self.ledger, Ledger | None) else Ledger(self.ledger)
        rows, begun = models[0]._read_rows(X, y, declared[0]), now()
        label = f"PrivateSearch of {type(self.estimator).__name__}"
        released = execute(plan, rows, ledger=ledger, label=label, random_state=self.random_state)
        choice, chosen = released.value, released.value.index or 0
        best = models[chosen].set_params(epsilon=self.epsilon, delta=self.delta)
        named = ", ".join(sorted({name for params in candidates for name in params}))
        words = f"Within this ε, by a private comparison: one of {len(candidates)} settings of {named}."
        record = ReleaseRecord.of(declared[chosen].schema, released.privacy, released.receipt, begun, [words])
        estimate = choice.estimate
        if estimate.local is not None:
            estimate = replace(estimate, noise=ThetaNoise(reason=CHOSEN))
        best._keep_estimate(estimate, released.privacy, declared[chosen], record)
        unknown = [None] * len(candidates)
        columns = candidates, choice.improvements or unknown, choice.errors or unknown
        self.candidates_ = [Candidate(*told) for told in zip(*columns, strict=True)]
        self.best_estimator_ = best
        self.best_index_ = choice.index
        self.best_params_ = {} if choice.index is None else candidates[choice.index]
        self.privacy_ = released.privacy
        self.n_features_in_ = best.n_features_in_
        keep(ledger, released.receipt, best.release_.to_dict)
        return self

    def _candidates(self) -> list[dict[str, Any]]:
        if not isinstance(self.estimator, PrivateLinearModel):
            raise InvalidInput("PrivateSearch chooses among settings of one estimator of curvedp: pass it")
        if self.estimator.ledger is not None or self.estimator.random_state is not None:
            raise InvalidInput("pass `ledger` and `random_state` to the search, not to its estimator")
        try:
            candidates = list(ParameterGrid(self.grid))
        except (TypeError, ValueError):
            raise InvalidInput('grid must map parameters to lists, such as {"alpha": [0.1, 1, 10]}') from None
        named = {name for params in candidates for name in params}
        unknown = sorted(named - set(self.estimator.get_params(deep=False)))
        if unknown:
            raise InvalidInput(
                f"{catalogue.said(self.estimator)} has no `{unknown[0]}`: choose another model"
            )
        fixed = sorted(named & FIXED)
        if fixed:
            raise InvalidInput(
                f"{fixed[0]!r} belongs to the whole search, not to a candidate: leave it out of the grid"
            )
        return candidates

    def _plan(
        self,
        models: list[PrivateLinearModel],
        declared: list[Declared],
        candidates: list[dict[str, Any]],
        budget: Budget,
    ) -> RefitsPlan | TrialsPlan:
        mechanisms = [model._mechanism_of(at) for model, at in zip(models, declared, strict=True)]
        problems = [at.problem for at in declared]
        d = declared[0].columns.d
        changed = {name for params in candidates for name in params}
        first = mechanisms[0]
        free = changed <= FREE and isinstance(first, Recentered)
        if self.strategy not in ("auto", "refits", "trials"):
            raise InvalidInput(f'strategy must be "auto", "refits" or "trials", got {self.strategy!r}')
        if self.strategy == "refits" and not free:
            raise InvalidInput(
                "refits change alpha, l1_ratio or constraint of the mechanism recentered, nothing else: pass "
                'strategy="trials"'
            )
        if free and self.strategy != "trials" and isinstance(first, Recentered):
            return plan_refits(first, problems, _walk(models, problems[0].loss.name), d, budget)
        mean = float(len(models)) if self.trials is None else float(self.trials)
        return plan_trials(mechanisms, problems, d, budget, mean)

    @property
    def _repr_html_(self) -> Any:
        inner = super()._repr_html_
        return inner if not hasattr(self, "privacy_") else lambda: inner() + self.privacy_._repr_html_()

    def predict(self, X: TableLike) -> NDArray[Any]:
        """Predictions of the chosen model.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        y : array of shape (n,)
            As its `predict` gives them.
        """
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict(X))

    @_best_has("predict_proba")
    def predict_proba(self, X: TableLike) -> FloatArray:
        """Class probabilities of the chosen model.

        Parameters
        ----------
        X : data frame, mapping, array or sparse matrix
            New records with the columns of the fit.

        Returns
        -------
        probabilities : array of shape (n, classes)
            In the order of `best_estimator_.classes_`.
        """
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict_proba(X))


def _walk(models: list[PrivateLinearModel], loss: str) -> int:
    """The candidate whose penalty the one fit has: the middle one, or where curvature changes the least one.

    The model of a quadratic loss serves weaker penalties as well as stronger ones, and a penalised fit is
    steadier. Of other losses the curvature is known as an upper bound only, which errs less towards 0.
    """
    order = sorted(range(len(models)), key=lambda j: getattr(models[j], "alpha", 0.0))
    return order[len(order) // 2] if loss in QUADRATIC else order[0]
