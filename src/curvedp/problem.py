"""The public statement of what is to be fitted: loss, regularizer, constraint, domain. Holds no data."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from curvedp.constraints import Constraint, Reals
from curvedp.domain import Domain, FloatArray
from curvedp.losses import Loss
from curvedp.regularizers import NoRegularizer, Regularizer


@dataclass(frozen=True)
class Problem:
    """min over θ ∈ C of J(θ) = Σ_i ℓ(θ; z_i) + r(θ): a SUM over records, never a mean."""

    loss: Loss
    regularizer: Regularizer = field(default_factory=NoRegularizer)
    constraint: Constraint = field(default_factory=Reals)
    domain: Domain = field(default_factory=Domain)

    def smoothness(self, d: int, theta_c: FloatArray | float = 0.0) -> float:
        """L = β B² for margins reachable from C ∪ {θ_c} (section 6)."""
        reach = max(self.constraint.radius(d * self.loss.n_outputs), float(np.linalg.norm(theta_c)))
        return self.loss.smoothness(self.domain, reach)

    def center_sensitivity(self, theta_c: FloatArray) -> float:
        """Δ_c under `replace`, γ_c under `add_remove`, at the public centre θ_c (section 6)."""
        norm = float(np.linalg.norm(theta_c))
        if self.domain.adjacency == "replace":
            return self.loss.center_diameter(self.domain, norm)
        return self.loss.center_bound(self.domain, norm)

    def gradient_bound(self, d: int) -> float:
        """ζ ≥ ‖∇ℓ(θ; z)‖ on C; infinite when C is unbounded and the loss has no bound of its own."""
        return self.loss.gradient_bound(self.domain, self.constraint.radius(d * self.loss.n_outputs))
