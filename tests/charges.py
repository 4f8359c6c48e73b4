"""A release as a ledger sees it."""

from __future__ import annotations

from dataclasses import dataclass

from curvedp.neighbours import Neighbours

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
    zcdp_rho: float | None = None
