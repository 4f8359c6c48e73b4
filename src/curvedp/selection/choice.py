"""What a private search releases."""

from __future__ import annotations

from dataclasses import dataclass

from curvedp.mechanisms.base import Estimate


@dataclass(frozen=True)
class Compared:
    """How much less a candidate loses per record than the reference, and the deviation of its noise."""

    improvement: float
    error: float


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen candidate (None: the public answer, since no trial was made) and its estimate.

    `compared` has an entry per candidate where all of them were compared, and is empty otherwise.
    """

    index: int | None
    estimate: Estimate
    compared: tuple[Compared, ...] = ()
