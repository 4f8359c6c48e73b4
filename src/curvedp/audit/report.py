"""What an audit found, as a value."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from curvedp.audit.power import POWER
from curvedp.neighbours import Adjacency

Sees = Literal["everything released", "what leaves"]
Verdict = Literal["refuted", "held", "inconclusive"]
EXIT_CODES: dict[Verdict, int] = {"held": 0, "refuted": 1, "inconclusive": 3}


@dataclass(frozen=True)
class Attack:
    """One attack: a pair of adjacent datasets, a direction, a score, and what its test sample refutes.

    `epsilon` is a lower bound at the claimed δ, `delta` one at the claimed ε; `fits` is the size of the test
    sample of each side, 0 for an attack by integration of exact densities. `sees` says what the attacker is
    shown: everything that the mechanism releases on the way, for which it is accounted, or only what leaves.
    """

    pair: str
    direction: str
    score: str
    fits: int
    p_lower: float
    q_upper: float
    epsilon: float
    delta: float
    sees: Sees = "what leaves"


@dataclass(frozen=True)
class AuditReport:
    """Claimed against attacked. All statements on `attacks` hold together with probability `confidence`.

    `reach` is the ε that the best attack known would prove with endless fits, an estimate; `needed` about so
    many fits prove half of the claim (`POWER`), None where no number of fits does or where nothing is known.
    """

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
    reach: float | None = None
    needed: int | None = None

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

    @property
    def proved(self) -> float:
        """`epsilon_lower`: what is proved of what leaves is proved of everything released, a part of it."""
        return self.epsilon_lower

    def proved_of(self, sees: Sees) -> float | None:
        """The ε proved by attackers that see so much; None where there were none."""
        found = [a.epsilon for a in self.attacks if a.sees == sees]
        return max(0.0, *found) if found else None

    @property
    def share(self) -> float:
        """proved/claimed."""
        return self.proved / self.epsilon

    @property
    def verdict(self) -> Verdict:
        """*refuted*: an attack beat the claim. *held*: none did, and one proved at least half of it.
        *inconclusive*: none did, and none had the power to say anything."""
        if self.beaten:
            return "refuted"
        return "held" if self.share >= POWER else "inconclusive"

    @property
    def exit_code(self) -> int:
        """0 held, 1 refuted, 3 inconclusive."""
        return EXIT_CODES[self.verdict]

    @property
    def reason(self) -> str:
        """Why an audit is inconclusive, and what to do; empty where it is not."""
        if self.verdict != "inconclusive":
            return ""
        if self.reach is None:
            return "The search for the best attack was not finished: give it more time."
        if self.needed is None:
            return (
                f"No number of fits would show more than the best attack known reaches, about "
                f"{self.reach / self.epsilon:.2f} of the claim."
            )
        return (
            f"About {self.needed:,} fits are needed to prove {POWER:g} of the claim; {self.fits:,} were made."
        )

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.verdict == "refuted":
            told = f"ε ≥ {self.proved:.3g}" if self.proved > self.epsilon else f"δ ≥ {self.delta_lower:.3g}"
            return f"Refuted: an attack proves {told}, more than the claim allows."
        told = f"proved {self.share:.2f} of the claimed ε = {self.epsilon:g}"
        if self.verdict == "held":
            return f"Held, and the attack had power: {told}."
        return f"Inconclusive: {told}, too little to say that it holds. {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings for JSON: an infinite bound becomes None."""
        document = asdict(self) | {
            "verdict": self.verdict,
            "proved": self.proved,
            "proved_everything_released": self.proved_of("everything released"),
            "proved_what_leaves": self.proved_of("what leaves"),
            "share": self.share,
            "reason": self.reason,
            "epsilon_lower": self.epsilon_lower,
            "delta_lower": self.delta_lower,
            "beaten": self.beaten,
            "attacks": [_finite(asdict(a)) for a in self.attacks],
        }
        return _finite(document)


def _finite(document: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in document.items()}
