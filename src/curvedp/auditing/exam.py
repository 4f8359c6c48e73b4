"""The exam of one release: every answer against its share, all of them against (ε, δ), the noise, the rest.

What is tried are pairs of neighbouring tables. A share that is exceeded, noise that is not what it says, or a
release that differs though all answers are the same refutes a premise of the theorem behind the promise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
from scipy import stats

from curvedp import randomness
from curvedp.auditing.replay import Run, replay
from curvedp.auditing.report import Answer, Audit
from curvedp.auditing.residuals import LEVEL, Residual, suspicions
from curvedp.auditing.totals import ROUNDING, Case, Total, allowed_shift, totals
from curvedp.privacy.guarantee import Guarantee
from curvedp.transcript import CurvedMinimum, Law, LinearMinimum, Normal

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
    names = [answer_names(run.answers, case.stated) for _, run in runs]
    answers = worst_answers(runs, names)
    found, more = totals(case, runs, transcripts, random)
    total = max(found, key=lambda t: t.share, default=Total(math.nan))
    problems = [*_problems(case, runs, names), *(words for t in found for words in t.problems)]
    problems += [
        f"{a.name}: a record moves it by {a.worst:.4g} times what the plan pays for, on {a.pair}"
        for a in answers
        if a.worst > 1 + ROUNDING
    ]
    problems += suspicions([*_residuals([run for _, run in runs] + more, case.stated)])
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


def answer_names(answers: list[tuple[Law, Any]], guarantee: Guarantee) -> list[str]:
    """What every answer is called: by itself, or as the public parameter that states its shift.

    Answers in a row that have a shift together, as rounds have, are called by the parameter of them all.
    """
    stated = {
        name: value
        for name, value in guarantee.parameters.items()
        if name.startswith("mu_") and isinstance(value, float) and value > 0
    }
    found: list[str] = []
    while len(found) < len(answers):
        law, _ = answers[len(found)]
        alike = [a.share for a, _ in answers[len(found) :]]
        count = next((i for i, share in enumerate(alike) if share != law.share), len(alike))
        if law.name or not law.share > 0:
            stated.pop(f"mu_{law.name}", None)
            found.append(law.name or type(law).__name__)
            continue
        for several in (1, count):
            whole = math.sqrt(several) * law.share
            match = [name for name, value in stated.items() if abs(value - whole) <= 1e-9 * whole]
            if match:
                stated.pop(match[0])
                found += [match[0].removeprefix("mu_").replace("_", " ")] * several
                break
        else:
            found.append("matrix" if isinstance(law, Normal) and law.symmetric else "sums")
    return found


def worst_answers(runs: Sequence[tuple[str, Run]], names: Sequence[list[str]]) -> list[Answer]:
    """Of every answer by its name: the largest distance between the laws of two tables, over its share."""
    worst: dict[str, Answer] = {}
    for (pair, run), called in zip(runs, names, strict=True):
        for (law, value, other), name in zip(run.pairs, called, strict=False):
            if type(law) is not type(other) or not law.share > 0:
                continue
            share = law.distance(other, value) / law.share
            if name not in worst or share > worst[name].worst:
                worst[name] = Answer(name, law.unit, law.share, share, pair)
    return list(worst.values())


def _problems(case: Case, runs: Sequence[tuple[str, Run]], names: Sequence[list[str]]) -> Iterator[str]:
    """What leaves beside the answers; answers that are not what was stated; shares that are too large."""
    allowed = allowed_shift(case.budget, case.trials)
    for (pair, run), called in zip(runs, names, strict=True):
        if run.differs:
            yield f"{run.differs}, on {pair}"
        for (law, value), name in zip(run.answers, called, strict=True):
            if law.log_density(value) == -math.inf:
                yield f"{name}: an answer that its stated law cannot give"
            if isinstance(law, LinearMinimum | CurvedMinimum) and not law.misses(value) < _MISSED:
                yield f"{name}: what was drawn does not lead to it, as the stated law says"
        shifts = [law.share for law, _ in run.answers if law.unit == "μ" and law.share > 0]
        if not case.sampled and (whole := math.hypot(*shifts)) > allowed * (1 + ROUNDING):
            yield f"the stated shifts have {whole:.6g} together, and (ε, δ) allows {allowed:.6g}"
        losses = [law.share for law, _ in run.answers if law.unit == "ε" and law.share > 0]
        if case.budget.delta == 0 and math.fsum(losses) > case.budget.epsilon * (1 + ROUNDING):
            yield f"the stated ε of all answers add up to {math.fsum(losses):.6g}"
    if case.sampled:
        yield from _sampling_problems(case, [run for _, run in runs if not run.differs])
    if not any(run.answers for _, run in runs):
        yield "no answer states its law: nothing of this release can be judged"


def _sampling_problems(case: Case, runs: Sequence[Run]) -> Iterator[str]:
    """Stated shifts of sampled rounds, composed by dp_accounting; how often the record was sampled."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    plds = [
        pld.from_gaussian_mechanism(
            1.0 / law.share, sampling_prob=case.sampled if law.name == "round" else 1.0
        )
        for law in {(law.name, law.share): law for law, _ in runs[0].answers}.values()
    ]
    times = Counter((law.name, law.share) for law, _ in runs[0].answers).values()
    whole = reduce(lambda a, b: a.compose(b), (p.self_compose(n) for p, n in zip(plds, times, strict=True)))
    if whole.get_delta_for_epsilon(case.budget.epsilon) > case.budget.delta:
        yield f"the stated shifts, sampled at {case.sampled:.3g}, cost more than (ε, δ)"
    moved = [law.distance(o, v) > 0 for run in runs for law, v, o in run.pairs if law.name == "round"]
    if stats.binomtest(sum(moved), len(moved), case.sampled, "greater").pvalue < LEVEL:
        yield f"a record is sampled in {np.mean(moved):.3g} of the rounds, and not in {case.sampled:.3g}"


def _residuals(runs: Sequence[Run], guarantee: Guarantee) -> Iterator[Residual]:
    for index, run in enumerate(runs):
        for (law, value), name in zip(run.answers, answer_names(run.answers, guarantee), strict=True):
            z, sigma = law.residuals(value), float(getattr(law, "sigma", getattr(law, "scale", 1.0)))
            plain = isinstance(law, Normal) and not law.symmetric
            query = law.query.ravel() / sigma if plain and isinstance(law, Normal) else np.zeros(z.size)
            yield Residual(index, name, z, query, float(getattr(law, "step", 0.0)) / sigma)
