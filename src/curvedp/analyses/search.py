"""`PrivateSearch`: choose among settings of a private estimator, end to end under one (ε, δ)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from curvedp.analyses.estimators.base import Declared, PrivateLinearModel
from curvedp.arrays import ColumnLike, FloatArray, TableLike
from curvedp.data.rows.base import Rows
from curvedp.data.rows.blocked import improvement_slack, improvement_sum
from curvedp.errors import InvalidInput, heard
from curvedp.mechanisms import Mechanism
from curvedp.mechanisms.base import Estimate, FitPlan, GaussianNoise, excess, gradient_scale, make_plan
from curvedp.mechanisms.recentered import Recentered, RecenteredPlan, calibrated
from curvedp.mechanisms.rule import Shifts
from curvedp.plans import OfPlans
from curvedp.postprocess.noise import CHOSEN, ThetaNoise
from curvedp.privacy import profiles
from curvedp.privacy.budget import Budget
from curvedp.privacy.calibrate import largest, log_excess
from curvedp.privacy.gaussian import calibrate_mu
from curvedp.privacy.guarantee import MU, Guarantee, Parameter
from curvedp.problems import Problem
from curvedp.problems.losses.several import spread_targets
from curvedp.release import catalogue
from curvedp.release.door import Payer, account, execute
from curvedp.release.record import ReleaseRecord, keep, now

__all__ = ["Candidate", "PrivateSearch"]

# Candidates that differ in penalty or constraint alone: one recentered release, free refits, one comparison.
#
# The fit takes nearly all of the budget and all rows. Its quadratic model gives every candidate for free.
# Then one Gaussian release on the same rows says how much less each loses than the fit itself: another
# release of (P-9), whose shift enters μ² beside the others (T-3).

FIT = 0.95  # of μ²: the fit; the rest is for the comparison
TYPICAL_SLOPE = 0.5  # of a loss, targets being in [−1, 1]: differences beyond it times the move are clipped
MU_SCORES = Parameter("mu_scores", "μₛ", "its part for comparing the candidates")


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen candidate (None: the public answer, since no trial was made) and its estimate.

    Of every candidate, where all were compared, how much less it loses per record than the reference, and the
    deviation of that number's noise; else empty.
    """

    index: int | None
    estimate: Estimate
    improvements: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class RefitsPlan(FitPlan):
    """A recentered release of problems[walk], refits to all problems, a comparison of shift `mu_scores`."""

    inner: RecenteredPlan
    problems: tuple[Problem, ...]
    walk: int
    mu_scores: float
    profile: profiles.GaussianProfile
    persons: ClassVar[bool] = True  # the mean over a person's rows is one vector (U-2)

    @property
    def room(self) -> float:
        return self.inner.room

    @cached_property
    def guarantee(self) -> Guarantee:
        described = [p for p in self.inner.guarantee.parameters.described if p.name != "mu"]
        parameters = MU(self.profile.mu), MU_SCORES(self.mu_scores), *described
        name = f"search over {len(self.problems)} refits"
        return self.promise(name, "gaussian", "(P-9)", self.profile, *parameters)

    def release(self, rows: Rows, random: np.random.Generator) -> Choice:  # type: ignore[override]
        local = self.inner.release(rows, random).local
        assert local is not None
        thetas = [local.minimize(problem) for problem in self.problems]
        others = [j for j in range(len(thetas)) if j != self.walk]
        improvements, errors = np.zeros(len(thetas)), np.zeros(len(thetas))  # over the fit; of their noise
        if others:  # released in units of how far margins moved: all of one size
            problem, reference = self.inner.problem, thetas[self.walk]
            noise = GaussianNoise(random, problem.domain.neighbours)
            # A person has k rows, on average, by the constant column if there is one: all margins moved by
            # about √k times that of one row; a mean of k rows varies √k less.
            constant, k = self.inner.coding.constant, 1.0
            if problem.domain.unit is not None and constant is not None:
                k = max(float(local.H[constant, constant]) / local.count, 1.0)
            moved = np.array([local.distance(thetas[j], reference) for j in others])
            scales = np.maximum(moved, 1e-3 * local.spread(problem.loss.rank)) / k
            clip = TYPICAL_SLOPE * math.sqrt(len(others))
            most = self.inner.rows_at_most(noise, local.count)
            slack = improvement_slack(problem.domain, problem.loss, thetas, scales, clip, rows=most)
            own = [thetas[j] for j in others]
            total = improvement_sum(rows, problem.loss, reference, own, scales, clip)
            noisy = noise.gradient(total, clip, self.mu_scores, slack, "comparison")
            improvements[others] = noisy * scales / local.count
            sigma = gradient_scale(clip, self.mu_scores, noise.neighbours, slack)
            errors[others] = sigma * scales / local.count
        best = int(np.argmax(improvements - errors))
        return Choice(best, Estimate(thetas[best], local), tuple(improvements), tuple(errors))


