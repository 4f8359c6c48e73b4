"""The audit itself: pilot, choice, test.

    pilot    few fits on every pair: learn scores, rank pairs and scores by what they show
    choose   fits on the best few: the event of each direction with the best bound
    test     fresh fits: Clopper–Pearson bounds of the chosen events, corrected for their number

Every number follows from the seed, so an interrupted audit resumes from its counts alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from curvedp.audit import bounds
from curvedp.audit.densities import Density, integrate
from curvedp.audit.fits import Device, backend
from curvedp.audit.pairs import Pair, worst_pairs
from curvedp.audit.pilot import DIRECTIONS, Candidate, Counts, Search
from curvedp.audit.report import Attack, AuditReport
from curvedp.audit.samplers import Releases, Sampler, density, layout_of, pulls, sampler
from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.losses import Loss, Squared
from curvedp.mechanisms.base import Mechanism, make_plan
from curvedp.plans import Plan
from curvedp.problem import Problem

Progress = Callable[[int, int], None]  # fits done, fits planned

_PILOT_SHARE = 0.3
_CHUNKS = 20  # at least; one in _CHOOSE chooses, the others test
_CHOOSE = 4
_CHUNK = 2**20  # fits at most
_SLOW_CHUNK = 100  # the same, where fits are released one at a time
_SAVE_EVERY = 5.0  # seconds
_PROMISING = 3  # pairs that go on to sampling where integration has ranked them
_INTEGRATION_ERROR = 2e-3  # relative, of a δ found by quadrature across the jumps of φ''


def audit(
    mechanism: Mechanism,
    *,
    budget: Budget,
    features: int,
    problem: Problem | None = None,
    claimed: tuple[float, float] | None = None,
    fits: int = 100_000,
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
    fits : int, default=100_000
        About so many private fits are made in all.
    confidence : float, default=0.99
        Of all statements of the report together.
    seed : int, default=0
        Every number of the report follows from it.
    time_limit : float, optional
        Seconds after which the audit stops, its report then saying that it is not complete.
    progress : callable, optional
        Called with the fits done and the fits planned.
    resume_path : path, optional
        Counts are kept there as the audit goes and read back at the start.
    device : {"auto", "cpu", "cuda"}, default="auto"
        Where many fits are made at once.

    Returns
    -------
    report : AuditReport
        Claimed against attacked; `report.beaten` when an attack refutes the claim.

    Examples
    --------
    >>> from curvedp import Budget
    >>> from curvedp.audit import audit
    >>> from curvedp.mechanisms import QOP
    >>> report = audit(QOP(), budget=Budget(1.0, 1e-3), features=1, fits=2000)
    >>> report.beaten, report.epsilon_lower <= 1.0
    (False, True)
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
    fits: int = 100_000,
    confidence: float = 0.99,
    seed: int = 0,
    time_limit: float = math.inf,
    progress: Progress | None = None,
    resume_path: Path | str | None = None,
    device: Device = "auto",
) -> AuditReport:
    """`audit` for any plan that exists; `pairs` replaces the worst cases of the theory for `problem`."""
    if not (fits > 0 and 0 < confidence < 1):
        raise InvalidInput("an audit needs fits > 0 and 0 < confidence < 1")
    layout = layout_of(plan)
    if layout.domain != problem.domain:
        raise InvalidInput("the plan and the problem must have one domain: make both with it")
    features = layout.d
    started = time.monotonic()
    guarantee = plan.guarantee
    epsilon, delta = claimed or (guarantee.epsilon, guarantee.delta)
    pairs = pairs or worst_pairs(problem, features, pulls(plan))
    engine = backend(device)
    samplers = [sampler(plan, pair, engine) for pair in pairs]
    trial = _Trial(fits, seed, started, time_limit, progress)
    attacks: list[Attack] = []
    known = density(plan)
    targets = list(zip(pairs, samplers, strict=True))
    if known is not None and features == 1:
        found = [_by_integration(known, problem.loss, *target, trial, epsilon, delta) for target in targets]
        attacks = [attack for of_pair in found for attack in of_pair]
        # A pair without a grid comes first: its datasets are so far apart that sampling must tell them apart.
        strength = [max((a.epsilon for a in of_pair), default=math.inf) for of_pair in found]
        targets = [targets[i] for i in np.argsort(strength)[::-1][:_PROMISING]]
    # A cut pilot would choose by the clock, and a resumed audit must choose what the first one chose.
    spend = trial.spend if resume_path is None else trial.spend_always
    search = Search(targets, problem.loss, known, delta, trial.seeded, spend)
    candidates = search.candidates(int(_PILOT_SHARE * fits), keep=1 + (fits > 300_000) + (fits > 3_000_000))
    public = (guarantee.mechanism, guarantee.accounting, sorted(guarantee.parameters.items()))
    key = repr((*public, problem, features, epsilon, delta, fits, seed, [c.identity for c in candidates]))
    state = _State.load(resume_path, key, candidates)
    complete = trial.run(candidates, state)
    attacks += _verdicts(candidates, state, epsilon, delta, confidence)
    return AuditReport(
        mechanism=guarantee.mechanism,
        accounting=guarantee.accounting,
        theorem=guarantee.theorem,
        adjacency=guarantee.adjacency,
        loss=problem.loss.name,
        features=features,
        epsilon=epsilon,
        delta=delta,
        confidence=confidence,
        fits=trial.done,
        seconds=time.monotonic() - started,
        complete=complete,
        pairs_tried=len(pairs),
        attacks=tuple(sorted(attacks, key=lambda a: -a.epsilon)),
    )


def _by_integration(
    known: Density, loss: Loss, pair: Pair, source: Sampler, trial: _Trial, epsilon: float, delta: float
) -> list[Attack]:
    """What the exact densities refute, in both directions, less the error of the quadrature.

    A few outputs say where the grid must lie; none when no grid holds both densities."""
    outputs = [source.sample(side, 400, trial.seeded("grid", pair.name, side)) for side in (0, 1)]
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
    candidates: list[Candidate], state: _State, epsilon: float, delta: float, confidence: float
) -> list[Attack]:
    """What the test counts say of the events chosen on the other counts, jointly with `confidence`."""
    attacks = []
    alpha = (1 - confidence) / (2 * 2 * len(DIRECTIONS) * max(1, len(candidates)))  # two bounds of two events
    for candidate, (choose, test) in zip(candidates, state.counts, strict=True):
        for name, p, q in DIRECTIONS:
            events = bounds.best_events(choose[p], choose[q], epsilon, delta)
            found = [bounds.evidence(test[p], test[q], event, epsilon, delta, alpha) for event in events]
            best = max(found, key=lambda f: f.epsilon)
            attacks.append(
                Attack(
                    pair=candidate.pair.name,
                    direction=name,
                    score=candidate.score.name,
                    fits=int(test[p].sum()),
                    p_lower=best.p_lower,
                    q_upper=best.q_upper,
                    epsilon=best.epsilon,
                    delta=max(f.delta for f in found),
                )
            )
    return attacks


@dataclass(eq=False)
class _State:
    """Counts so far: counts[candidate][phase, side], phase 0 chooses and phase 1 tests."""

    path: Path | None
    key: str
    counts: list[Counts]
    chunk: int = 0
    saved: float = field(default_factory=time.monotonic)

    @classmethod
    def load(cls, path: Path | str | None, key: str, candidates: list[Candidate]) -> _State:
        """The counts at `path`, or none yet. A file of another audit is refused, not overwritten."""
        fresh = [np.zeros((2, 2, c.cells.count), dtype=np.int64) for c in candidates]
        state = cls(None if path is None else Path(path), key, fresh)
        if state.path is None or not state.path.exists():
            return state
        try:
            document = json.loads(state.path.read_text(encoding="utf-8"))
            counts = [np.array(c, dtype=np.int64) for c in document["counts"]]
            if document["key"] != key or [c.shape for c in counts] != [c.shape for c in fresh]:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise InvalidInput(
                f"{state.path} does not hold the counts of this audit; pass another path"
            ) from None
        state.counts, state.chunk = counts, int(document["chunk"])
        return state

    def save(self, *, now: bool = False) -> None:
        if self.path is None or not (now or time.monotonic() - self.saved > _SAVE_EVERY):
            return
        document = {"key": self.key, "chunk": self.chunk, "counts": [c.tolist() for c in self.counts]}
        temporary = self.path.with_name(self.path.name + ".part")
        temporary.write_text(json.dumps(document), encoding="utf-8")
        os.replace(temporary, self.path)
        self.saved = time.monotonic()


@dataclass(eq=False)
class _Trial:
    """The clock, the seeds and the fits of one audit."""

    fits: int
    seed: int
    started: float
    time_limit: float
    progress: Progress | None
    done: int = 0

    def run(self, candidates: list[Candidate], state: _State) -> bool:
        """Fill the counts chunk by chunk; False when time ran out first."""
        per_side = max(_CHUNKS, (self.fits - self.done) // (2 * len(candidates)))
        slow = any(isinstance(c.sampler, Releases) for c in candidates)
        chunks = max(_CHUNKS, math.ceil(per_side / (_SLOW_CHUNK if slow else _CHUNK)))
        size = math.ceil(per_side / chunks)
        self.spend_always(2 * size * state.chunk * len(candidates))
        while state.chunk < chunks:
            if self._elapsed > self.time_limit:
                state.save(now=True)
                return False
            phase = int(state.chunk % _CHOOSE != 0)
            for index, side in product(range(len(candidates)), (0, 1)):

                def seeds(part: int, path: tuple[int, ...] = (index, side, state.chunk)) -> int:
                    return self.seeded("chunk", *path, part)

                state.counts[index][phase, side] += candidates[index].counts(side, size, seeds)
                self.spend_always(size)
            state.chunk += 1
            state.save()
        state.save(now=True)
        return True

    def spend_always(self, fits: int) -> bool:
        """Count fits and report them."""
        self.done += fits
        if self.progress is not None:
            self.progress(min(self.done, self.fits), self.fits)
        return True

    def spend(self, fits: int) -> bool:
        """`spend_always`, and whether the pilot's share of the time is left."""
        return self.spend_always(fits) and self._elapsed <= _PILOT_SHARE * self.time_limit

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self.started

    def seeded(self, *path: object) -> int:
        """A 63-bit seed that follows from the audit's seed and the path alone."""
        digest = hashlib.blake2b(repr((self.seed, *path)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1
