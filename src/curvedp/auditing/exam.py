"""The exam of one release: every answer against its share, all of them against (ε, δ), the noise, the rest.

What is tried are pairs of neighbouring tables. A share that is exceeded, noise that is not what it says, or a
release that differs though all answers are the same refutes a premise of the theorem behind the promise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, groupby, pairwise
from typing import Any, Literal, get_args

import numpy as np
from markupsafe import Markup
from scipy import special, stats

from curvedp import randomness
from curvedp.arrays import FloatArray
from curvedp.auditing.totals import ROUNDING, Case, Run, Total, allowed_shift, replay, totals
from curvedp.pages import rendered
from curvedp.privacy.budget import Adjacency, Neighbours
from curvedp.transcript import Law, Minimum, Normal, Unit

# Is the noise what it says? Residuals of many answers against N(0, 1), alone and with each other.
#
# A run gives one vector of residuals for each answer, and all of them together are independent N(0, 1) where
# every answer was drawn from the law that was stated. Each test has a chance of about `LEVEL` to reject that.

LEVEL = 1e-6  # of one test: an audit of everything makes some thousand
_FAR = -float(special.ndtri(LEVEL / 2))  # |z| of N(0, 1) is larger with this probability
_FEW = 50  # runs in which draws that are used twice are looked for
_FINEST = 2.0**-31  # of the grids in units of their σ: as near as two equal draws are told apart


@dataclass(frozen=True, eq=False)
class Residual:
    """Of one answer in one run; `query` is what was asked and `step` the grid, in units of the noise."""

    run: int
    name: str
    z: FloatArray
    query: FloatArray
    step: float


def suspicions(residuals: Sequence[Residual]) -> Iterator[str]:
    """What is wrong with the noise, if anything: which answer, and how."""
    by_name = defaultdict(list)
    for one in residuals:
        if one.z.size:
            by_name[one.name].append(one)
    for name, some in {**by_name, "all answers": [r for r in residuals if r.z.size]}.items():
        z = np.concatenate([r.z for r in some]) if some else np.zeros(0)
        square, sizes = float(z @ z), stats.chi2(max(z.size, 1))
        if z.size >= 2 and 2.0 * min(sizes.sf(square), sizes.cdf(square)) < LEVEL:
            scale = math.sqrt(square / z.size)
            yield f"{name}: the noise has {scale:.3f} times the stated deviation, in {z.size} numbers"
        if z.size >= 50 and stats.kstest(z, special.ndtr).pvalue < LEVEL:
            yield f"{name}: the noise does not have the stated law, in {z.size} numbers"
        along = [float(r.z @ r.query) / float(np.linalg.norm(r.query)) for r in some if r.query.any()]
        if along and abs(sum(along)) > _FAR * math.sqrt(len(along)):
            yield f"{name}: the noise goes along with what was asked"
    yield from _together(by_name)
    yield from _twice([one for one in residuals if one.run < _FEW])


def _together(by_name: dict[str, list[Residual]]) -> Iterator[str]:
    """Noise of two answers of one run, or of one answer in two runs, that goes along with each other."""
    by_run = {
        name: {run: [one.z for one in group] for run, group in groupby(some, lambda one: one.run)}
        for name, some in by_name.items()
    }
    for (name, runs), (other, others) in combinations(by_run.items(), 2):
        if _go_along((np.hstack(runs[r]), np.hstack(others[r])) for r in runs.keys() & others.keys()):
            yield f"{name} and {other}: their noise goes along with each other"
    for name, runs in by_run.items():
        if _go_along(pair for answers in runs.values() for pair in pairwise(answers)):
            yield f"{name}: the noise of one answer goes along with that of the next"
        if _go_along(pairwise(np.hstack(answers) for answers in runs.values())):
            yield f"{name}: the noise of one run goes along with that of another"


def _go_along(both: Iterable[tuple[FloatArray, FloatArray]]) -> bool:
    """Whether Σ zz'/√Σz'², which is N(0, 1) where z is independent of z', is too large."""
    total = square = 0.0
    for one, other in both:
        n = min(one.size, other.size)
        total += float(one[:n] @ other[:n])
        square += float(other[:n] @ other[:n])
    return square > 0 and abs(total) > _FAR * math.sqrt(square)