def plan_refits(
    mechanism: Recentered, problems: Sequence[Problem], walk: int, d: int, budget: Budget
) -> RefitsPlan:
    """The fit and the comparison, `FIT` and the rest of μ²."""
    for problem in problems:
        problem.check(d)
    rule, fitted = mechanism.rule_of(problems[walk].loss), problems[walk]
    profile = calibrated(rule, fitted, d, budget, [max(len(problems) - 1, 1)])
    own = replace(profile, mu=profile.mu * math.sqrt(FIT))
    mechanism.coding.check(d)
    columns = bool(mechanism.coding.numbers)
    shifts = Shifts.split(own.mu, rule, fitted.domain.neighbours, columns=columns)
    inner = RecenteredPlan(fitted, d, budget, rule, shifts, own, mechanism.coding, believes=False)
    mu_scores = profile.mu * math.sqrt(1.0 - FIT) * (1 - 1e-14)
    return RefitsPlan(fitted, d, budget, inner, tuple(problems), walk, mu_scores, profile)


# Candidates of any kind: a random number of private trials, the best of which leaves (T-1).
#
# A trial draws a candidate at random, fits it, and scores it by one Gaussian release on the same rows. How
# many trials there were, and what the others gave, never leaves.

SHARE = 0.10  # of the shift's square that a trial allows: its score
MEAN = Parameter("mean_trials", "m", "mean of the Poisson number of trials")
TRIAL_EPSILON = Parameter("trial_epsilon", "ε_Q", "ε of the fit in one trial")


@dataclass(frozen=True, eq=False)
class TrialsPlan(OfPlans, FitPlan):  # type: ignore[override]
    """The best of Poisson(mean) trials of random candidates; θ = 0, projected onto C, where there is none.

    The loss of `problem` scores them, its constraint makes that public answer. Scores bound what a person
    with several rows adds (U-2).
    """

    mean: float
    mu_scores: float
    trial_epsilon: float

    @cached_property
    def profile(self) -> profiles.PoissonSelection:
        more = self.mu_scores, excess([1], [self.mu_scores]), self.budget.epsilon - self.trial_epsilon
        curves = [profiles.with_gaussian(plan.guarantee.profile, *more) for plan in self.plans]
        return profiles.PoissonSelection(profiles.worst(curves), self.mean, self.budget.epsilon)

    @cached_property
    def guarantee(self) -> Guarantee:
        parts = [plan.guarantee for plan in self.plans]
        return self.promise(
            f"search over {len(parts)}: {', '.join(dict.fromkeys(g.mechanism for g in parts))}",
            "selection",
            f"(T-1) with {', '.join(dict.fromkeys(g.theorem for g in parts))}",
            self.profile,
            *(MEAN(self.mean), TRIAL_EPSILON(self.trial_epsilon), MU_SCORES(self.mu_scores)),
            private=all(g.private for g in parts),
        )

    def release(self, rows: Rows, random: np.random.Generator) -> Choice:  # type: ignore[override]
        zero = np.zeros((self.d, self.problem.loss.n_outputs))
        best, highest = Choice(None, Estimate(self.problem.constraint.project(zero))), -math.inf
        with heard(None):  # who counts rounds counts trials
            for _ in range(profiles.trials(random, self.mean)):
                index = int(random.integers(len(self.plans)))
                estimate = self.plans[index].release(rows, random)
                score = self._score(rows, estimate, random)
                if score > highest:  # trials are alike in law: the first of equal scores is a random one
                    best, highest = Choice(index, estimate), score
        return best

    def _score(self, rows: Rows, estimate: Estimate, random: np.random.Generator) -> float:
        """Σ clip_c(φ(0) − φ(θ)) with noise, c = max_y φ(0; y): a sum of numbers in [−c, c]."""
        loss, domain = self.problem.loss, self.problem.domain
        targets, theta, one = spread_targets(loss, domain), estimate.theta, np.ones(1)
        clip = float(np.max(loss.value(np.zeros((len(targets), loss.n_outputs)), targets)))
        slack = improvement_slack(domain, loss, [theta], one, clip)
        total = improvement_sum(rows, loss, np.zeros_like(theta), [theta], one, clip)
        noise = GaussianNoise(random, domain.neighbours)
        return float(noise.gradient(total, clip, self.mu_scores, slack, "score")[0])


