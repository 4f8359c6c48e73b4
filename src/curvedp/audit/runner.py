"""The audit itself: pilot, choice, test.

    pilot    few fits on every pair: learn scores, rank pairs and scores by what they show
    choose   fits on the best few: the event of each direction with the best bound
    test     fresh fits: Clopper–Pearson bounds of the chosen events, corrected for their number

Every number follows from the seed, so an interrupted audit goes on from its state alone.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curvedp.audit import bounds
from curvedp.audit.accounted import attacked_pairs
from curvedp.audit.densities import Density, integrate
from curvedp.audit.fits import Backend, Device, backend
from curvedp.audit.fits.numba import Threads
from curvedp.audit.pairs import Pair
from curvedp.audit.pilot import DIRECTIONS, Search, promised
from curvedp.audit.power import POWER, needed_tests
from curvedp.audit.report import Attack, AuditReport
from curvedp.audit.samplers import density, layout_of
from curvedp.audit.state import Counts, State
from curvedp.audit.views import Candidate, Target
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.losses import Loss, Squared
from curvedp.mechanisms.base import Mechanism, make_plan
from curvedp.plans import Plan
from curvedp.problem import Problem

Progress = Callable[[int, int], None]  # fits done, fits planned

_PILOT_SHARE = 0.3
_PILOT_FITS, _SLOW_PILOT_FITS = 200_000, 10_000  # at most
_SHORT_PILOT_FITS = 600  # of slow fits where their number is left to the audit: some pairs, the likeliest
_MOST_FITS = 10_000_000  # that are made where their number is left to the audit
_AIM = 0.9  # of what the best attack reaches: what that number is expected to prove
_CHUNKS = 20  # at least; one in _CHOOSE chooses, the others test
_CHOOSE = 4
_CHUNK, _GPU_CHUNK, _SLOW_CHUNK = 2**15, 2**20, 10  # fits of one side at most, between two looks at the clock
_PROMISING = 3  # pairs that go on to sampling where integration has ranked them
_INTEGRATION_ERROR = 2e-3  # relative, of a δ found by quadrature across the jumps of φ''


def audit(
    mechanism: Mechanism,
    *,
    budget: Budget,
    features: int,
    problem: Problem | None = None,
    claimed: tuple[float, float] | None = None,
    fits: int | None = 100_000,
    confidence: float = 0.99,
    seed: int = 0,
    time_limit: float = math.inf,
    progress: Progress | None = None,
    resume_path: Path | str | None = None,
    device: Device = "auto",
) -> AuditReport:
    """Attack a mechanism on synthetic worst cases; no private data are needed.

    Parameters
    ----------
    mechanism : Mechanism
        What is attacked.
    budget : Budget
        The (ε, δ) that it is calibrated for.
    features : int
        Model columns of the attacked tables.
    problem : Problem, optional
        By default squared loss in the unit ball.
    claimed : tuple of float, optional
        The (ε, δ) to refute; by default those of the guarantee.
    fits : int or None, default=100_000
        About so many private fits are made in all. None: as many as show nearly all that the best attack can
        show, at most ten million.
    confidence : float, default=0.99
        Of all statements of the report together.
    seed : int, default=0
        Every number of the report follows from it.
    time_limit : float, optional
        Seconds after which the audit stops, wherever it is; its report then says that it is not complete.
    progress : callable, optional
        Called with the fits done and the fits planned.
    resume_path : path, optional
        What was found is kept there as the audit goes and read back at the start.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where many fits are made at once.

    Returns
    -------
    report : AuditReport
        Claimed against attacked; `report.verdict` is "refuted", "held" or "inconclusive".

    Examples
    --------
    >>> from curvedp import Budget
    >>> from curvedp.audit import audit
    >>> from curvedp.mechanisms import QOP
    >>> report = audit(QOP(), budget=Budget(1.0, 1e-3), features=1, fits=2000)
    >>> report.verdict, report.proved <= 1.0
    ('held', True)
    """
    if not features > 0:
        raise InvalidInput("an audit needs features > 0: the columns of the attacked tables")
    problem = problem or Problem(Squared())
    return audit_plan(
        make_plan(mechanism, problem, features, budget),
        problem,
        claimed=claimed,
        fits=fits,
        confidence=confidence,
        seed=seed,
        time_limit=time_limit,
        progress=progress,
        resume_path=resume_path,
        device=device,
    )


def audit_plan(
    plan: Plan[Any, Any],
    problem: Problem,
    *,
    claimed: tuple[float, float] | None = None,
    pairs: list[Pair] | None = None,
    fits: int | None = 100_000,
    confidence: float = 0.99,
    seed: int = 0,
    time_limit: float = math.inf,
    progress: Progress | None = None,
    resume_path: Path | str | None = None,
    device: Device = "auto",
) -> AuditReport:
    """`audit` for any plan that exists; `pairs` replaces the worst cases of the theory for `problem`."""
    if not ((fits is None or fits > 0) and 0 < confidence < 1):
        raise InvalidInput("an audit needs fits > 0 and 0 < confidence < 1")
    layout = layout_of(plan)
    if layout.domain != problem.domain:
        raise InvalidInput("the plan and the problem must have one domain: make both with it")
    clock = _Clock(fits, seed, time.monotonic(), time_limit, progress)
    guarantee = plan.guarantee
    epsilon, delta = claimed or (guarantee.epsilon, guarantee.delta)
    pairs = pairs or attacked_pairs(plan, problem)
    engine = backend(device)
    public = (guarantee.mechanism, guarantee.accounting, sorted(guarantee.parameters.items()))
    names = [pair.name for pair in pairs]
    key = repr((*public, problem, layout.d, epsilon, delta, fits, seed, type(engine).__name__, names))
    state = State.load(resume_path, key)
    try:
        targets = [Target.of(plan, pair, engine) for pair in pairs]
        clock.spend(state.pilot_fits)
        attacks: list[Attack] = []
        known = density(plan)
        if known is not None and layout.d == 1:
            found = [
                _by_integration(known, problem.loss, target, clock, epsilon, delta) for target in targets
            ]
            attacks = [attack for of_pair in found for attack in of_pair]
            # A pair without a grid comes first: so far apart are its datasets that sampling must tell them.
            strength = [max((a.epsilon for a in of_pair), default=math.inf) for of_pair in found]
            targets = [targets[i] for i in np.argsort(strength, kind="stable")[::-1][:_PROMISING]]

        def spend(n: int) -> bool:  # something must be ranked before the pilot may end early
            return clock.spend(n, 1.0 if state.resumable or not state.promises else _PILOT_SHARE)

        search = Search(targets, problem.loss, known, delta, clock.seeded, spend, state)
        ranked_by_ratio = all(target.accounted is not None for target in targets)
        keep = 1 if ranked_by_ratio or fits is None else 1 + (fits > 300_000) + (fits > 3_000_000)
        candidates = search.candidates(_pilot_fits(fits, targets), keep)
        alpha = (1 - confidence) / (4 * len(DIRECTIONS) * sum(len(c.views) for c in candidates or []) or 1)
        complete = False
        if candidates:
            complete = _Test(candidates, state, clock, _chunk(targets, engine)).run(
                _test_fits(fits, candidates, epsilon, delta, alpha, clock.done)
            )
            attacks += _verdicts(candidates, state, epsilon, delta, alpha)
    finally:
        state.save(now=True)
    reached = _reached(attacks, candidates or [], state, delta)
    return AuditReport(
        mechanism=guarantee.mechanism,
        accounting=guarantee.accounting,
        theorem=guarantee.theorem,
        adjacency=guarantee.adjacency,
        loss=problem.loss.name,
        features=layout.d,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        fits=clock.done,
        seconds=clock.elapsed,
        complete=complete,
        pairs_tried=len(pairs),
        attacks=tuple(sorted(attacks, key=lambda a: -a.epsilon)),
        reach=reached,
        needed=None if reached is None else _needed(reached, epsilon, delta, alpha, len(candidates or [1])),
    )


def _reached(attacks: list[Attack], candidates: list[Candidate], state: State, delta: float) -> float | None:
    """About the ε at δ that the best of these attacks would prove with endless fits; None: there is none."""
    found = [a.epsilon for a in attacks if not a.fits]
    views = [(candidate, view) for candidate in candidates for view in candidate.views]
    for (candidate, view), (choose, test) in zip(views, state.tested[1], strict=True):
        if view.optimal or not all(side.sum() for side in (*choose, *test)):
            found.append(candidate.reach)
        else:  # the pilot chose it for what it promised: fresh counts are not so hopeful
            found.append(promised(choose, test, delta))
    return max(found, default=None)


def _pilot_fits(fits: int | None, targets: list[Target]) -> int:
    slow = any(target.slow for target in targets)
    if fits is None:
        return _SHORT_PILOT_FITS if slow else _PILOT_FITS
    return min(int(_PILOT_SHARE * fits), _SLOW_PILOT_FITS if slow else _PILOT_FITS)


def _chunk(targets: list[Target], engine: Backend) -> int:
    if any(target.slow for target in targets):
        return _SLOW_CHUNK
    return _CHUNK if isinstance(engine, Threads) else _GPU_CHUNK


def _test_fits(
    fits: int | None, candidates: list[Candidate], epsilon: float, delta: float, alpha: float, done: int
) -> int:
    """How many fits choose and test: those asked for, or those that show nearly all that can be shown."""
    if fits is not None:
        return fits - done
    reached = min(max(c.reach for c in candidates), epsilon)
    tests = needed_tests(reached, delta, _AIM * reached, alpha) if reached > 0 else None
    return int(min(_MOST_FITS, _MOST_FITS if tests is None else _all_fits(tests, len(candidates))))


def _all_fits(tests: int, candidates: int) -> int:
    """Fits of both sides of every candidate, those that choose included, for so many that test a side."""
    return math.ceil(tests * 2 * candidates * _CHOOSE / (_CHOOSE - 1))


def _needed(reached: float, epsilon: float, delta: float, alpha: float, candidates: int) -> int | None:
    """Fits in all, the pilot's included, at which the best attack is expected to prove POWER of the claim."""
    tests = needed_tests(min(reached, epsilon), delta, POWER * epsilon, alpha)
    if tests is None:
        return None
    fits = _all_fits(tests, candidates)
    return fits + min(_PILOT_FITS, math.ceil(fits * _PILOT_SHARE / (1 - _PILOT_SHARE)))