def _twice(residuals: Sequence[Residual]) -> Iterator[str]:
    """Numbers that were drawn once and used twice: equal in size, which independent noise hardly ever is."""
    sizes = np.concatenate([np.abs(r.z) for r in residuals] or [np.zeros(0)])
    places = np.repeat(np.arange(len(residuals)), [r.z.size for r in residuals])
    near = np.repeat([2.0 * max(r.step, _FINEST) for r in residuals], [r.z.size for r in residuals])
    order = np.argsort(sizes)
    gap = np.diff(sizes[order])
    reach = np.maximum(near[order][1:], near[order][:-1])
    equal = np.flatnonzero(gap <= reach)
    # Neighbours in order are apart by less than t with probability about t·N·p, p the density of |z| there.
    density = 2.0 * np.exp(-np.square(sizes[order][1:]) / 2) / math.sqrt(2.0 * math.pi)
    expected = float(np.sum(np.minimum(reach * len(sizes) * density, 1.0)))
    if len(equal) > 1 and stats.poisson.sf(len(equal) - 1, expected) < LEVEL:
        first = residuals[places[order][equal[0]]], residuals[places[order][equal[0] + 1]]
        names = " and ".join(dict.fromkeys(f"{r.name} (run {r.run + 1})" for r in first))
        yield f"{names}: one draw of noise is used twice, {len(equal)} numbers in all"


@dataclass(frozen=True)
class Answer:
    """One answer of a plan: what is paid for it, and the largest part of that found on a pair of tables."""

    name: str
    unit: Unit
    share: float
    worst: float
    pair: str


