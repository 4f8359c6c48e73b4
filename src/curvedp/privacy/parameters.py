"""The public numbers behind a guarantee: a symbol, its meaning and its value travel together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from curvedp.errors import InvalidInput

Value = float | int | str


@dataclass(frozen=True)
class Parameter:
    """One public number of a mechanism. `is_noise` says that it is a size of noise."""

    name: str
    symbol: str
    meaning: str
    value: Value
    is_noise: bool = False

    def __post_init__(self) -> None:
        value = self.value.item() if isinstance(self.value, np.generic) else self.value
        if not isinstance(value, str) and not (isinstance(value, (int, float)) and math.isfinite(value)):
            raise InvalidInput(f"the public parameter {self.name!r} must be a finite number or a text")
        object.__setattr__(self, "value", value)


@dataclass(frozen=True)
class Symbol:
    """A name of the theory; calling it with a value makes a parameter."""

    name: str
    symbol: str
    meaning: str
    is_noise: bool = False

    def __call__(self, value: Value) -> Parameter:
        return Parameter(self.name, self.symbol, self.meaning, value, self.is_noise)


class Parameters(Mapping[str, Value]):
    """Parameters in order, read as a mapping from name to value."""

    def __init__(self, *parameters: Parameter) -> None:
        self._by_name = {parameter.name: parameter for parameter in parameters}
        if len(self._by_name) < len(parameters):
            raise InvalidInput("two public parameters have one name")

    @property
    def described(self) -> tuple[Parameter, ...]:
        """With symbols and meanings."""
        return tuple(self._by_name.values())

    def __getitem__(self, name: str) -> Value:
        return self._by_name[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(f'{name}={self[name]!r}' for name in self)})"


# The vocabulary that several mechanisms share, in the order of the theory.
L = Symbol("L", "L", "smoothness of one record's loss")
M = Symbol("m", "m", "degrees of freedom of the random curvature W", is_noise=True)
SIGMA2 = Symbol("sigma2", "σ²", "scale of the random curvature σ²W", is_noise=True)
SIGMA0 = Symbol("sigma0", "σ₀", "standard deviation of the linear noise a", is_noise=True)
SIGMA = Symbol("sigma", "σ", "standard deviation of the Gaussian noise", is_noise=True)
SIGMA_TILDE = Symbol("sigma_tilde", "σ̃", "standard deviation of the output noise b", is_noise=True)
ETA = Symbol("eta", "η", "certified distance of the solve from the exact minimiser")
CENTER_SENSITIVITY = Symbol(
    "center_sensitivity", "Δ_c", "how far one record moves the gradient at the centre"
)
MU = Symbol("mu", "μ", "shift between neighbours in all Gaussian releases together", is_noise=True)
MU_COUNT = Symbol("mu_count", "μₙ", "its part for the number of rows")
MU_ROUND = Symbol("mu_round", "μₜ", "its part for each round")
PARTS = {  # of μ, by the names of `mechanisms.rule.Shifts`
    "count": MU_COUNT,
    "columns": Symbol("mu_columns", "μ_c", "its part for histograms of single columns"),
    "extent": Symbol("mu_extent", "μₑ", "its part for the histogram of lengths in the given coordinates"),
    "pilot": Symbol("mu_pilot", "μₚ", "its part for a first look at the Gram matrix"),
    "lengths": Symbol("mu_lengths", "μₗ", "its part for the histogram of record lengths"),
    "curvature": Symbol("mu_curvature", "μ_S", "its part for the Gram matrix in the pilot's metric"),
    "spread": Symbol("mu_spread", "μ_R", "its part for the histogram of record lengths in the metric of S"),
    "scale": Symbol("mu_scale", "μ_0", "its part for the histogram of gradient lengths at θ = 0"),
    "clip": Symbol("mu_clip", "μₖ", "its part for the histogram that chooses the clip"),
    "rest": Symbol("mu_rounds", "μ_T", "its part for the rounds and the constant answer together"),
    "bread": Symbol("mu_bread", "μ_J", "its part for the curvature of the loss"),
    "tail": Symbol("mu_tail", "μ_h", "its part for the histogram of gradient lengths"),
    "meat": Symbol("mu_meat", "μ_M", "its part for the covariance of gradients"),
    "beyond": Symbol("mu_beyond", "μ_d", "its part for where clipped gradients point"),
}
ROUNDS = Symbol("mu_rounds", "μ_T", "its part for the rounds and the constant answer together")
MU_BREAD = Symbol("mu_bread", "μ_J", "its part for the curvature of the loss")
MU_TAIL = Symbol("mu_tail", "μ_h", "its part for the histogram of gradient lengths")
MU_MEAT = Symbol("mu_meat", "μ_M", "its part for the covariance of gradients")
MU_BEYOND = Symbol("mu_beyond", "μ_d", "its part for where clipped gradients point")
MU_ROUND = Symbol("mu_round", "μₜ", "its part for each round")
ROUNDS = Symbol("rounds", "T", "gradient rounds, at most", is_noise=True)
CLIP = Symbol("clip", "c", "norm that each record's gradient is clipped to")
STEP = Symbol("step", "s", "step of a gradient round")
DELTA_CURVATURE = Symbol("Delta", "Δ", "added quadratic curvature", is_noise=True)
LAMBDA = Symbol("Lambda", "Λ", "added quadratic curvature", is_noise=True)
ZETA = Symbol("zeta", "ζ", "bound on one record's gradient")
NOISE = Symbol("noise", "", "law of the noise")
SCALE = Symbol("scale", "σ", "scale of the noise on each entry of XᵀX", is_noise=True)
XY_SCALE = Symbol("xy_scale", "σ_xy", "standard deviation of the noise on each entry of Xᵀy", is_noise=True)
