"""What an audit found, as a value."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from curvedp.neighbours import Adjacency


@dataclass(frozen=True)
class Attack:
    """One attack: a pair of adjacent datasets, a direction, a score, and what its test sample refutes.

    `epsilon` is a lower bound at the claimed δ, `delta` one at the claimed ε; `fits` is the size of the test
    sample of each side, 0 for an attack by integration of exact densities.
    """

    pair: str
    direction: str
    score: str
    fits: int
    p_lower: float
    q_upper: float
    epsilon: float
    delta: float


@dataclass(frozen=True)
class AuditReport:
    """Claimed against attacked. All statements on `attacks` hold together with probability `confidence`."""

    mechanism: str
    accounting: str
    theorem: str
    adjacency: Adjacency
    loss: str
    features: int
    epsilon: float
    delta: float
    confidence: float
    fits: int
    seconds: float
    complete: bool
    pairs_tried: int
    attacks: tuple[Attack, ...]

    @property
    def epsilon_lower(self) -> float:
        """The largest lower bound on ε at the claimed δ; 0 when no attack says anything."""
        return max((0.0, *(a.epsilon for a in self.attacks)))

    @property
    def delta_lower(self) -> float:
        """The largest lower bound on δ at the claimed ε; 0 when no attack says anything."""
        return max((0.0, *(a.delta for a in self.attacks)))

    @property
    def beaten(self) -> bool:
        """True when an attack refutes the claim."""
        return self.epsilon_lower > self.epsilon or self.delta_lower > self.delta

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings for JSON: an infinite bound becomes None."""
        document = asdict(self)
        document |= {
            "epsilon_lower": self.epsilon_lower,
            "delta_lower": self.delta_lower,
            "beaten": self.beaten,
            "attacks": [
                {
                    k: None if isinstance(v, float) and not math.isfinite(v) else v
                    for k, v in asdict(a).items()
                }
                for a in self.attacks
            ],
        }
        for key in ("epsilon_lower", "delta_lower"):
            if not math.isfinite(document[key]):
                document[key] = None
        return document