def plan_trials(
    mechanisms: Sequence[Mechanism], problems: Sequence[Problem], d: int, budget: Budget, mean: float
) -> TrialsPlan:
    """The plan whose trials have the largest ε that (T-1) allows."""
    if not 0 < mean <= profiles.TRIALS_AT_MOST:
        raise InvalidInput(
            f"the mean number of trials must be a positive number up to {profiles.TRIALS_AT_MOST}, got "
            f"{mean!r}: more would leave each of them nothing of the budget"
        )
    if not budget.delta > 0:
        raise InvalidInput("a search with trials needs delta > 0")
    if len({problem.domain for problem in problems}) > 1:
        raise InvalidInput("candidates must read the same rows: leave what maps columns out of the grid")
    delta = budget.delta / (2.0 * max(mean, 1.0))

    def at(epsilon: float, several: int) -> TrialsPlan:
        part = Budget(epsilon, delta)
        plans = tuple(
            make_plan(mechanism, problem, d, part)
            for mechanism, problem in zip(mechanisms[:several], problems[:several], strict=True)
        )
        mu_scores = calibrate_mu(epsilon, delta) * math.sqrt(SHARE)
        return TrialsPlan(problems[0], d, budget, plans, mean, mu_scores, epsilon)

    epsilon = largest(
        lambda epsilon: log_excess(at(epsilon, 1).profile, budget.epsilon, budget.delta),
        budget.epsilon / (100.0 * (1.0 + mean)),
        budget.epsilon,
        start=budget.epsilon / (2.0 + 0.1 * mean),
        what="noise of a search",
    )
    made = at(epsilon, len(problems))
    while log_excess(made.profile, budget.epsilon, budget.delta) > 0:  # another candidate costs more
        epsilon *= 0.97
        made = at(epsilon, len(problems))
    return made


Strategy = Literal["auto", "refits", "trials"]
FREE = frozenset({"alpha", "l1_ratio", "constraint"})  # what a refit can change
FIXED = {"epsilon", "delta", "ledger", "random_state", "inference", "absorb"}  # belong to the whole search
FIXED |= {"schema", "bounds", "formula", "adjacency", "target_bounds", "classes", "fit_intercept", "x_norm"}
QUADRATIC = frozenset({"squared", "huber"})  # their model serves penalties on both sides of the one it has


