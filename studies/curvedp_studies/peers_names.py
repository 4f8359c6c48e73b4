"""What takes part in the comparison, by name; the tables that the default's rule was chosen on."""

from __future__ import annotations

FIRST = "recentered"
FRESH, CLAIMED, PLAIN = "descent", "descent_claimed", "descent_plain"
NONPRIVATE, ZERO = "nonprivate", "zero"
IHM_REFERENCE, ADASSP_REFERENCE = "ihm_reference", "adassp_reference"

SHOWN = {
    FIRST: "recentered QOP",
    "statistics": "Gaussian statistics",
    "adassp": "AdaSSP",
    "ihm": "iterative Hessian mixing",
    "dp_newton": "DP-Newton, double noise",
    "qop": "QOP, direct",
    "lop": "LOP (P-8)",
    "amp": "AMP",
    "pure_lop": "LOP, pure ε",
    "output": "output perturbation",
    "functional": "functional mechanism",
    "exponential": "exponential mechanism",
    "gradient": "gradient descent, default",
    "dp_sgd": "DP-SGD, default",
    FRESH: "tuned descent, fresh noise",
    CLAIMED: "tuned descent, as claimed",
    PLAIN: "tuned descent, plain, as claimed",
    IHM_REFERENCE: "iterative Hessian mixing, authors' code",
    ADASSP_REFERENCE: "AdaSSP, the same authors' code",
    NONPRIVATE: "no privacy",
    ZERO: "θ = 0",
}

# The default's rule was chosen on these tables; the others were only run.
CHOSEN_ON = (
    "adult",
    "beijing_air",
    "bike",
    "california",
    "communities",
    "concrete",
    "credit_default",
    "diamonds",
    "elevators",
    "fertility",
    "kddcup99",
    "magic",
    "metro_traffic",
    "mnist_t10k",
    "protein",
    "spambase",
    "wine",
    "unit/breastcancer",
    "unit/elevators",
    "unit/energy",
    "unit/servo",
    "unit/solar",
    "unit/tamielectric",
    "unit/yacht",
)


def shown(mechanism: str) -> str:
    return SHOWN.get(mechanism, mechanism)
