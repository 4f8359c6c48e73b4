"""log p₁ − log p₀ of everything that the shipped code releases from two tables, whatever the plan.

A release from one table is recorded: the law of each answer, and the answer. It is replayed on the other
table with the same answers, so that whatever the plan makes of released numbers is the same in both; then the
two laws of every answer give the ratio of its densities. What cannot be replayed was released without noise,
and the ratio is ±∞: a value that changes although all answers are the same, a question that only one of the
tables leads to.

Draws that are no release (which candidate is tried next) are the same in both runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from curvedp import randomness
from curvedp.arrays import FloatArray
from curvedp.audit.accounted import CountedDraws
from curvedp.audit.fits.recentered import Drawn
from curvedp.audit.samplers import flat
from curvedp.plans import Plan, Source
from curvedp.witness import Law, Witness

S = TypeVar("S", bound=Source)
T = TypeVar("T")

_CERTAIN = 700.0  # the logarithm of a ratio that no test needs to exceed


class Apart(Exception):
    """One table leads to a question that the other one does not lead to."""


class Recording(Witness):
    """Keeps the law of every answer, and the answer."""

    def __init__(self, source: np.random.Generator) -> None:
        super().__init__(source.bit_generator)
        self.answers: list[tuple[Law[Any], Any]] = []

    def watch(self, law: Law[T], value: T) -> T:
        self.answers.append((law, copy(value)))  # a plan may go on with its own
        return value


class Replaying(Witness):
    """Gives the recorded answers again, and keeps the law that each would have had."""

    def __init__(self, source: np.random.Generator, answers: list[tuple[Law[Any], Any]]) -> None:
        super().__init__(source.bit_generator)
        self.answers = answers
        self.laws: list[Law[Any]] = []

    def watch(self, law: Law[T], value: T) -> T:
        index = len(self.laws)
        if index >= len(self.answers):
            raise Apart
        self.laws.append(law)
        recorded, answer = self.answers[index]
        if type(law) is not type(recorded) or np.asarray(answer).shape != np.asarray(value).shape:
            raise Apart
        given: T = copy(answer)
        return given


@dataclass(frozen=True, eq=False)
class Transcript:
    """What one release asked and answered on its own table, and what it would have asked on the other one."""

    answers: list[tuple[Law[Any], Any]]
    others: list[Law[Any]]
    value: FloatArray  # what leaves
    same: bool  # whether the other table gives that, too, once the answers are the same

    @property
    def terms(self) -> Iterator[float]:
        """log p(answer | own table) − log p(answer | other table) of each answer."""
        for (own, answer), other in zip(self.answers, self.others, strict=False):
            here, there = own.log_density(answer), other.log_density(answer)
            yield here - there if math.isfinite(here) else 0.0  # a draw beyond its own law: it says nothing

    @property
    def ratio(self) -> float:
        """log p(answers | own table) − log p(answers | other table)."""
        return math.fsum(self.terms) if self.same else math.inf


def transcript(plan: Plan[S, Any], own: S, other: S, random: np.random.Generator) -> Transcript:
    """Release from `own`, then again from `other` with the same answers."""
    again = deepcopy(random)
    recording = Recording(random)
    value = flat(plan.release(own, recording))
    replaying = Replaying(again, recording.answers)
    try:
        repeated = flat(plan.release(other, replaying))
    except Apart:
        return Transcript(recording.answers, replaying.laws, value, same=False)
    same = len(replaying.laws) == len(recording.answers) and np.array_equal(repeated, value, equal_nan=True)
    return Transcript(recording.answers, replaying.laws, value, same)


@dataclass(frozen=True, eq=False)
class Replayed(CountedDraws, Generic[S]):
    """The log-likelihood ratio of all releases of a plan between two tables, one release at a time."""

    plan: Plan[S, Any]
    tables: tuple[S, S]
    slow: ClassVar[bool] = True

    def draw(self, side: int, n: int, seed: int) -> Drawn:
        """n fresh releases from one table: what leaves, and log p₁ − log p₀."""
        own, other = self.tables[side], self.tables[1 - side]
        sign = 1.0 if side == 1 else -1.0
        random = randomness.generator(seed)
        runs = [transcript(self.plan, own, other, random) for _ in range(n)]
        size = max((len(run.value) for run in runs), default=0)
        theta = [run.value if len(run.value) == size else np.full(size, np.nan) for run in runs]
        ratio = np.clip([run.ratio for run in runs], -_CERTAIN, _CERTAIN)
        return Drawn(np.array(theta).reshape(n, size), sign * ratio)
