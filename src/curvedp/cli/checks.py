"""`curvedp audit`, `compare` and `reproduce`: try to break it, compare it, repeat the paper."""

from __future__ import annotations


def audit() -> None:
    """Attack a guarantee. Exit code 0: no attack beat the claim; 1: one did."""


def compare() -> None:
    """Compare mechanisms on real tables."""


def reproduce() -> None:
    """The paper's figures and tables from one command."""
