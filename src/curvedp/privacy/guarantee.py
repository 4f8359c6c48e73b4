"""What a release promises, as a value: (ε, δ), the theorem, the public parameters, the whole δ(ε) curve."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from curvedp.budget import Budget
from curvedp.errors import InvalidInput
from curvedp.neighbours import Adjacency, Neighbours
from curvedp.privacy.costs import OTHER_SHARE, Cost
from curvedp.privacy.parameters import Parameters

if TYPE_CHECKING:
    from curvedp.privacy.profiles import Curve


@dataclass(frozen=True)
class Guarantee:
    """An (ε, δ) promise for some neighbours, and the theorem and public parameters it rests on.

    Refused unless its own profile proves it: profile.delta_at(epsilon) ≤ delta.

    Parameters
    ----------
    budget : Budget
        The promised (ε, δ).
    neighbours : Neighbours
        Between which tables it holds.
    mechanism, accounting, theorem : str
        What was run, how it is accounted, and which theorem of docs/theory.md proves it.
    parameters : Parameters
        The public numbers of the mechanism.
    profile : Curve
        The whole curve δ(ε).
    private : bool, default=True
        False for runs that promise nothing: a fixed seed, a study mode.

    Examples
    --------
    >>> import numpy as np
    >>> from curvedp import PrivateRidge
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    >>> model = PrivateRidge(bounds=(-1, 1), target_bounds=(-1, 1)).fit(X, X[:, 0])
    >>> model.privacy_.epsilon, model.privacy_.theorem
    (1.0, '(P-9)')
    >>> model.privacy_.delta_at(2.0) < model.privacy_.delta
    True
    """

    budget: Budget
    neighbours: Neighbours
    mechanism: str
    accounting: str
    theorem: str
    parameters: Parameters
    profile: Curve = field(repr=False, compare=False)
    private: bool = True

    def __post_init__(self) -> None:
        if not self.profile.delta_at(self.epsilon) <= self.delta:
            raise InvalidInput(
                f"the profile does not prove ({self.epsilon!r}, {self.delta!r}); claim what it proves"
            )

    @property
    def epsilon(self) -> float:
        """The ε of the promise."""
        return self.budget.epsilon

    @property
    def delta(self) -> float:
        """The δ of the promise."""
        return self.budget.delta

    @property
    def adjacency(self) -> Adjacency:
        """The kind of neighbours: "replace" or "add_remove"."""
        return self.neighbours.adjacency

    @cached_property
    def costs(self) -> tuple[Cost, ...]:
        """What a Gaussian budget may take for it: (μ, 0, d), and (e, d) at a small d ("Filters")."""
        leftover = OTHER_SHARE * self.delta
        gaussian = self.profile.gaussian_cost(leftover)
        epsilon = self.epsilon if self.delta == 0 else self.profile.epsilon_at(leftover)
        other = Cost(0.0, epsilon, leftover) if math.isfinite(epsilon) else None
        return tuple(cost for cost in (gaussian, other) if cost is not None)

    def delta_at(self, epsilon: float) -> float:
        """The δ that holds at another ε."""
        return self.profile.delta_at(epsilon)

    def epsilon_at(self, delta: float) -> float:
        """The ε that holds at another δ."""
        return self.profile.epsilon_at(delta)

    def to_pld(self) -> Any:
        """A pessimistic dp_accounting PrivacyLossDistribution, to compose with others fixed beforehand."""
        return self.profile.to_pld()

    def without_privacy(self) -> Guarantee:
        """The same numbers for a run that promises nothing, because its noise can be repeated."""
        return replace(self, private=False)

    def to_dict(self) -> dict[str, Any]:
        """The public values, ready for JSON."""
        return {
            "epsilon": float(self.epsilon),
            "delta": float(self.delta),
            "adjacency": self.adjacency,
            "unit": self.neighbours.unit,
            "mechanism": self.mechanism,
            "accounting": self.accounting,
            "theorem": self.theorem,
            "parameters": dict(self.parameters),
            "private": self.private,
        }

    def _repr_html_(self) -> str:
        """The promise in words."""
        from curvedp.privacy.promise import Promise

        return Promise(self).html()
