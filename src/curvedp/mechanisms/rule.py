"""The public constants of the recentered mechanism and how they split a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Neighbours
from curvedp.privacy.guarantee import PARTS

ENDING = ("bread", "tail", "meat", "beyond")  # releases that only intervals need


@dataclass(frozen=True)
class Rule:
    """The public constants of the recentered mechanism; the same for every dataset, loss, ε and adjacency.

    Shares are fractions of μ², μ the Gaussian shift that (ε, δ) allows; what they leave goes to the rounds.
    n̂ is the released count, κ = n̂μ/(d·ρ) the signal-to-noise ratio of a fit with d·K unknowns.
    """

    count_share: float = 0.02  # n̂ (nothing under replace: n is public there)
    column_share: float = 0.02  # histograms of the columns that are numbers (nothing where there is none)
    extent_share: float = 0.01  # histogram of the lengths of units in the given coordinates
    pilot_share: float = 0.09  # first look at XᵀX, in the given coordinates
    length_share: float = 0.01  # histogram of record lengths in the pilot's metric
    curvature_share: float = 0.05  # S, the Gram matrix again, in the pilot's metric
    spread_share: float = 0.02  # histogram of record lengths in the metric of S
    scale_share: float = 0.02  # histogram of gradient lengths at θ = 0: the scale of the first clip
    clip_share: float = 0.02  # histogram of gradient lengths that chooses the clip of later rounds
    bread_share: float = 0.055  # the curvature of the loss at the walk's end, where intervals are asked for …
    tail_share: float = 0.03  # … a histogram of gradient lengths there …
    meat_share: float = 0.01  # … the covariance of gradients …
    beyond_share: float = 0.04  # … and where the gradients point that the clip shortens
    first_share: float = 0.20  # of the rounds' μ²: the first rounds, which only find the neighbourhood

    # (reach, least, most): the share (reach/strength)² within these; strength = n̂μ, half of it under replace
    constant: tuple[float, float, float] = (15.0, 0.01, 0.05)
    centre: tuple[float, float, float] = (15.0, 0.003, 0.1)
    evidence: tuple[float, float, float] = (70.0, 0.005, 0.1)

    rounds: int = 64  # where noise rules: small steps, so that it averages out
    first_rounds: int = 16
    step: float = 0.5  # damping of a Newton step
    plenty: float = 100.0  # the κ from which only convergence matters, and fewer, bolder rounds do
    quick_rounds: int = 24
    quick_first_rounds: int = 6
    quick_step: float = 0.8  # of losses whose curvature is less than its bound; no other forgives a poor S

    travel: float = 1.25  # in units of the way on which noise gathers as much as there is to explain
    first_travel: float = 16.0  # of the first rounds at most: their clip is wide, and so is their noise
    momentum: float = 0.8  # at most: where the way is longer than steps without it
    weight: float = 0.5  # the t-th later round has weight t^(weight·(1 + κ/large)) in the average
    large: float = 1000.0
    precise: float = 4000.0  # the κ from which S is precise without a pilot
    unseen: float = 0.01  # of what is explained: a column that moves less and is not seen gets coefficient 0
    sure: float = 50.0  # the κ from which noise cannot make a linear fit worse than a constant
    sure_class: float = 10.0  # likewise κ·q(1 − q) of a class of share q
    least_kappa: float = 12.0  # the κ below which no curvature of the loss is seen, and none is looked at
    most_hidden: float = 0.08  # share of the records that noise may hide in a cell of a column's histogram
    level: float = 0.35  # in units of n̂/d: so many records more a level is thought to have, in the metric
    pilot_level: float = 1.0  # likewise in the metric of the pilot, lest S shorten records of rare levels
    pilot_floor: float = 0.5  # added to every eigenvalue of the pilot, in units of its noise's spectral norm
    floor: float = 0.5  # likewise of S
    kept_lengths: float = 0.8  # quantile of record lengths to which records are shortened in S
    clipped: float = 2.0  # about clipped·d·ρ/μ records are clipped in the later rounds …
    kept: float = 0.6  # … but this fraction never
    doubt: float = 1.0  # deviations by which the noise is thought to exaggerate how many lie beyond a clip
    doubted_scale: float = 0.5  # deviations by which its typical gradient is thought shorter: a squared loss
    first_clip: float = 0.25  # clip of the first rounds, in units of the typical gradient at θ = 0 …
    class_clip: float = 0.7  # … of classes, whose gradients differ less in length, over √sum_factor …
    blind_clip: float = 0.5  # … likewise of all rounds, where no histogram can choose one
    first_kept: float = 0.5  # fraction of records assumed unclipped in the first rounds
    widest_clip: float = 4.0  # largest edge of the clip's histogram, in the same units
    edges: int = 13  # edges of a histogram, a factor √2 apart

    def __post_init__(self) -> None:
        shares = self.shares(inference=True)
        most = sum(shares.values()) + self.constant[2] + self.centre[2] + self.evidence[2]
        if not (min(shares.values()) > 0 and most < 1 and 0 < self.first_share < 1):
            raise InvalidInput("the shares of a Rule must be positive and leave something for the rounds")
        quick = 0 < self.quick_first_rounds < self.quick_rounds
        if not (0 < self.first_rounds < self.rounds and quick):
            raise InvalidInput("a Rule needs 0 < first_rounds < rounds, and so for the quick ones")

    def shares(self, inference: bool) -> dict[str, float]:
        """Of every release but the rounds."""
        shares = {name: getattr(self, f"{name.removesuffix('s')}_share") for name in PARTS if name != "rest"}
        return shares if inference else {**shares, **dict.fromkeys(ENDING, 0.0)}

    def pace(self, kappa: float) -> Rule:
        """How many rounds, and how bold: whatever κ is, they cost the same together."""
        if kappa < self.plenty or self.rounds <= self.quick_rounds:
            return self
        first, step = self.quick_first_rounds, self.quick_step
        return replace(self, rounds=self.quick_rounds, first_rounds=first, step=step)

    @property
    def later(self) -> int:
        """Rounds after the first ones."""
        return self.rounds - self.first_rounds


# Of counts: their curvature varies by orders of magnitude; many rounds are needed until it does not matter.
COUNTS = Rule(rounds=128, first_rounds=32, first_travel=64.0, plenty=math.inf)
# Of a check loss: its curvature is a density of targets, in some directions a sixth of what it is on average.
# Few bold rounds do not get there, and the scatter of more than these smooths. It is seen on few records
# (a band, P-11), which asks for a better look.
JUMPS = Rule(plenty=math.inf, bread_share=0.15)


@dataclass(frozen=True)
class Shifts:
    """The Gaussian shift μ_j of every release, Σ μ_j² ≤ μ² (P-9); `rest` of the rounds and of what goes with
    them, which is split once the count is known.
    """

    count: float
    columns: float
    extent: float
    pilot: float
    lengths: float
    curvature: float
    spread: float
    scale: float
    clip: float
    bread: float
    tail: float
    meat: float
    beyond: float
    rest: float

    @classmethod
    def split(
        cls, mu: float, rule: Rule, neighbours: Neighbours, *, inference: bool = False, columns: bool = True
    ) -> Shifts:
        """μ² in the proportions of the rule, every part rounded down; `rest` gets what the others leave."""
        shares = rule.shares(inference)
        if neighbours.count_is_public:
            shares["count"] = 0.0
        if not columns:
            shares["columns"] = 0.0
        shares["rest"] = 1.0 - sum(shares.values())
        return cls(**{name: mu * math.sqrt(share) * (1 - 1e-14) for name, share in shares.items()})

    @property
    def total(self) -> float:
        """√Σ μ_j²."""
        return math.sqrt(math.fsum(shift**2 for shift in vars(self).values()))


@dataclass(frozen=True)
class Walk:
    """What `rest` is split into, Σ μ_j² ≤ rest²: `first` and `later` of all such rounds."""

    constant: float  # the mean response
    centre: float  # a second look at it, of squared losses
    evidence: float  # how much the fit explains beyond it
    first: float
    later: float

    @classmethod
    def split(
        cls,
        rest: float,
        mu: float,
        rule: Rule,
        strength: float,
        *,
        constant: bool,
        twice: bool,
        doubted: bool,
    ) -> Walk:
        """By `strength` = n̂μ/sum_factor, which is released: the fewer records, the more it takes to know
        even the constant answer. Without a `constant` column all is for the rounds.
        """
        one, two, three = (
            min(max((reach / strength) ** 2, least), most)
            for reach, least, most in (rule.constant, rule.centre, rule.evidence)
        )
        if not constant:
            one = two = three = 0.0
        elif not twice:
            one, two = one + two, 0.0
        if not doubted:
            three = 0.0
        whole = (rest / mu) ** 2
        shares = {"constant": one, "centre": two, "evidence": three}
        rounds = whole - sum(shares.values())
        shares |= {"first": rounds * rule.first_share, "later": rounds * (1.0 - rule.first_share)}
        return cls(**{name: mu * math.sqrt(share) * (1 - 1e-14) for name, share in shares.items()})

    def first_round(self, pace: Rule) -> float:
        return self.first / math.sqrt(pace.first_rounds) * (1 - 1e-14)

    def later_round(self, pace: Rule) -> float:
        return self.later / math.sqrt(pace.later) * (1 - 1e-14)
