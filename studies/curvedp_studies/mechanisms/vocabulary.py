"""Public numbers that several mechanisms of the studies share, beside those of the library."""

from __future__ import annotations

from curvedp.privacy.guarantee import Parameter

ETA = Parameter("eta", "η", "certified distance of the solve from the exact minimiser")
MU_ROUND = Parameter("mu_round", "μₜ", "its part for each round")
CLIP = Parameter("clip", "c", "norm that each record's gradient is clipped to")
STEP = Parameter("step", "s", "step of a gradient round")
DELTA_CURVATURE = Parameter("Delta", "Δ", "added quadratic curvature", is_noise=True)
LAMBDA = Parameter("Lambda", "Λ", "added quadratic curvature", is_noise=True)
ZETA = Parameter("zeta", "ζ", "bound on one record's gradient")