def _by_integration(
    known: Density, loss: Loss, target: Target, clock: _Clock, epsilon: float, delta: float
) -> list[Attack]:
    """What the exact densities refute, in both directions, less the error of the quadrature.

    A few outputs say where the grid must lie; none when no grid holds both densities, or when time is up."""
    pair = target.pair
    if clock.elapsed > clock.time_limit:
        return []
    outputs = [target.draw(side, 400, clock.seeded("grid", pair.name, side)).theta for side in (0, 1)]
    low, middle, high = np.quantile(outputs, [0.16, 0.5, 0.84], axis=(1, 2))
    try:
        spread = float((high - low).min()) / 4
        grid = integrate(known, pair.left, pair.right, loss, float(middle.mean()), spread)
    except InvalidInput:
        return []
    attacks = []
    for which, (direction, _, _) in enumerate(DIRECTIONS):

        def at(level: float, which: int = which) -> float:
            return grid.deltas(level)[which] * (1 - _INTEGRATION_ERROR)

        below, above = 0.0, 50.0
        while above - below > 1e-4:
            level = (below + above) / 2
            below, above = (level, above) if at(level) > delta else (below, level)
        attacks.append(
            Attack(pair.name, direction, "exact densities", 0, math.nan, math.nan, below, at(epsilon))
        )
    return attacks


