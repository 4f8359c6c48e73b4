"""The public constants of the recentered mechanism and how they split a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

from curvedp.errors import InvalidInput
from curvedp.neighbours import Neighbours


@dataclass(frozen=True)
class Pace:
    """So many rounds, the first of them only to find the neighbourhood; `step` is their damping at most."""

    rounds: int
    first: int
    step: float

    @property
    def later(self) -> int:
        return self.rounds - self.first


@dataclass(frozen=True)
class Rule:
    """The public constants of the recentered mechanism; the same for every dataset, loss, ε and adjacency.

    Shares are fractions of μ², μ the Gaussian shift that (ε, δ) allows; what they leave goes to the rounds.
    n̂ is the released count, κ = n̂μ/(d·ρ) the signal-to-noise ratio of a fit with d·K unknowns.
    """

    count_share: float = 0.02  # n̂ (nothing under replace: n is public there)
    extent_share: float = 0.01  # histogram of the lengths of units in the given coordinates
    pilot_share: float = 0.09  # first look at XᵀX, in the given coordinates
    length_share: float = 0.01  # histogram of record lengths in the pilot's metric
    curvature_share: float = 0.05  # S, the Gram matrix again, in the pilot's metric
    spread_share: float = 0.02  # histogram of record lengths in the metric of S
    scale_share: float = 0.02  # histogram of gradient lengths at θ = 0: the scale of the first clip
    clip_share: float = 0.02  # histogram of gradient lengths that chooses the clip of later rounds
    first_share: float = 0.20  # of the rounds' μ²: the first rounds, which only find the neighbourhood

    rounds: int = 64  # where noise rules: small steps, so that it averages out
    first_rounds: int = 16
    step: float = 0.5  # damping of a Newton step
    plenty: float = 100.0  # the κ from which only convergence matters, and fewer, bolder rounds do
    quick_rounds: int = 24
    quick_first_rounds: int = 6
    quick_step: float = 0.8

    travel: float = 1.25  # in units of the way on which noise gathers as much as there is to explain
    first_travel: float = 16.0  # of the first rounds at most: their clip is wide, and so is their noise
    momentum: float = 0.8  # at most: where the way is longer than steps without it
    weight: float = 0.5  # the t-th later round has weight t^(weight·(1 + κ/large)) in the average
    large: float = 1000.0
    precise: float = 4000.0  # the κ from which S is precise without a pilot
    pilot_floor: float = 0.5  # added to every eigenvalue of the pilot, in units of its noise's spectral norm
    floor: float = 0.5  # likewise of S
    kept_lengths: float = 0.8  # quantile of record lengths to which records are shortened in S
    clipped: float = 2.5  # about clipped·d·ρ/μ records are clipped in the later rounds …
    kept: float = 0.6  # … but this fraction never
    doubt: float = 1.0  # deviations by which the noise is thought to exaggerate how many lie beyond a clip
    first_clip: float = 0.25  # clip of the first rounds, in units of the typical gradient at θ = 0
    first_kept: float = 0.5  # fraction of records assumed unclipped in the first rounds
    widest_clip: float = 4.0  # largest edge of the clip's histogram, in the same units
    edges: int = 13  # edges of a histogram, a factor √2 apart

    def __post_init__(self) -> None:
        shares = self.shares
        if not (min(shares.values()) > 0 and sum(shares.values()) < 1 and 0 < self.first_share < 1):
            raise InvalidInput("the shares of a Rule must be positive and leave something for the rounds")
        quick = 0 < self.quick_first_rounds < self.quick_rounds
        if not (0 < self.first_rounds < self.rounds and quick):
            raise InvalidInput("a Rule needs 0 < first_rounds < rounds, and so for the quick ones")

    @property
    def shares(self) -> dict[str, float]:
        """Of every release but the rounds."""
        return {
            "count": self.count_share,
            "extent": self.extent_share,
            "pilot": self.pilot_share,
            "lengths": self.length_share,
            "curvature": self.curvature_share,
            "spread": self.spread_share,
            "scale": self.scale_share,
            "clip": self.clip_share,
        }

    def pace(self, kappa: float) -> Pace:
        """How many rounds, and how bold: whatever κ is, they cost the same together."""
        slow = Pace(self.rounds, self.first_rounds, self.step)
        if kappa < self.plenty or self.rounds <= self.quick_rounds:
            return slow
        return Pace(self.quick_rounds, self.quick_first_rounds, self.quick_step)


@dataclass(frozen=True)
class Shifts:
    """The Gaussian shift μ_j of every release, Σ μ_j² ≤ μ² (P-9); `first` and `later` of all such rounds."""

    count: float
    extent: float
    pilot: float
    lengths: float
    curvature: float
    spread: float
    scale: float
    clip: float
    first: float
    later: float

    @classmethod
    def split(cls, mu: float, rule: Rule, neighbours: Neighbours, walk: float = 1.0) -> Shifts:
        """μ² in the proportions of the rule, every part rounded down.

        `walk` is the fraction of what the other parts leave that the rounds get; the rest is not spent here.
        """
        shares = rule.shares
        if neighbours.count_is_public:
            shares["count"] = 0.0
        rounds = walk * (1.0 - sum(shares.values()))
        shares |= {"first": rounds * rule.first_share, "later": rounds * (1.0 - rule.first_share)}
        return cls(**{name: mu * math.sqrt(share) * (1 - 1e-14) for name, share in shares.items()})

    @property
    def total(self) -> float:
        """√Σ μ_j²."""
        return math.sqrt(math.fsum(shift**2 for shift in vars(self).values()))

    def first_round(self, pace: Pace) -> float:
        return self.first / math.sqrt(pace.first) * (1 - 1e-14)

    def later_round(self, pace: Pace) -> float:
        return self.later / math.sqrt(pace.later) * (1 - 1e-14)
