"""`Budget`: an (ε, δ) to spend, apart from the mechanism that spends it."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from curvedp.amounts import exact, round_down
from curvedp.errors import InvalidInput


@dataclass(frozen=True)
class Budget:
    """What a release may cost: (ε, δ)-differential privacy.

    Parameters
    ----------
    epsilon : float
        One record shifts the odds of any outcome by at most e^ε. Positive and finite.
    delta : float, default=0.0
        The chance with which that may fail, far below 1/rows. In [0, 1).

    Examples
    --------
    >>> from curvedp import Budget
    >>> parts = Budget(1.0, 1e-6).split(fit=0.9, scores=0.1)
    >>> parts["fit"].epsilon, parts["scores"].epsilon
    (0.9, 0.1)
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("epsilon", self.epsilon), ("delta", self.delta)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InvalidInput(f"{name} must be a number, got {type(value).__name__}")
        if not 0 < self.epsilon <= sys.float_info.max:
            raise InvalidInput(f"epsilon must be a positive, finite number, got {self.epsilon!r}")
        if not 0 <= self.delta < 1:
            raise InvalidInput(f"delta must lie in [0, 1), got {self.delta!r}; 1e-6 is a common choice")

    def split(self, **shares: float) -> Mapping[str, Budget]:
        """Parts of this budget, by name, that add up to it exactly as a ledger counts.

        Parameters
        ----------
        **shares : float
            Positive weights, one per part; they are divided by their sum.

        Returns
        -------
        parts : dict of str to Budget
            In the order given; under basic composition their sum never exceeds this budget.
        """
        if not shares or not all(math.isfinite(share) and share > 0 for share in shares.values()):
            raise InvalidInput("pass one positive weight per part, such as split(fit=0.9, scores=0.1)")
        total = sum((exact(share) for share in shares.values()), Fraction(0))
        epsilons = _parts(exact(self.epsilon), shares, total)
        deltas = _parts(exact(self.delta), shares, total)
        return {name: Budget(e, d) for name, e, d in zip(shares, epsilons, deltas, strict=True)}


def _parts(amount: Fraction, shares: Mapping[str, float], total: Fraction) -> list[float]:
    """amount·share/total, each rounded down, the last one taking what is left."""
    parts = [round_down(amount * exact(share) / total) for share in shares.values()]
    return [*parts[:-1], round_down(amount - sum((exact(part) for part in parts[:-1]), Fraction(0)))]
