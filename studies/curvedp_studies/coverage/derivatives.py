"""φ' and φ'' of the losses of this study, for numpy and for torch alike."""

from __future__ import annotations

from typing import Any

HUBER_WIDTH = 0.25
LOSSES = ("squared", "logistic", "huber")


def slope(loss: str, s: Any, y: Any, xp: Any) -> Any:
    """φ'(s; y); `xp` is numpy or torch, s and y arrays of it."""
    if loss == "squared":
        return s - y
    if loss == "huber":
        return xp.clip(s - y, -HUBER_WIDTH, HUBER_WIDTH)
    return -0.5 * y * (1.0 - xp.tanh(0.5 * y * s))


def second(loss: str, s: Any, y: Any, xp: Any) -> Any:
    """φ''(s; y)."""
    if loss == "squared":
        return xp.ones_like(s)
    if loss == "huber":
        return (xp.abs(s - y) < HUBER_WIDTH) * xp.ones_like(s)
    return 0.25 * (1.0 - xp.tanh(0.5 * s) ** 2)
