"""The public statement of what is to be fitted: loss, regularizer, constraint, domain. Holds no data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.errors import InvalidInput, NotCovered
from curvedp.problems.constraints import Constraint, Reals
from curvedp.problems.domain import Domain
from curvedp.problems.losses.margin import Loss
from curvedp.problems.losses.several import Weighted
from curvedp.problems.regularizers import NoRegularizer, Regularizer


@dataclass(frozen=True)
class Problem:
    """min over θ ∈ C of J(θ) = Σ_i ℓ(θ; z_i) + r(θ): a SUM over records, never a mean.

    Parameters
    ----------
    loss : Loss
        ℓ, one of `curvedp.problems.losses`.
    regularizer : Regularizer, optional
        r, one of `curvedp.problems.regularizers`; none by default.
    constraint : Constraint, optional
        C, one of `curvedp.problems.constraints`; everything by default.
    domain : Domain, optional
        The public bounds of a record and which tables are neighbours; the unit ball under `replace`.

    Examples
    --------
    >>> from curvedp import Domain, Problem
    >>> from curvedp.problems.constraints import L2Ball
    >>> from curvedp.problems.losses import Logistic
    >>> Problem(Logistic(), constraint=L2Ball(2.0), domain=Domain(x_norm=3.0)).smoothness(d=5)
    2.25
    """

    loss: Loss
    regularizer: Regularizer = field(default_factory=NoRegularizer)
    constraint: Constraint = field(default_factory=Reals)
    domain: Domain = field(default_factory=Domain)

    def check(self, d: int) -> None:
        """Refuse, from public values alone, what cannot be fitted with d model columns."""
        if isinstance(self.loss, Weighted) != self.domain.weighted:
            raise InvalidInput("weights need both Domain(weighted=True) and the loss Weighted(...)")
        zero = np.zeros((d, self.loss.n_outputs))
        try:  # a wrong width or index shows on any θ
            self.regularizer.prox(self.constraint.project(zero), 1.0)
        except (ValueError, IndexError) as error:
            raise InvalidInput(f"the regularizer or the constraint is not for {d} columns: {error}") from None
        if not math.isfinite(self.smoothness(d)):
            raise NotCovered(
                f"the {self.loss.name} loss has no bounded curvature on this constraint: choose another "
                "mechanism, or a bounded constraint"
            )

    def radius(self, d: int) -> float:
        """max ‖θ‖ on C."""
        return self.constraint.radius(d, self.loss.n_outputs)

    def smoothness(self, d: int, theta_c: FloatArray | float = 0.0) -> float:
        """L = β B² for margins reachable from C ∪ {θ_c} (section 6)."""
        return self.loss.smoothness(self.domain, max(self.radius(d), float(np.linalg.norm(theta_c))))

    def center_sensitivity(self, theta_c: FloatArray) -> float:
        """Δ_c under `replace`, γ_c under `add_remove`, at the public centre θ_c (section 6)."""
        norm = float(np.linalg.norm(theta_c))
        alone = self.domain.neighbours.moves == 1
        return (self.loss.center_bound if alone else self.loss.center_diameter)(self.domain, norm)

    def gradient_bound(self, d: int) -> float:
        """ζ ≥ ‖∇ℓ(θ; z)‖ on C; infinite when C is unbounded and the loss has no bound of its own."""
        return self.loss.gradient_bound(self.domain, self.radius(d))
