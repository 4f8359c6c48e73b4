"""Attacks on a search: a sound one stands, one whose comparison has too little noise is refuted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from curvedp import Budget, Domain, Problem
from curvedp.audit.gaussian_releases import attack
from curvedp.losses import Squared
from curvedp.mechanisms import Recentered
from curvedp.mechanisms.rule import Rule
from curvedp.regularizers import L2
from curvedp.rows import Rows, make_rows
from curvedp.selection.choice import Choice
from curvedp.selection.refits import RefitsPlan, plan_refits

DOMAIN = Domain(1.0, 1.0, "add_remove")


def plan() -> RefitsPlan:
    quick = Recentered(Rule(rounds=4, first_rounds=2))
    problems = [Problem(Squared(), L2(alpha), domain=DOMAIN) for alpha in (0.01, 1.0, 1e4)]
    return plan_refits(quick, problems, 1, 1, Budget(0.5, 1e-3))


def size(choice: Choice) -> float:
    """Of all improvements, in units of their noise: records at 0 have none, whatever was fitted."""
    return math.hypot(*(one.improvement / one.error for one in choice.compared if one.error > 0))


def tables() -> list[Rows]:
    """Nobody, and somebody whom no fit of nobody serves."""
    return [
        make_rows(np.zeros((200, 1)), np.zeros(200), DOMAIN),
        make_rows(np.r_[np.zeros((200, 1)), [[1.0]]], np.r_[np.zeros(200), -1.0], DOMAIN),
    ]


def test_a_sound_search_stands() -> None:
    assert attack(plan(), *tables(), size, fits=1200) <= 0.5


def test_a_planted_comparison_with_too_little_noise_is_refuted() -> None:
    sound = plan()
    planted = replace(sound, mu_scores=60 * sound.mu_scores)
    object.__setattr__(planted, "guarantee", sound.guarantee)
    assert attack(planted, *tables(), size, fits=1200) > 0.5


@pytest.mark.parametrize("adjacency", ["replace", "add_remove"])
def test_what_is_claimed_is_what_the_curve_proves(adjacency: str) -> None:
    domain = Domain(1.0, 1.0, adjacency)
    problems = [Problem(Squared(), L2(alpha), domain=domain) for alpha in (0.1, 10.0)]
    made = plan_refits(Recentered(), problems, 0, 3, Budget(1.0, 1e-6))
    assert made.guarantee.delta_at(1.0) <= 1e-6
    alone = made.inner.guarantee
    assert alone.epsilon == 0.975 and made.guarantee.delta_at(0.975) > alone.delta_at(0.975)
    assert 0.03 < (made.mu_scores / made.mu) ** 2 < 0.10
