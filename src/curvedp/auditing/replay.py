"""A release, and the same release from a neighbouring table with the same answers.

The shipped code runs twice. On its own table every answer is kept with the law that it was drawn from; on the
other table the same answers are given, and the code states the laws that they would have had there. Whatever
a plan makes of its answers is then the same in both runs: what still differs left without noise.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from curvedp.transcript import Law, Listener

_CERTAIN = 700.0  # the logarithm of a ratio that no test needs to exceed
_PLAIN = str, bytes, bool, int, float, complex, Fraction, np.generic, type(None)


class Recording(Listener):
    """Keeps the law of every answer, and the answer."""

    def __init__(self, source: np.random.Generator) -> None:
        super().__init__(source.bit_generator)
        self.answers: list[tuple[Law, Any]] = []

    def hear(self, law: Law, value: Any) -> Any:
        self.answers.append((law, copy(value)))  # a plan may go on with its own
        return value


class Replaying(Listener):
    """Gives the recorded answers again, and keeps the law that each would have had."""

    def __init__(self, source: np.random.Generator, answers: list[tuple[Law, Any]]) -> None:
        super().__init__(source.bit_generator)
        self.answers = answers
        self.laws: list[Law] = []

    def hear(self, law: Law, value: Any) -> Any:
        index = len(self.laws)
        self.laws.append(law)
        if index >= len(self.answers):
            return value
        recorded, answer = self.answers[index]
        same = type(law) is type(recorded) and np.shape(answer) == np.shape(value)
        return copy(answer) if same else value


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
    recording = Recording(random)
    here = outcome(lambda: release(own, recording))
    replaying = Replaying(again, recording.answers)
    there = outcome(lambda: release(other, replaying))
    said, asked = _said(here, there), _asked(recording.answers, replaying.laws)
    return Run(recording.answers, replaying.laws, said or asked or _differs(here.value, there.value))


@dataclass
class Outcome:
    """All that leaves a run: what it returns or raises, what it warns of and logs."""

    value: Any = None
    said: list[str] = field(default_factory=list)


class _Log(logging.Handler):
    def __init__(self, said: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("numba"):  # what it compiles, and when, is the same for every table
            self.said.append(f"log record {record.name}: {record.getMessage()}")


def outcome(run: Callable[[], Any]) -> Outcome:
    """Run, and keep all that leaves."""
    found, root, own = Outcome(), logging.getLogger(), logging.getLogger("curvedp")
    handler, levels = _Log(found.said), (root.level, own.level)
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    own.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found.value = run()
            except Exception as error:  # a refusal leaves, too
                found.said.append(f"{type(error).__name__}: {error}")
    finally:
        root.removeHandler(handler)
        root.setLevel(levels[0])
        own.setLevel(levels[1])
    found.said += [f"{warning.category.__name__}: {warning.message}" for warning in caught]
    return found


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


def _said(here: Outcome, there: Outcome) -> str:
    """An error, a warning or a log record of one run only; "" where there is none."""
    if here.said == there.said:
        return ""
    odd = [words for words in (*here.said, *there.said) if (words in here.said) != (words in there.said)]
    return f"said on one table only: {(odd or here.said + there.said)[0]}"


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
