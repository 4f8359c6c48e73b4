"""What every private computation is: a plan, public and calibrated, that releases one value from rows."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Budget
from curvedp.privacy.guarantee import Guarantee, Parameters

S_contra = TypeVar("S_contra", bound="Source", contravariant=True)
T_co = TypeVar("T_co", covariant=True)

USABLE = 0.75  # of the memory: the rest is for the system, the program and its tables
_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_LEAST_EPSILON = 1e-9  # claimed where δ alone covers everything: a promise has ε > 0


class Source(Protocol):
    """Private records behind a few reductions: `Rows` for a fit, the cells of a table for a check of it."""

    @property
    def layout(self) -> Hashable:
        """What is public about them; a plan is made for one layout."""


class Plan(Protocol[S_contra, T_co]):
    """Everything fixed before the data are touched. `curvedp.release.door.execute` runs it, nobody else."""

    @property
    def guarantee(self) -> Guarantee:
        """What a release under this plan promises."""

    @property
    def layout(self) -> Hashable:
        """The rows it was calibrated for: others are refused."""

    def accept(self, rows: S_contra) -> None:
        """Refuse, before the charge and from what is public about them, rows that cannot be released from.

        A plan whose arrays grow with the square of a public number also has `room`, their bytes.
        """

    def release(self, rows: S_contra, random: np.random.Generator) -> T_co:
        """The private value."""


@dataclass(frozen=True, eq=False)
class OfPlans:
    """What a plan that runs others, one after another, has from them."""

    plans: tuple[Plan[Any, Any], ...]

    @property
    def persons(self) -> bool:
        """Whether all of them bound what a person with several rows contributes (U-1)."""
        return all(getattr(plan, "persons", False) for plan in self.plans)

    @property
    def room(self) -> float:
        """One after another: the largest."""
        return room_of(self.plans)

    def accept(self, rows: Any) -> None:
        for plan in self.plans:
            plan.accept(rows)


@dataclass(frozen=True, eq=False)
class Composed(OfPlans):
    """Plans that were all fixed beforehand, released together under one guarantee; see `compose`."""

    delta: float

    @property
    def layout(self) -> Hashable:
        return self.plans[0].layout

    @cached_property
    def guarantee(self) -> Guarantee:
        from curvedp.privacy.profiles import composed_profile

        parts = [plan.guarantee for plan in self.plans]
        profile = composed_profile(parts, self.delta)
        epsilon = max(profile.epsilon_at(self.delta), _LEAST_EPSILON)
        return Guarantee(
            budget=Budget(epsilon, self.delta),
            neighbours=parts[0].neighbours,
            mechanism=f"{len(parts)} together: {', '.join(dict.fromkeys(g.mechanism for g in parts))}",
            accounting="pld",
            theorem=f"composition of {', '.join(dict.fromkeys(g.theorem for g in parts))}",
            parameters=Parameters(),
            profile=profile,
            private=all(g.private for g in parts),
        )

    def release(self, rows: Source, random: np.random.Generator) -> tuple[Any, ...]:
        return tuple(plan.release(rows, random) for plan in self.plans)


def memory() -> float:
    """Bytes that this process may have at all: of the machine, its container, its limit; infinite if unknown.

    Not what is free: that depends on the table, whose size may be private.
    """
    found = [math.inf]
    with suppress(AttributeError, ValueError, OSError):
        found.append(float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES"))
    for file in _CGROUPS:
        with suppress(ValueError, OSError):  # it may say "max"
            found.append(float(Path(file).read_text(encoding="ascii")))
    with suppress(ImportError):  # no such limits on Windows
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        found += [float(soft)] if soft != resource.RLIM_INFINITY else []
    return min(found)


def require_room(room: float) -> None:
    """Refuse what needs more memory than there is; columns, levels and the machine are public."""
    whole = memory()
    if room > USABLE * whole:
        raise InvalidInput(
            f"so many columns and levels take about {_gib(room)} of memory, and this process may have "
            f"{_gib(whole)}: declare fewer columns or levels, or use a larger machine. Nothing was charged"
        )


def _gib(size: float) -> str:
    return f"{size / 2**30:,.0f} GiB" if size >= 10 * 2**30 else f"{size / 2**30:.2g} GiB"


def room_of(plans: Sequence[object]) -> float:
    """The most bytes that one of them states for its arrays; 0 where none states any."""
    return max((float(getattr(plan, "room", 0.0)) for plan in plans), default=0.0)


def compose(plans: Sequence[Plan[Any, Any]], *, delta: float) -> Composed:
    """Several plans as one that costs less than their sum: their privacy loss distributions are composed.

    Parameters
    ----------
    plans : sequence of Plan
        All for the same rows, every parameter fixed before the first release is seen.
    delta : float
        The δ of the whole.

    Returns
    -------
    plan : Composed
        Releases the tuple of what the plans release. Its guarantee states the ε of the whole.

    Examples
    --------
    >>> from curvedp import Budget, Problem
    >>> from curvedp.problems.losses import Logistic
    >>> from curvedp.mechanisms import Recentered
    >>> from curvedp.plans import compose
    >>> plan = Recentered().plan(Problem(Logistic()), 2, Budget(0.5, 1e-7))
    >>> together = compose([plan] * 4, delta=1e-6)
    >>> round(together.guarantee.epsilon, 3)  # 4 · 0.5 one after another
    0.935
    """
    if not plans:
        raise InvalidInput("pass at least one plan to compose")
    if not 0.0 < delta < 1.0:
        raise InvalidInput(f"the delta of a composition must lie strictly between 0 and 1, got {delta!r}")
    if any(plan.layout != plans[0].layout for plan in plans):
        raise InvalidInput("plans are composed for the same rows: one domain, one number of columns")
    composed = Composed(tuple(plans), delta)
    _ = composed.guarantee  # what cannot be promised is refused here, not when it is to be charged
    return composed