def _verdicts(
    candidates: list[Candidate], state: State, epsilon: float, delta: float, alpha: float
) -> list[Attack]:
    """What the test counts say of the events chosen on the other counts: two events, two bounds of each."""
    attacks = []
    views = [(candidate, view) for candidate in candidates for view in candidate.views]
    for (candidate, view), (choose, test) in zip(views, state.tested[1], strict=True):
        for name, p, q in DIRECTIONS:
            events = bounds.best_events(choose[p], choose[q], epsilon, delta, ordered=view.optimal)
            found = [bounds.evidence(test[p], test[q], event, epsilon, delta, alpha) for event in events]
            best = max(found, key=lambda f: f.epsilon)
            attacks.append(
                Attack(
                    pair=candidate.target.pair.name,
                    direction=name,
                    score=view.name,
                    fits=int(test[p].sum()),
                    p_lower=best.p_lower,
                    q_upper=best.q_upper,
                    epsilon=best.epsilon,
                    delta=max(f.delta for f in found),
                    sees=view.sees,
                )
            )
    return attacks


@dataclass(eq=False)
class _Clock:
    """The time, the seeds and the fits of one audit."""

    fits: int | None
    seed: int
    started: float
    time_limit: float
    progress: Progress | None
    done: int = 0
    planned: int = 0

    def spend(self, fits: int, share: float = 1.0) -> bool:
        """Count fits and report them; whether this share of the time is not over."""
        self.done += fits
        if fits and self.progress is not None:
            planned = max(self.fits or 0, self.planned)
            self.progress(min(self.done, planned) if planned else self.done, max(planned, self.done))
        return self.elapsed <= share * self.time_limit

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def seeded(self, *path: object) -> int:
        """A 63-bit seed that follows from the audit's seed and the path alone."""
        digest = hashlib.blake2b(repr((self.seed, *path)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1


@dataclass(frozen=True, eq=False)
class _Test:
    """Fresh fits of the chosen attacks, counted: step by step, a step being one side of one candidate."""

    candidates: list[Candidate]
    state: State
    clock: _Clock
    largest: int  # fits of a step

    def run(self, fits: int) -> bool:
        """Fill the counts; False when time ran out first."""
        steps_a_chunk = 2 * len(self.candidates)
        per_side = max(_CHUNKS, fits // steps_a_chunk)
        chunks = max(_CHUNKS, math.ceil(per_side / self.largest))
        size = math.ceil(per_side / chunks)
        self.clock.planned = self.clock.done + size * chunks * steps_a_chunk
        step, counts = self.state.tested
        fresh = [np.zeros((2, 2, v.cells.count), dtype=np.int64) for c in self.candidates for v in c.views]
        if not step:
            counts = fresh
        elif [c.shape for c in counts] != [c.shape for c in fresh]:
            raise InvalidInput(f"{self.state.path} does not hold the counts of this audit; pass another path")
        self.clock.spend(size * step)
        while step < chunks * steps_a_chunk:
            if not self.clock.spend(0):
                break
            counts, step = self._add(counts, step, size), step + 1
            self.state.tested = step, counts
            self.clock.spend(size)
            self.state.save()
        self.state.tested = step, counts
        return step == chunks * steps_a_chunk

    def _add(self, counts: list[Counts], step: int, size: int) -> list[Counts]:
        """The counts with those of one more step."""
        chunk, rest = divmod(step, 2 * len(self.candidates))
        index, side = divmod(rest, 2)
        phase = int(chunk % _CHOOSE != 0)
        added = self.candidates[index].counts(
            side, size, lambda part: self.clock.seeded("chunk", index, side, chunk, part)
        )
        first = sum(len(c.views) for c in self.candidates[:index])
        total = [*counts]
        for view, count in enumerate(added, first):
            total[view] = counts[view].copy()
            total[view][phase, side] += count
        return total
