"""`Budget`, an (ε, δ) to spend, and `Neighbours`, the tables between which it holds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from curvedp.errors import InvalidInput, NotCovered
from curvedp.numbers import exact, round_down

LARGEST_EPSILON = 1e6  # promises nothing, and every calibration still finds its noise in doubles


@dataclass(frozen=True)
class Budget:
    """What a release may cost: (ε, δ)-differential privacy.

    Parameters
    ----------
    epsilon : float
        One record shifts the odds of any outcome by at most e^ε. Positive, at most 1e6.
    delta : float, default=0.0
        The chance with which that may fail, far below 1/rows. In [0, 1).

    Examples
    --------
    >>> from curvedp import Budget
    >>> parts = Budget(1.0, 1e-6).split(check=1, fit=7, score=2)
    >>> {name: round(part.epsilon, 3) for name, part in parts.items()}
    {'check': 0.29, 'fit': 0.823, 'score': 0.421}
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("epsilon", self.epsilon), ("delta", self.delta)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InvalidInput(f"{name} must be a number, got {type(value).__name__}")
        if not 0 < self.epsilon <= LARGEST_EPSILON:
            raise InvalidInput(
                f"epsilon must be a positive number up to 1e6, got {self.epsilon!r}; 1 is a common choice"
            )
        if not 0 <= self.delta < 1:
            raise InvalidInput(f"delta must lie in [0, 1), got {self.delta!r}; 1e-6 is a common choice")

    def split(self, *, pure: Collection[str] = (), **shares: float) -> Mapping[str, Budget]:
        """Parts of this budget, by name, all of which a ledger of it grants.

        A Gaussian ledger adds up squares of μ, and so do the parts: each gets its share of μ² and states it
        as the ε at this budget's δ. A tenth of the budget has about √(1/10) of its ε. Where δ is 0 the ε add
        up, and under `Ledger.create(…, filter="basic")` parts like these do not fit: divide ε there.

        Parameters
        ----------
        pure : collection of str
            Parts for releases that are purely ε-private, such as bounds: these have δ = 0, and the ε of
            their share of μ².
        **shares : float
            Positive weights, one per part; they are divided by their sum.

        Returns
        -------
        parts : dict of str to Budget
            In the order given.
        """
        if not shares or not all(math.isfinite(share) and share > 0 for share in shares.values()):
            raise InvalidInput("pass one positive weight per part, such as split(fit=9, score=1)")
        if unknown := sorted(set(pure) - set(shares)):
            raise InvalidInput(f"pure names {unknown[0]!r}, which has no share: pass {unknown[0]}=1, too")
        from curvedp.privacy.gaussian import boxes, calibrated, root_down

        if len(shares) == 1 and not pure:  # one release may be the whole
            return dict.fromkeys(shares, self)
        total = sum((exact(share) for share in shares.values()), Fraction(0))
        parts = {name: exact(share) / total for name, share in shares.items()}
        square = Fraction(boxes(float(self.epsilon), float(self.delta))[0].mu) ** 2
        if square == 0:
            return {name: Budget(round_down(exact(self.epsilon) * part)) for name, part in parts.items()}
        deltas = {name: 0.0 if name in pure else self.delta for name in parts}
        return {n: Budget(*calibrated(root_down(square * part), deltas[n])) for n, part in parts.items()}


Adjacency = Literal["replace", "add_remove"]


@dataclass(frozen=True)
class Neighbours:
    """Two tables are neighbours when one unit is replaced, or when one is added or removed.

    `unit` names the column that says whose row it is: a unit is a person, with all rows of that person
    (U-1). None: every row is a unit of its own.
    """

    adjacency: Adjacency = "replace"
    unit: str | None = None

    def __post_init__(self) -> None:
        if self.adjacency not in get_args(Adjacency):
            raise InvalidInput(f'adjacency must be "replace" or "add_remove", got {self.adjacency!r}')
        if self.unit is not None and not (isinstance(self.unit, str) and self.unit):
            raise InvalidInput("unit must be the name of the column that says whose row it is")

    @property
    def count_is_public(self) -> bool:
        """Whether all neighbours have the same number of units."""
        return self.adjacency == "replace"

    @property
    def moves(self) -> int:
        """Units by which neighbours differ: one comes (or goes), or one goes and one comes."""
        return 2 if self.count_is_public else 1

    @property
    def sum_factor(self) -> float:
        """‖Σv − Σv'‖ ≤ factor·c for vectors of norm ≤ c."""
        return float(self.moves)

    @property
    def histogram_factor(self) -> float:
        """The l2 distance of two histograms with one unit in one cell: 1, or √2."""
        return math.sqrt(self.moves)

    @property
    def gram_factor(self) -> float:
        """‖Σ P − Σ P'‖ ≤ factor·F (Frobenius) for P ≽ 0, ‖P‖ ≤ F: 1, or √2, since ⟨P, P'⟩ ≥ 0 (S-2)."""
        return math.sqrt(self.moves)

    @property
    def who(self) -> str:
        """What is protected: a person where a column says whose row it is, else a record."""
        return "record" if self.unit is None else "person"

    @property
    def counted(self) -> str:
        """What a count counts: rows, or persons, each of whom counts once (U-2)."""
        return "rows" if self.unit is None else "persons"

    @property
    def words(self) -> str:
        whose = "" if self.unit is None else f" with all rows of one {self.unit!r}"
        return f"one {self.who}{whose} {'replaced' if self.count_is_public else 'added or removed'}"

    def refuse_units(self, what: str) -> None:
        """Refuse what bounds the contribution of a row, not of a person."""
        if self.unit is not None:
            raise NotCovered(
                f"{what}: this protects single rows, and {self.unit!r} says that a person may have several; "
                'choose `mechanism=recentered`, with all rows or with rows_per_person = "one"'
            )