@dataclass(frozen=True)
class Candidate:
    """One candidate of a search, and what it changes.

    `improvement` is how much less it loses per record than the reference, with noise of deviation `error`;
    None where no comparison left. With a unit, the mean over persons of the mean over their rows.
    """

    params: Mapping[str, Any]
    improvement: float | None = None
    error: float | None = None


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
    epsilon, delta : float, default=1.0 and 1e-6
        ε and δ of everything together.
    strategy : {"auto", "refits", "trials"}, default="auto"
        How candidates are made; "auto" makes refits where they suffice.
    trials : float, optional
        The mean of the random number of trials; by default the number of candidates.
    ledger : Ledger, path or Account, optional
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
    >>> from curvedp import PrivateRidge, PrivateSearch
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
    ledger: Payer = None
    random_state: int | None = None

    def fit(self, X: TableLike, y: ColumnLike = None, *, unit: ColumnLike = None) -> Self:
        """Search under (epsilon, delta), charged once.

        Parameters
        ----------
        X : data frame, mapping, array, sparse matrix, path or Dask collection
            The records, as the estimator takes them.
        y : column of length n, optional
            The target.
        unit : column of length n, optional
            Identifiers that say whose row it is, as for the estimator: persons are protected then.

        Returns
        -------
        self : object
            Fitted; `best_estimator_` is the chosen model.
        """
        budget, passed = Budget(self.epsilon, self.delta), {"unit": unit}
        candidates, changed = self._candidates()
        plain = {"inference": False} if hasattr(self.estimator, "inference") else {}  # it would not hold
        models = [clone(self.estimator).set_params(**params, **plain) for params in candidates]
        declared = [model._declare(X, passed) for model in models]
        plan = self._plan(models, declared, changed, budget)
        ledger = account(self.ledger)
        rows, begun = models[0]._read_rows(X, y, declared[0], passed), now()
        label = f"PrivateSearch of {type(self.estimator).__name__}"
        released = execute(plan, rows, ledger=ledger, label=label, random_state=self.random_state)
        choice, chosen = released.value, released.value.index or 0
        best = models[chosen].set_params(epsilon=self.epsilon, delta=self.delta)
        words = f"Within this ε, by a private comparison: one of {len(candidates)} settings of "
        words += f"{', '.join(sorted(changed))}."
        record = ReleaseRecord.of(declared[chosen].schema, released.privacy, released.receipt, begun, [words])
        if (estimate := choice.estimate).local is not None:
            estimate = replace(estimate, noise=ThetaNoise(reason=CHOSEN))
        best._keep_estimate(estimate, released.privacy, declared[chosen], record)
        told = zip_longest(candidates, choice.improvements, choice.errors)  # None where nothing was compared
        self.candidates_ = [Candidate(*one) for one in told]
        self.best_estimator_, self.best_index_ = best, choice.index
        self.best_params_ = {} if choice.index is None else candidates[choice.index]
        self.privacy_, self.n_features_in_ = released.privacy, best.n_features_in_
        keep(ledger, released.receipt, best.release_.to_dict)
        return self

    def _candidates(self) -> tuple[list[dict[str, Any]], set[str]]:
        """The settings to try, and the parameters that any of them names."""
        if not isinstance(self.estimator, PrivateLinearModel):
            raise InvalidInput("PrivateSearch chooses among settings of one estimator of curvedp: pass it")
        if self.estimator.ledger is not None or self.estimator.random_state is not None:
            raise InvalidInput("pass `ledger` and `random_state` to the search, not to its estimator")
        try:
            candidates = list(ParameterGrid(self.grid))
        except (TypeError, ValueError):
            raise InvalidInput('grid must map parameters to lists, such as {"alpha": [0.1, 1, 10]}') from None
        named = {name for params in candidates for name in params}
        if unknown := sorted(named - set(self.estimator.get_params(deep=False))):
            said = catalogue.said(self.estimator)
            raise InvalidInput(f"{said} has no `{unknown[0]}`: choose another model")
        if fixed := sorted(named & FIXED):
            raise InvalidInput(
                f"{fixed[0]!r} belongs to the whole search, not to a candidate: leave it out of the grid"
            )
        return candidates, named

    def _plan(
        self, models: list[PrivateLinearModel], declared: list[Declared], changed: set[str], budget: Budget
    ) -> RefitsPlan | TrialsPlan:
        mechanisms = [model._mechanism_of(at) for model, at in zip(models, declared, strict=True)]
        problems, d, first = [at.problem for at in declared], declared[0].columns.d, mechanisms[0]
        if self.strategy not in ("auto", "refits", "trials"):
            raise InvalidInput(f'strategy must be "auto", "refits" or "trials", got {self.strategy!r}')
        if self.strategy != "trials" and changed <= FREE and isinstance(first, Recentered):
            return plan_refits(first, problems, _walk(models, problems[0].loss.name), d, budget)
        if self.strategy == "refits":
            raise InvalidInput(
                "refits change alpha, l1_ratio or constraint of the mechanism recentered, nothing else: pass "
                'strategy="trials"'
            )
        mean = float(len(models)) if self.trials is None else float(self.trials)
        return plan_trials(mechanisms, problems, d, budget, mean)

    @property
    def _repr_html_(self) -> Any:
        inner = super()._repr_html_
        return inner if not hasattr(self, "privacy_") else lambda: inner() + self.privacy_._repr_html_()

    def predict(self, X: TableLike) -> NDArray[Any]:
        """Predictions of the chosen model, as its `predict` gives them."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict(X))

    @available_if(lambda search: hasattr(search.estimator, "predict_proba"))
    def predict_proba(self, X: TableLike) -> FloatArray:
        """Class probabilities of the chosen model, in the order of `best_estimator_.classes_`."""
        check_is_fitted(self)
        return np.asarray(self.best_estimator_.predict_proba(X))


def _walk(models: list[PrivateLinearModel], loss: str) -> int:
    """The candidate whose penalty the one fit has: the middle one, or where curvature changes the least one.

    The model of a quadratic loss serves weaker penalties as well as stronger ones, and a penalised fit is
    steadier. Of other losses the curvature is known as an upper bound only, which errs less towards 0.
    """
    order = sorted(range(len(models)), key=lambda j: getattr(models[j], "alpha", 0.0))
    return order[len(order) // 2] if loss in QUADRATIC else order[0]
