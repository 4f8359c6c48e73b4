"""All answers of a release together, against what its (ε, δ) allows, without the library's accounting.

Gaussian answers: the shifts add in squares. Pure ones: the losses add. Where a curvature or a minimiser has a
law of its own, δ(ε) is the mean of (1 − e^{ε−L})₊ over exact log-ratios L of what was answered.
"""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fractions import Fraction
from logging.handlers import BufferingHandler
from typing import Any

import numpy as np
from scipy import optimize, special

from curvedp.arrays import FloatArray
from curvedp.plans import Plan
from curvedp.privacy.budget import Budget
from curvedp.transcript import Law, Listener, Minimum, Tried

# A release, and the same release from a neighbouring table with the same answers.
#
# The shipped code runs twice. On its own table every answer is kept with the law that it was drawn from; on
# the other table the same answers are given, and the code states the laws that they would have had there.
# Whatever a plan makes of its answers is then the same in both runs: what still differs left without noise.

_CERTAIN = 700.0  # the logarithm of a ratio, and an ε, that no test needs to exceed
_PLAIN = str, bytes, bool, int, float, complex, Fraction, np.generic, type(None)


@dataclass(frozen=True, eq=False)
class Run:
    """The answers of one release, their laws on both tables, and what differs all the same."""

    answers: list[tuple[Law, Any]]
    others: list[Law]
    differs: str = ""

    @property
    def pairs(self) -> Iterator[tuple[Law, Any, Law]]:
        """Own law, answer, law on the other table."""
        return ((law, value, other) for (law, value), other in zip(self.answers, self.others, strict=False))

    @property
    def log_ratio(self) -> float:
        """log p(answers | own table) − log p(answers | other table), within ±700; 0 beyond the own law."""
        here = sum(law.log_density(value) for law, value, _ in self.pairs)
        there = sum(other.log_density(value) for _, value, other in self.pairs)
        return min(max(here - there, -_CERTAIN), _CERTAIN) if here > -math.inf else 0.0


def replay(release: Callable[[Any, Listener], Any], own: Any, other: Any, random: np.random.Generator) -> Run:
    """`release(own, random)`, then the same from `other` with the same answers."""
    again = deepcopy(random)
    recording = Listener(random)
    value, said = _outcome(lambda: release(own, recording))
    replaying = Listener(again, recording.answers)
    value_there, said_there = _outcome(lambda: release(other, replaying))
    laws = [law for law, _ in replaying.answers]
    differs = _said(said, said_there) or _asked(recording.answers, laws) or _differs(value, value_there)
    return Run(recording.answers, laws, differs)


