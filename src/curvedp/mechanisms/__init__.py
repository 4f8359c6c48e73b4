"""Mechanisms: each turns a public `Problem` into a `Plan`, and a plan into one private `Release`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from curvedp.errors import InvalidInput
from curvedp.mechanisms.base import Mechanism, Plan, Release
from curvedp.mechanisms.gradient import NoisyGradient
from curvedp.mechanisms.lop import AMP, LOP, LOPClip, PureLOP
from curvedp.mechanisms.output import OutputPerturbation
from curvedp.mechanisms.qop import QOP
from curvedp.mechanisms.recentered import Recentered
from curvedp.mechanisms.statistics import Statistics

_NAMED: Mapping[str, Callable[..., Mechanism]] = {
    "auto": Recentered,
    "recentered": Recentered,
    "statistics": Statistics,
    "qop": QOP,
    "lop": LOP,
    "lop_clip": LOPClip,
    "output": OutputPerturbation,
    "gradient": NoisyGradient,
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
    "NoisyGradient",
    "OutputPerturbation",
    "Plan",
    "PureLOP",
    "Recentered",
    "Release",
    "Statistics",
    "named",
]
