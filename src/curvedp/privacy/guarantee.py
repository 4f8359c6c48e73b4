"""What a release promises, as a value: (ε, δ), the theorem, the public parameters, the whole δ(ε) curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from curvedp.domain import Adjacency


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
    """An (ε, δ) promise under one adjacency, and the theorem and public parameters it rests on."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    mechanism: str
    accounting: str
    theorem: str
    parameters: Mapping[str, Any]
    profile: Profile = field(repr=False, compare=False)
    private: bool = True

    def delta_at(self, epsilon: float) -> float:
        return self.profile.delta_at(epsilon)

    def epsilon_at(self, delta: float) -> float:
        return self.profile.epsilon_at(delta)
