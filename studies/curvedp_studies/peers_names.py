"""What takes part in the comparison, by name."""

from __future__ import annotations

FIRST = "recentered"
FRESH, CLAIMED, PLAIN = "descent", "descent_claimed", "descent_plain"
NONPRIVATE, CONSTANT = "nonprivate", "constant"
IHM_REFERENCE, ADASSP_REFERENCE = "ihm_reference", "adassp_reference"

SHOWN = {
    FIRST: "the default",
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
    CONSTANT: "constant",
}


def shown(mechanism: str) -> str:
    return SHOWN.get(mechanism, mechanism)