@dataclass(frozen=True)
class Audit:
    """One release, tried on pairs of neighbouring tables.

    `answers` are those with a share of their own, and how much of it was found; `total` is all of them
    together, in units of what (ε, δ) allows, NaN where they have no total; `problems` are the premises that
    do not hold, with the pair.
    """

    name: str
    theorem: str
    adjacency: Adjacency
    epsilon: float
    delta: float
    pairs: tuple[str, ...]
    replays: int
    answers: tuple[Answer, ...]
    total: float
    total_pair: str
    total_by: str
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def verdict(self) -> Literal["held", "refuted"]:
        """*held*, on the pairs tried, or *refuted*."""
        return "refuted" if self.problems else "held"

    @property
    def worst(self) -> Answer | None:
        """The answer that comes nearest to its share."""
        return max(self.answers, key=lambda answer: answer.worst, default=None)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.problems:
            return f"Premise refuted: {self.problems[0]}."
        parts = []
        if self.worst is not None:
            parts.append(f"{self.worst.name} came to {self.worst.worst:.3f} of its share ({self.worst.pair})")
        if math.isfinite(self.total):
            parts.append(f"all answers to {self.total:.3f} of what (ε, δ) allows ({self.total_pair})")
        return f"Held on the {len(self.pairs)} pairs tried: {'; '.join(parts)}."

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts for JSON."""
        document = asdict(self) | {"verdict": self.verdict, "sentence": self.sentence}
        return document | {"total": self.total if math.isfinite(self.total) else None}


def audit_page(audits: Sequence[Audit]) -> str:
    """The HTML of one audit or of many."""
    words = {kind: Neighbours(kind).words for kind in get_args(Adjacency)}
    return rendered("audit.html", audits=audits, words=words, bar=_bar)


def _bar(share: float) -> Markup:
    """A share as a bar; the line is the whole of it, at two thirds of the width."""
    width = 100 * min(max(share, 0.0), 1.5) / 1.5
    return Markup(
        f'<svg aria-hidden="true"><rect x="0" y="3" width="{width:.2f}%" height="10" rx="2"/>'
        '<line class="zero" x1="66.67%" x2="66.67%" y1="0" y2="16"/></svg>'
    )


REPLAYS = 20
TRANSCRIPTS = 1_000  # where the law of all answers together has no closed form
_MISSED = 3.0  # η: what rounding adds to the certificate of a solve


def exam(case: Case, *, replays: int = REPLAYS, transcripts: int = TRANSCRIPTS, seed: int = 0) -> Audit:
    """Try the case on its pairs, each of them at least once and in both directions in turn."""
    random = randomness.generator(seed)
    turns = [case.pairs[i % len(case.pairs)] for i in range(max(replays, len(case.pairs)))]
    runs: list[tuple[str, Run]] = []
    for turn, pair in enumerate(turns):
        forth = (turn // len(case.pairs) + turn) % 2 == 0
        own, other = (pair.left, pair.right) if forth else (pair.right, pair.left)
        runs.append((pair.name, replay(case.release, own, other, random)))
    answers = _worst_answers(runs)
    found, more = totals(case, runs, transcripts, random)
    total = max(found, key=lambda t: t.share, default=Total(math.nan))
    problems = [*_problems(case, runs), *(words for t in found for words in t.problems)]
    problems += [
        f"{a.name}: a record moves it by {a.worst:.4g} times what the plan pays for, on {a.pair}"
        for a in answers
        if a.worst > 1 + ROUNDING
    ]
    problems += suspicions([*_residuals([run for _, run in runs] + more)])
    guarantee, budget = case.plan.guarantee, case.budget
    return Audit(
        name=case.name,
        theorem=guarantee.theorem,
        adjacency=guarantee.adjacency,
        epsilon=budget.epsilon,
        delta=budget.delta,
        pairs=tuple(dict.fromkeys(pair.name for pair in case.pairs)),
        replays=len(runs),
        answers=tuple(answers),
        total=total.share,
        total_pair=total.pair,
        total_by=total.by,
        problems=tuple(dict.fromkeys(problems)),
    )


def _name(law: Law) -> str:
    return law.name or type(law).__name__


def _worst_answers(runs: Sequence[tuple[str, Run]]) -> list[Answer]:
    """Of every answer by its name: the largest distance between the laws of two tables, over its share."""
    worst: dict[str, Answer] = {}
    for pair, run in runs:
        for law, value, other in run.pairs:
            if type(law) is not type(other) or not law.share > 0:
                continue
            name, share = _name(law), law.distance(other, value) / law.share
            if name not in worst or share > worst[name].worst:
                worst[name] = Answer(name, law.unit, law.share, share, pair)
    return list(worst.values())


def _problems(case: Case, runs: Sequence[tuple[str, Run]]) -> Iterator[str]:
    """What leaves beside the answers; answers that are not what was stated; shares that are too large."""
    allowed = allowed_shift(case.budget, case.trials)
    for pair, run in runs:
        if run.differs:
            yield f"{run.differs}, on {pair}"
        for law, value in run.answers:
            if law.log_density(value) == -math.inf:
                yield f"{_name(law)}: an answer that its stated law cannot give"
            if isinstance(law, Minimum) and not law.misses(value) < _MISSED:
                yield f"{_name(law)}: what was drawn does not lead to it, as the stated law says"
        shifts = [law.share for law, _ in run.answers if law.unit == "μ" and law.share > 0]
        if not case.sampled and (whole := math.hypot(*shifts)) > allowed * (1 + ROUNDING):
            yield f"the stated shifts have {whole:.6g} together, and (ε, δ) allows {allowed:.6g}"
        losses = [law.share for law, _ in run.answers if law.unit == "ε" and law.share > 0]
        if case.budget.delta == 0 and math.fsum(losses) > case.budget.epsilon * (1 + ROUNDING):
            yield f"the stated ε of all answers add up to {math.fsum(losses):.6g}"
    if case.sampled:
        sound = [[*run.pairs] for _, run in runs if not run.differs]
        yield from case.plan.sampling_problems(case.budget, case.sampled, sound)  # type: ignore[attr-defined]
    if not any(run.answers for _, run in runs):
        yield "no answer states its law: nothing of this release can be judged"


def _residuals(runs: Sequence[Run]) -> Iterator[Residual]:
    for index, run in enumerate(runs):
        for law, value in run.answers:
            z, sigma = law.residuals(value), float(getattr(law, "sigma", getattr(law, "scale", 1.0)))
            plain = isinstance(law, Normal) and not law.symmetric
            query = law.query.ravel() / sigma if plain and isinstance(law, Normal) else np.zeros(z.size)
            yield Residual(index, _name(law), z, query, float(getattr(law, "step", 0.0)) / sigma)
