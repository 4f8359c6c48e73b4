"""All answers of a release together, against what its (ε, δ) allows, without the library's accounting.

Gaussian answers: the shifts add in squares. Pure ones: the losses add. Where a curvature or a minimiser has a
law of its own, δ(ε) is the mean of (1 − e^{ε−L})₊ over exact log-ratios L of what was answered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import optimize, special

from curvedp.arrays import FloatArray
from curvedp.auditing.replay import Run, replay
from curvedp.budget import Budget
from curvedp.ensembles import Wishart
from curvedp.plans import Plan
from curvedp.privacy.guarantee import Guarantee
from curvedp.transcript import CurvedMinimum, LinearMinimum, NoisyCurvature

ROUNDING = 1e-9  # by which a share may be exceeded: sums in double precision
_DRAWS = 10_000  # of a curvature whose law is known
_DEVIATIONS = 6.0  # of an estimated δ above the claimed one that refute it
_ESTIMATED = 0.02  # by which an estimated share may be exceeded
_LEVELS = 0.0, 0.25, 0.5, 1.0, 1.5, 2.0  # ε at which curves are compared, in units of the promised one
_LEAST_DELTA = 1e-3  # that so many transcripts show
_LARGEST = 700.0  # ε


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighbouring tables."""

    name: str
    left: Any
    right: Any


@dataclass(frozen=True, eq=False)
class Case:
    """A plan, the neighbouring tables it is tried on, and what is made of a table and of a released value.

    `trials`: the plan is one of so many trials on average, of which the best leaves (T-1). `sampled`: at this
    rate records are sampled on the way; shares are those of a record that is in the sample.
    """

    name: str
    plan: Plan[Any, Any]
    pairs: Sequence[Pair]
    claimed: tuple[float, float] | None = None
    read: Callable[[Any], Any] = field(default=lambda table: table)
    document: Callable[[Any], Any] = field(default=lambda value: value)
    trials: float = 0.0
    sampled: float = 0.0

    @property
    def budget(self) -> Budget:
        """What is promised; the ledger's or the model file's words count, where they were passed."""
        guarantee = self.plan.guarantee
        return Budget(*(self.claimed or (guarantee.epsilon, guarantee.delta)))

    @property
    def stated(self) -> Guarantee:
        """The guarantee whose parameters state the shifts of answers."""
        inner: Guarantee = getattr(self.plan, "inner", self.plan).guarantee
        return inner

    def release(self, table: Any, random: np.random.Generator) -> Any:
        """The shipped code from the raw table to what leaves."""
        return self.document(self.plan.release(self.read(table), random))


@dataclass(frozen=True, eq=False)
class Total:
    """What all answers tell on a pair, in units of what (ε, δ) allows; and what is wrong with it."""

    share: float
    pair: str = ""
    by: str = ""
    problems: tuple[str, ...] = ()


def totals(
    case: Case, runs: Sequence[tuple[str, Run]], transcripts: int, random: np.random.Generator
) -> tuple[list[Total], list[Run]]:
    """Of the runs that tell most; and the further runs that were made for it."""
    sound = [(pair, run) for pair, run in runs if not run.differs]
    laws = {type(law) for _, run in sound for law, _ in run.answers}
    if case.sampled:
        return [], []
    if laws & {LinearMinimum, CurvedMinimum}:
        return _by_transcripts(case, transcripts, random)
    if NoisyCurvature in laws:
        telling = sorted(sound, key=lambda found: -_shift(found[1]))[:4]
        return [_by_curvature(case, *found, random) for found in telling], []
    return [_added(case, *found, random) for found in sound], []


def _shift(run: Run) -> float:
    """√Σ‖q − q'‖²/σ² of the Gaussian answers."""
    return math.hypot(*(law.distance(other, value) for law, value, other in run.pairs if law.unit == "μ"))


def _added(case: Case, pair: str, run: Run, random: np.random.Generator) -> Total:
    """Gaussian shifts, or losses of pure answers."""
    budget, units = case.budget, {law.unit for law, _ in run.answers}
    if units <= {"μ"}:
        by, share = "shift", _shift(run) / allowed_shift(budget, case.trials) if run.answers else 0.0
    elif units == {"ε"} and budget.delta == 0:
        losses = [law.distance(other, value) for law, value, other in run.pairs]
        by, share = "loss", math.fsum(losses) / budget.epsilon
    else:  # at worst each pure answer says "yes" or "no", wrongly with probability 1/(1 + e^ε)
        sizes = np.array([law.distance(o, value) for law, value, o in run.pairs if law.unit == "ε"])
        signs = np.where(random.random((_DRAWS, len(sizes))) < special.expit(sizes), 1.0, -1.0)
        return _curve(case, pair, "losses of pure answers", signs @ sizes, _shift(run))
    wrong = f"all answers together have {share:.4g} times the {by} that (ε, δ) allows, on {pair}"
    return Total(share, pair, by, (wrong,) if share > 1 + ROUNDING else ())


