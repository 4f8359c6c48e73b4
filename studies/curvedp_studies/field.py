"""Published code that is not as private as it says: what it delivers for a concrete pair of tables.

    python -m curvedp_studies.field docs/field.md

Every function states the released law for two neighbouring tables, as the code as published makes it, and how
far apart the two are: the smallest ε at the promised δ, or the smallest δ at the promised ε. Both are lower
bounds of what the code as a whole delivers. Nobody else's code is run here: `field_diffprivlib` measures the
one that is a package.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from curvedp.errors import InvalidInput
from curvedp.mechanisms.rule import Rule
from curvedp.privacy.budget import Neighbours
from curvedp.privacy.gaussian import calibrate_mu, epsilon_of
from curvedp_studies.mechanisms.wishart import FREEDOM, MomentAccounting, calibrate_statistics

LEVELS = (0.1, 0.5, 1.0, 3.0)
DELTA = 1e-6


def boosted_adassp_epsilon(epsilon: float, delta: float) -> float:
    """Boosted AdaSSP, noise of deviation μ·Δ where Δ/μ is needed: ε of the released θ at δ.

    One column. D: n records x = 1, y = 0. D′: one of them with y = 1. With n large the noisy Gram matrix is
    n on both, and every round replaces θ by (Σxy + μ·z)/n but for a term of order 1/n: only the last round's
    noise is left, and θ is Gaussian with means 1/n apart and deviation μ/n. The shift is 1/μ, whatever the
    rounds.
    """
    return epsilon_of(delta, 1.0 / calibrate_mu(epsilon, delta))


def ptr_threshold(epsilon: float, delta: float) -> float:
    """The distance that the test of TukeyEM asks for: log(1/(2δ))/(ε/2)."""
    return math.log(1.0 / (2.0 * delta)) / (epsilon / 2.0)


def ptr_failure(distance: float, epsilon: float, delta: float, scale: float) -> float:
    """P(distance + Laplace(scale) ≤ threshold): TukeyEM then releases zeros."""
    z = (ptr_threshold(epsilon, delta) - distance) / scale
    return 1.0 - 0.5 * math.exp(-z) if z >= 0 else 0.5 * math.exp(z)


def tukey_delta(epsilon: float, delta: float, scale: float | None = None) -> float:
    """TukeyEM's propose-test-release, noise of scale ε/2 where 1/(ε/2) is needed: δ of the test alone at ε.

    Below ε = 2 that is too little noise. The distance is a whole number that one record moves by at most 1,
    so along any chain of tables from one that fails to one that passes there are neighbours at k and k + 1,
    for every k between. The largest δ over k and over the two outcomes.
    """
    scale = epsilon / 2.0 if scale is None else scale
    nearest = math.floor(ptr_threshold(epsilon, delta))
    found = 0.0
    for k in range(max(nearest - 50, 0), nearest + 50):
        fail, other = (ptr_failure(distance, epsilon, delta, scale) for distance in (k, k + 1))
        found = max(found, fail - math.exp(epsilon) * other)
        found = max(found, (1.0 - other) - math.exp(epsilon) * (1.0 - fail))
    return found


def diffprivlib_linear_delta(epsilon: float, few: float = 0.01) -> float:
    """diffprivlib's LinearRegression: the noise of Σx² is scaled by the LOWER bound of x. δ at ε.

    One column in [0, 1], y in [0, 1], no intercept: the lower bound is 0, and Σx² is released exactly. D: x
    = few and 1; D′: x = few twice; y = 0. The coefficient is Laplace(3/ε)/Σx²: two Laplace laws with centre
    0 and scales s < t. Their hockey-stick divergence is reached on |w| < c where the densities cross.
    """
    s, t = (3.0 / epsilon / total for total in (few**2 + 1.0, 2.0 * few**2))
    c = (math.log(t / s) - epsilon) / (1.0 / s - 1.0 / t)
    return -math.expm1(-c / s) + math.exp(epsilon) * math.expm1(-c / t)


def diffprivlib_linear_parts(epsilon: float, d: int) -> float:
    """What the parts of diffprivlib's LinearRegression with an intercept add up to: ε(1 + 1/(d + 1)).

    ε/(d + 1) for the means of x, as much for the mean of y, and ε·d/(d + 1) for the objective.
    """
    return epsilon * (1.0 + 1.0 / (d + 1))


def diffprivlib_logistic_epsilon(epsilon: float, data_norm: float, C: float = 1.0) -> float:
    """diffprivlib's LogisticRegression: curvature bounded by data_norm/4 where it is data_norm²/4. Pure ε.

    One column, no intercept. D: x = 0 and x = R = data_norm, of different classes; D′: x = 0 twice. θ solves
    aθ + b − R·σ(−Rθ) = 0 on D, aθ + b = 0 on D′, with a = 1/C plus what the code adds, and b Laplace of scale
    2R/ε′: so θ has the density of b there times |db/dθ|. The supremum of the log ratio over θ.
    """
    R = data_norm
    used = 0.25 * R
    remaining, a = epsilon - 2.0 * math.log1p(used * C), 1.0 / C
    if remaining <= 0:
        remaining, a = epsilon / 2.0, used / math.expm1(epsilon / 4.0)
    scale = 2.0 * R / remaining
    theta = np.linspace(-50.0, 50.0, 400_001) / R
    pull = R * expit(-R * theta)
    curvature = R**2 * expit(R * theta) * expit(-R * theta)
    ratio = np.log1p(curvature / a) - (np.abs(pull - a * theta) - np.abs(a * theta)) / scale
    return float(np.max(np.abs(ratio)))


def diffprivlib_logistic_norm(epsilon: float, factor: float) -> float:
    """The data_norm at which the delivered ε is `factor` times the promised one."""
    return float(
        brentq(lambda R: diffprivlib_logistic_epsilon(epsilon, R) - factor * epsilon, 1.0, 1e6, rtol=1e-6)
    )


@dataclass(frozen=True)
class Line:
    """One finding at one promise."""

    code: str
    promised: str
    delivered: str

    def __str__(self) -> str:
        return f"| {self.code} | {self.promised} | {self.delivered} |"


def lines() -> list[Line]:
    """The table of docs/field.md."""
    found = [
        Line(
            "Boosted AdaSSP",
            f"ε = {e:g}, δ = 10⁻⁶",
            f"ε ≥ {boosted_adassp_epsilon(e, DELTA):.3g} at δ = 10⁻⁶",
        )
        for e in LEVELS
    ]
    found += [
        Line(
            "TukeyEM, the test alone",
            f"ε = {e:g}, δ = 10⁻⁶",
            f"δ ≥ {_digits(tukey_delta(e, DELTA))} at ε = {e:g}",
        )
        for e in LEVELS
        if e < 2.0  # from there on the noise is larger than needed
    ]
    found += [
        Line(
            "diffprivlib LinearRegression",
            f"ε = {e:g}, δ = 0",
            f"δ ≥ {_digits(diffprivlib_linear_delta(e))} at ε = {e:g}",
        )
        for e in LEVELS
    ]
    found += [
        Line(
            f"diffprivlib LogisticRegression, data_norm {norm:g}",
            f"ε = {e:g}, δ = 0",
            f"ε ≥ {diffprivlib_logistic_epsilon(e, norm):.3g}",
        )
        for norm in (12.0, 100.0)
        for e in LEVELS
    ]
    return found


def _digits(value: float) -> str:
    return f"{value:.4f}" if value < 0.9999 else "0.9999"


def ruler_norms(d: int, neighbours: Neighbours, share: float, epsilon: float = 1.0) -> tuple[float, float]:
    """Spectral norms of the noise on a released XᵀX, ‖x‖ ≤ 1, that has a share of μ²: Gaussian, then Wishart.

    σ√(2d) of a symmetric Gaussian matrix (S-2), 2σ²√(md) of σ²(W − mI) (S-1).
    """
    mu, m = calibrate_mu(epsilon, DELTA), FREEDOM * d
    others = mu * math.sqrt(1.0 - share)
    law = MomentAccounting(d, m, neighbours.adjacency)
    sigma2, _ = calibrate_statistics(epsilon, DELTA, law, L=1.0, mu=others)
    gaussian = neighbours.gram_factor / (mu * math.sqrt(share)) * math.sqrt(2.0 * d)
    return gaussian, 2.0 * sigma2 * math.sqrt(m * d)


def rulers() -> list[str]:
    """The table of `ruler_norms`: all of μ², and the share that the default's curvature has."""
    shares = (1.0, Rule().curvature_share)
    names = " | ".join(f"Gaussian | Wishart | ratio, {share:.0%} of μ²" for share in shares)
    rows = [f"| d | adjacency | {names} |", "|---|---" + "|---|---|---" * 2 + "|"]
    for d in (2, 10, 50):
        for neighbours in (Neighbours("add_remove"), Neighbours("replace")):
            norms = [ruler_norms(d, neighbours, share) for share in shares]
            cells = " | ".join(f"{ours:.1f} | {other:.1f} | {ours / other:.2f}" for ours, other in norms)
            rows.append(f"| {d} | {neighbours.adjacency} | {cells} |")
    return rows


def document(page: Path) -> None:
    """Put the tables between the marks of the page."""
    text = page.read_text(encoding="utf-8")
    codes = ["| code | promised | delivered, at least |", "|---|---|---|", *map(str, lines())]
    for part, table in (("numbers", codes), ("curvature", rulers())):
        begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
        if begin not in text or end not in text:
            raise InvalidInput(f"{page} must hold the marks {begin} and {end}")
        head, rest = text.split(begin, 1)
        text = "\n".join((f"{head}{begin}\n", *table, f"\n{end}{rest.split(end, 1)[1]}"))
    page.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=document.__doc__)
    parser.add_argument("page", type=Path)
    document(parser.parse_args(arguments).page)


if __name__ == "__main__":
    main()
