"""Measures diffprivlib itself on the two pairs of tables of `field`; needs numpy and diffprivlib alone.

    python field_diffprivlib.py [RUNS]

diffprivlib 0.6.6 needs scikit-learn below 1.7: run it in an environment of its own.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from typing import Any

import numpy as np


def linear(first: float, second: float, runs: int, epsilon: float) -> tuple[Any, Any]:
    """(coefficients, noisy Σx²) of y = 0 on x = (first, second), both bounds [0, 1]."""
    LinearRegression = import_module("diffprivlib.models").LinearRegression
    X, y = np.array([[first], [second]]), np.zeros(2)
    options = {"bounds_X": (0, 1), "bounds_y": (0, 1), "fit_intercept": False}
    fits = [LinearRegression(epsilon=epsilon, random_state=s, **options).fit(X, y) for s in range(runs)]
    return np.array([fit.coef_[0] for fit in fits]), np.array([fit._obj_coefs[2][0, 0] for fit in fits])


def logistic(second: float, norm: float, runs: int, epsilon: float) -> Any:
    """Coefficients on x = (0, second) of different classes."""
    LogisticRegression = import_module("diffprivlib.models").LogisticRegression
    X, y = np.array([[0.0], [second]]), np.array([0, 1])
    options = {"data_norm": norm, "fit_intercept": False, "tol": 1e-10, "max_iter": 1000}
    return np.array(
        [
            LogisticRegression(epsilon=epsilon, random_state=s, **options).fit(X, y).coef_[0, 0]
            for s in range(runs)
        ]
    )


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    warnings.simplefilter("ignore")
    epsilon = 1.0
    (w, diagonal), (w2, diagonal2) = (linear(0.01, x, runs, epsilon) for x in (1.0, 0.01))
    p, q = np.mean(np.abs(w) < 24.0), np.mean(np.abs(w2) < 24.0)
    print(f"linear: deviation of the released Σx² {diagonal.std():.2g} and {diagonal2.std():.2g};")
    print(f"  P(|w| < 24) = {p:.4f} and {q:.4f}: δ({epsilon:g}) ≥ {p - np.exp(epsilon) * q:.3f}")
    for norm in (12.0, 100.0):
        with_record, without = (logistic(x, norm, runs, epsilon) for x in (norm, 0.0))
        width = 2.0 / norm
        p, q = (float(np.mean(np.abs(part) < width)) for part in (with_record, without))
        print(f"logistic, data_norm {norm:g}: P(|θ| < {width:.3g}) = {p:.4f} and {q:.4f}:")
        print(f"  ε ≥ {np.log(p / q):.2f}")


if __name__ == "__main__":
    main()
