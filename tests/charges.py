"""A release as a ledger sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from curvedp.privacy.budget import Neighbours
from curvedp.privacy.gaussian import Cost, calibrate_mu, pure_mu

ROWS = Neighbours("replace")


@dataclass(frozen=True)
class Release:
    """Whatever has these can be charged."""

    epsilon: float = 0.1
    delta: float = 1e-7
    neighbours: Neighbours = ROWS
    mechanism: str = "qop"
    theorem: str = "(P-6)"
    private: bool = True
    costs: tuple[Cost, ...] = ()


def gaussian(epsilon: float, delta: float, **said: Any) -> Release:
    """A Gaussian release that is calibrated to (ε, δ)."""
    return Release(epsilon, delta, costs=(Cost(calibrate_mu(epsilon, delta)),), **said)


def pure(epsilon: float, **said: Any) -> Release:
    """A purely ε-private release."""
    return Release(epsilon, 0.0, costs=(Cost(pure_mu(epsilon)),), **said)