def _outcome(run: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What a run returns, None where it raises; and what else leaves: its error, warnings and log records."""
    value, said, root, own = None, list[str](), logging.getLogger(), logging.getLogger("curvedp")
    heard, levels = BufferingHandler(sys.maxsize), (root.level, own.level)
    root.addHandler(heard)
    root.setLevel(logging.INFO)
    own.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                value = run()
            except Exception as error:  # a refusal leaves, too
                said = [f"{type(error).__name__}: {error}"]
    finally:
        root.removeHandler(heard)
        root.setLevel(levels[0])
        own.setLevel(levels[1])
    said += [f"{warning.category.__name__}: {warning.message}" for warning in caught]
    # What numba compiles, and when, is the same for every table.
    logged = [record for record in heard.buffer if not record.name.startswith("numba")]
    return value, [*(f"log record {record.name}: {record.getMessage()}" for record in logged), *said]


def _asked(answers: list[tuple[Law, Any]], laws: list[Law]) -> str:
    """Where the two runs ask for other things, or with other noise; "" where they do not."""
    for index, ((own, _), other) in enumerate(zip(answers, laws, strict=False)):
        if type(own) is not type(other):
            return f"question {index + 1} is another one on the other table"
        for name in (part.name for part in fields(own)):  # type: ignore[arg-type]
            here, there = getattr(own, name), getattr(other, name)
            if isinstance(here, np.ndarray):
                here, there = here.shape, np.shape(there)
            if isinstance(here, (*_PLAIN, tuple)) and _shapes(here) != _shapes(there):
                return f"{name} of answer {index + 1} ({own.name or type(own).__name__}) depends on the table"
    if len(answers) != len(laws):
        return f"{len(answers)} answers on one table, {len(laws)} on the other"
    return ""


def _shapes(value: Any) -> str:
    """A plain value as it is; of arrays, which are queries, their shapes."""
    several = isinstance(value, tuple) and any(isinstance(part, np.ndarray) for part in value)
    return repr([part.shape for part in value] if several else value)


def _said(here: list[str], there: list[str]) -> str:
    """An error, a warning or a log record of one run only; "" where there is none."""
    if here == there:
        return ""
    odd = [words for words in here + there if (words in here) != (words in there)]
    return f"said on one table only: {(odd or here + there)[0]}"


def _differs(here: Any, there: Any) -> str:
    """A part of what is returned that is not the same; "" where all is."""
    own, other = dict(leaves(here)), dict(leaves(there))
    for path in own.keys() | other.keys():
        if own.get(path) != other.get(path):
            return f"{path or 'the value'} differs though all answers are the same"
    return ""


def leaves(value: Any, path: str = "", within: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every number and text of a value by where it is, through dataclasses, collections and objects."""
    if isinstance(value, _PLAIN):
        yield path, f"{type(value).__name__} {value!r}"
    elif isinstance(value, np.ndarray) and value.dtype.kind != "O":
        yield path, (value.dtype.str, value.shape, value.tobytes())
    elif isinstance(value, type) or (callable(value) and not hasattr(value, "__dict__")):
        yield path, getattr(value, "__qualname__", "")
    elif id(value) not in within:
        inside = (*within, id(value))
        if isinstance(value, Mapping):
            parts = ((f"[{key!r}]", part) for key, part in value.items())
        elif isinstance(value, list | tuple | np.ndarray):
            parts = ((f"[{i}]", part) for i, part in enumerate(value))
        elif isinstance(value, set | frozenset):
            parts = ((f"[{i}]", part) for i, part in enumerate(sorted(map(repr, value))))
        else:
            own = {f.name: getattr(value, f.name) for f in fields(value)} if is_dataclass(value) else {}
            parts = ((f".{name}", part) for name, part in (own | getattr(value, "__dict__", {})).items())
        yield path, type(value).__name__
        for name, part in parts:
            yield from leaves(part, path + name, inside)


ROUNDING = 1e-9  # by which a share may be exceeded: sums in double precision
_DRAWS = 10_000  # of a curvature whose law is known
_DEVIATIONS = 6.0  # of an estimated δ above the claimed one that refute it
_ESTIMATED = 0.02  # by which an estimated share may be exceeded
_LEVELS = 0.0, 0.25, 0.5, 1.0, 1.5, 2.0  # ε at which curves are compared, in units of the promised one
_LEAST_DELTA = 1e-3  # that so many transcripts show


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
    laws = [law for _, run in sound for law, _ in run.answers]
    if case.sampled:
        return [], []
    if any(isinstance(law, Minimum) for law in laws):
        return _by_transcripts(case, transcripts, random)
    if any(isinstance(law, Tried) for law in laws):
        telling = sorted(sound, key=lambda found: -_shift(found[1]))[:4]
        return [_by_ratios(case, *found, random) for found in telling], []
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


def _by_ratios(case: Case, pair: str, run: Run, random: np.random.Generator) -> Total:
    """Log-ratios of many draws of one answer, and the Gaussian shift of everything beside it."""
    tried = ((law, other) for law, _, other in run.pairs if isinstance(law, Tried))
    losses = next(law.log_ratios(other, _DRAWS, random) for law, other in tried)
    return _curve(case, pair, f"log-ratios of {len(losses)} curvatures", losses, _shift(run))


def _by_transcripts(
    case: Case, transcripts: int, random: np.random.Generator
) -> tuple[list[Total], list[Run]]:
    """Log-ratios of many transcripts of the pair whose ratios vary most, from either of its tables."""
    best = [replace(p, left=case.read(p.left), right=case.read(p.right)) for p in case.pairs]
    for n, kept in ((8, 4), (40, 1)):
        runs = [_transcripts(case, pair, n, random) for pair in best]
        spread = [max(np.std([run.log_ratio for run in half]) for half in halves) for halves in runs]
        best = [best[i] for i in np.argsort(spread)[::-1][:kept]]
    size = int(getattr(case.plan, "d", 1))
    transcripts = max(transcripts // math.ceil(size / 5), 100)  # few columns show as much as many
    halves = _transcripts(case, best[0], transcripts, random)
    by = f"log-ratios of {transcripts} transcripts"
    losses = [np.array([run.log_ratio for run in half]) for half in halves]
    return [_curve(case, best[0].name, by, half, 0.0) for half in losses], [*halves[0], *halves[1]]


def _transcripts(case: Case, pair: Pair, n: int, random: np.random.Generator) -> list[list[Run]]:
    sides = (pair.left, pair.right), (pair.right, pair.left)
    return [[replay(case.plan.release, *side, random) for _ in range(n // 2)] for side in sides]


def _curve(case: Case, pair: str, by: str, losses: FloatArray, shift: float) -> Total:
    """δ(ε) at several levels, and the ε at which it is the promised δ."""
    budget, problems = case.budget, []

    def delta_at(epsilon: float) -> float:
        return float(np.mean(hockey_stick(epsilon - losses, shift)))

    for level in _LEVELS:
        at = level * budget.epsilon
        allowed = case.plan.guarantee.delta_at(at) if case.claimed is None else budget.delta
        if (level != 1.0 and case.claimed is not None) or allowed < _LEAST_DELTA or case.trials:
            continue
        each = hockey_stick(at - losses, shift)
        mean, error = float(np.mean(each)), float(np.std(each)) / math.sqrt(len(each))
        if mean - _DEVIATIONS * error > allowed:
            problems.append(f"δ({at:g}) is {mean:.3g} ± {error:.2g} and not {allowed:.3g}, on {pair}")
    if case.trials:  # a trial has its own, smaller part
        delta = max(of_best(delta_at, budget.epsilon, case.trials), 1e-300)
        share = _shift_with(budget.epsilon, delta, case.trials) / allowed_shift(budget, case.trials)
        if share > 1 + _ESTIMATED:
            problems.append(f"the best of the trials has δ = {delta:.3g}, on {pair}")
    elif delta_at(0.0) <= budget.delta or delta_at(_CERTAIN) > budget.delta:
        share = 0.0 if delta_at(0.0) <= budget.delta else math.inf
    else:
        found = optimize.brentq(lambda e: delta_at(e) - budget.delta, 0.0, _CERTAIN, xtol=1e-9)
        share = float(found) / budget.epsilon
    return Total(share, pair, by, tuple(problems))


def hockey_stick(epsilon: Any, mu: float) -> FloatArray:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) of a Gaussian shift μ; (1 − e^ε)₊ where μ = 0.

    Written here again, since an audit does not rest on the library's accounting.
    """
    level = np.asarray(epsilon, dtype=np.float64)
    if mu == 0:
        return np.asarray(-np.expm1(np.minimum(level, 0.0)))
    with np.errstate(over="ignore"):
        lost = np.exp(level + special.log_ndtr(-mu / 2 - level / mu))
    return np.asarray(special.ndtr(mu / 2 - level / mu) - lost)


def of_best(trial: Callable[[float], float], epsilon: float, mean: float) -> float:
    """δ of the best of Poisson(mean) trials: mean·δ_Q(ε − mean·δ_Q(0)), δ_Q that of a trial (T-1)."""
    left = epsilon - mean * trial(0.0)
    return mean * (trial(left) if left >= 0 else 1 - math.exp(left) * (1 - trial(-left)))


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