def _by_curvature(case: Case, pair: str, run: Run, random: np.random.Generator) -> Total:
    """Log-ratios of many draws of the curvature, and the Gaussian shift of everything beside it."""
    own, other = next(
        (law, other)
        for law, _, other in run.pairs
        if isinstance(law, NoisyCurvature) and isinstance(other, NoisyCurvature)
    )
    d = len(own.query)
    draws = max(_DRAWS // math.ceil(d / 5), 500)  # few columns show as much as many
    values = own.query + own.sigma2 * (Wishart(d, own.m).sample(random, draws) - own.m * np.eye(d))
    losses = own.log_densities(values) - other.log_densities(values)
    return _curve(case, pair, f"log-ratios of {draws} curvatures", losses, _shift(run))


def _by_transcripts(
    case: Case, transcripts: int, random: np.random.Generator
) -> tuple[list[Total], list[Run]]:
    """Log-ratios of many transcripts of the pair whose ratios vary most, from either of its tables."""
    best, made = [replace(p, left=case.read(p.left), right=case.read(p.right)) for p in case.pairs], []
    for n, kept in ((8, 4), (40, 1)):
        runs = [_transcripts(case, pair, n, random) for pair in best]
        spread = [max(np.std([run.log_ratio for run in half]) for half in halves) for halves in runs]
        best = [best[i] for i in np.argsort(spread)[::-1][:kept]]
    size = int(getattr(case.plan, "d", 1))
    transcripts = max(transcripts // math.ceil(size / 5), 100)  # few columns show as much as many
    halves = _transcripts(case, best[0], transcripts, random)
    by = f"log-ratios of {transcripts} transcripts"
    for half in halves:
        made += half
    losses = [np.array([run.log_ratio for run in half]) for half in halves]
    return [_curve(case, best[0].name, by, half, 0.0) for half in losses], made


def _transcripts(case: Case, pair: Pair, n: int, random: np.random.Generator) -> list[list[Run]]:
    sides = (pair.left, pair.right), (pair.right, pair.left)
    return [[replay(case.plan.release, *side, random) for _ in range(n // 2)] for side in sides]


def _curve(case: Case, pair: str, by: str, losses: FloatArray, shift: float) -> Total:
    """δ(ε) at several levels, and the ε at which it is the promised δ."""
    budget, problems = case.budget, []
    for level in _LEVELS:
        at = level * budget.epsilon
        allowed = case.plan.guarantee.delta_at(at) if case.claimed is None else budget.delta
        if (level != 1.0 and case.claimed is not None) or allowed < _LEAST_DELTA or case.trials:
            continue
        each = hockey_stick(at - losses, shift)
        mean, error = float(np.mean(each)), float(np.std(each)) / math.sqrt(len(each))
        if mean - _DEVIATIONS * error > allowed:
            problems.append(f"δ({at:g}) is {mean:.3g} ± {error:.2g} and not {allowed:.3g}, on {pair}")
    share = _needed_epsilon(losses, shift, budget.delta) / budget.epsilon
    if case.trials:  # a trial has its own, smaller part

        def of_trial(epsilon: float) -> float:
            return float(np.mean(hockey_stick(epsilon - losses, shift)))

        delta = max(of_best(of_trial, budget.epsilon, case.trials), 1e-300)
        share = _shift_with(budget.epsilon, delta, case.trials) / allowed_shift(budget, case.trials)
        if share > 1 + _ESTIMATED:
            problems.append(f"the best of the trials has δ = {delta:.3g}, on {pair}")
    return Total(share, pair, by, tuple(problems))


def _needed_epsilon(losses: FloatArray, shift: float, delta: float) -> float:
    """The ε at which these losses, and a Gaussian shift beside them, have this δ."""

    def excess(epsilon: float) -> float:
        return float(np.mean(hockey_stick(epsilon - losses, shift))) - delta

    if excess(0.0) <= 0 or excess(_LARGEST) > 0:
        return 0.0 if excess(0.0) <= 0 else math.inf
    return float(optimize.brentq(excess, 0.0, _LARGEST, xtol=1e-9))


# What (ε, δ) allows, computed without the library's accounting


def hockey_stick(epsilon: Any, mu: float) -> FloatArray:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) of a Gaussian shift μ; (1 − e^ε)₊ where μ = 0."""
    level = np.asarray(epsilon, dtype=np.float64)
    if mu == 0:
        return np.asarray(-np.expm1(np.minimum(level, 0.0)))
    with np.errstate(over="ignore"):
        lost = np.exp(level + special.log_ndtr(-mu / 2 - level / mu))
    return np.asarray(special.ndtr(mu / 2 - level / mu) - lost)


def of_best(trial: Callable[[float], float], epsilon: float, mean: float) -> float:
    """δ of the best of Poisson(mean) trials: mean·δ_Q(ε − mean·δ_Q(0)), δ_Q that of a trial (T-1)."""
    left = epsilon - mean * trial(0.0)
    at = trial(left) if left >= 0 else 1 - math.exp(left) * (1 - trial(-left))
    return mean * at


def allowed_shift(budget: Budget, trials: float = 0.0) -> float:
    """The Gaussian shift that (ε, δ) allows; of one trial, where the best of several leaves."""
    return _shift_with(budget.epsilon, budget.delta, trials) if budget.delta > 0 else 0.0


def _shift_with(epsilon: float, delta: float, trials: float) -> float:
    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        found = float(hockey_stick(epsilon, mu))
        if trials:
            found = of_best(lambda level: float(hockey_stick(level, mu)), epsilon, trials)
        return math.log(max(found, 1e-320)) - math.log(delta)

    low, high = math.log(1e-6), math.log(100.0 + 10.0 * math.sqrt(epsilon))
    if excess(low) > 0:
        return math.exp(low)
    return math.exp(float(optimize.brentq(excess, low, high, xtol=1e-13, rtol=1e-13)))
