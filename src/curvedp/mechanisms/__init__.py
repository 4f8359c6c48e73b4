"""Mechanisms: each turns a public `Problem` into a `Plan`, and a plan into one private `Release`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import Mechanism, Plan, Release
from curvedp.mechanisms.lop import AMP, LOP, LOPClip, PureLOP
from curvedp.mechanisms.qop import QOP

_NAMED: Mapping[str, Callable[..., Mechanism]] = {
    "auto": QOP,
    "qop": QOP,
    "lop": LOP,
    "lop_clip": LOPClip,
}


def named(
    name: str, *, epsilon: float, delta: float, accounting: str = "auto", radius: float = 1.0
) -> Mechanism:
    """The mechanism an estimator means by `name`; "auto" is the most accurate on real tables, Recentered."""
    if name not in _NAMED:
        raise InvalidInput(f"unknown mechanism {name!r}; pass one of {', '.join(_NAMED)}, or an instance")
    options: dict[str, Any] = {}
    if name in ("qop", "lop", "lop_clip"):
        options = {"accounting": accounting, "radius": radius}
    elif accounting != "auto":
        raise InvalidInput(
            f"accounting={accounting!r} is a choice of mechanism='qop' or 'lop'; leave it 'auto'"
        )
    return _NAMED[name](epsilon=epsilon, delta=delta, **options)


__all__ = [
    "AMP",
    "LOP",
    "QOP",
    "LOPClip",
    "Mechanism",
    "Plan",
    "PureLOP",
    "Release",
    "named",
]
