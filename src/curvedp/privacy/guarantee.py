"""What a release promises, as a value: (ε, δ), the theorem, the public parameters, the whole δ(ε) curve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Protocol

import numpy as np

from curvedp.domain import Adjacency
from curvedp.errors import InvalidInput


class Profile(Protocol):
    """An upper bound δ(ε) on the hockey-stick divergence of a mechanism, both directions."""

    def delta_at(self, epsilon: float) -> float:
        """A δ for which (epsilon, δ) holds; rounded up."""
        ...

    def epsilon_at(self, delta: float) -> float:
        """The smallest ε ≥ 0 found with δ(ε) ≤ delta; rounded up."""
        ...

    def to_pld(self) -> Any:
        """A pessimistic dp_accounting PrivacyLossDistribution that dominates the mechanism."""
        ...


@dataclass(frozen=True)
class Guarantee:
    """An (ε, δ) promise under one adjacency, and the theorem and public parameters it rests on.

    Refused unless its own profile proves it: profile.delta_at(epsilon) ≤ delta.
    `private` is False for runs that promise nothing (a fixed seed, a study mode).
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    mechanism: str
    accounting: str
    theorem: str
    parameters: Mapping[str, Any]
    profile: Profile = field(repr=False, compare=False)
    private: bool = True

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0):
            raise InvalidInput(f"a guarantee needs a finite epsilon ≥ 0, got {self.epsilon!r}")
        if not 0 <= self.delta < 1:
            raise InvalidInput(f"a guarantee needs a delta in [0, 1), got {self.delta!r}")
        if self.adjacency not in ("replace", "add_remove"):
            raise InvalidInput(f'adjacency must be "replace" or "add_remove", got {self.adjacency!r}')
        object.__setattr__(self, "parameters", {str(k): _plain(k, v) for k, v in self.parameters.items()})
        if not self.profile.delta_at(self.epsilon) <= self.delta:
            raise InvalidInput(
                f"the profile does not prove ({self.epsilon!r}, {self.delta!r}); claim what it proves"
            )

    def delta_at(self, epsilon: float) -> float:
        """The δ that holds at another ε."""
        return self.profile.delta_at(epsilon)

    def epsilon_at(self, delta: float) -> float:
        """The ε that holds at another δ."""
        return self.profile.epsilon_at(delta)

    def to_pld(self) -> Any:
        """A pessimistic dp_accounting PrivacyLossDistribution, to compose with others fixed beforehand."""
        return self.profile.to_pld()

    def to_dict(self) -> dict[str, Any]:
        """The public values, ready for JSON."""
        return {
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "adjacency": self.adjacency,
            "mechanism": self.mechanism,
            "accounting": self.accounting,
            "theorem": self.theorem,
            "parameters": dict(self.parameters),
            "private": self.private,
        }

    def _repr_html_(self) -> str:
        """A small table, every value escaped."""
        rows = [(key, value) for key, value in self.to_dict().items() if key != "parameters"]
        rows += [(key, value) for key, value in self.parameters.items()]
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(str(key))}</th><td>{escape(_short(value))}</td></tr>"
            for key, value in rows
        )
        warning = "" if self.private else "<caption>not private: a seeded or study run</caption>"
        return f"<table>{warning}<tbody>{cells}</tbody></table>"


def _plain(name: str, value: Any) -> Any:
    """A JSON value: None, a bool, a string, a finite number, or lists of these."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (np.bool_, np.integer)):
        return value.item()
    if isinstance(value, (int, float, np.floating)) and math.isfinite(value):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(name, item) for item in value]
    raise InvalidInput(f"the public parameter {name!r} must be a finite number, a string or a list of those")


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
