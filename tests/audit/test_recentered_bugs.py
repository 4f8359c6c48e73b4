"""Bugs planted in the default mechanism, found from what it releases on the way: in batches or by replay."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from functools import cache

import pytest

from curvedp.audit import audit_plan
from curvedp.audit.accounted import AccountedFits, accounted
from curvedp.audit.fits import backend
from curvedp.audit.pairs import walk_pairs
from curvedp.audit.records import Records
from curvedp.audit.replayed import Replayed
from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.losses import Squared
from curvedp.mechanisms.base import make_plan
from curvedp.mechanisms.geometry import geometry_of
from curvedp.mechanisms.recentered import Recentered, RecenteredPlan
from curvedp.mechanisms.rule import Rule
from curvedp.problem import Problem

BUDGET = Budget(1.0, 1e-2)
PROBLEM = Problem(Squared(), domain=Domain(adjacency="add_remove"))
SHORT = Rule(rounds=8, first_rounds=3, quick_rounds=4, quick_first_rounds=2)


@cache
def plan(rule: Rule | None = None) -> RecenteredPlan:
    return make_plan(Recentered(rule or Rule()), PROBLEM, 2, BUDGET)


def louder(name: str, times: float) -> RecenteredPlan:
    """One kind of release has a shift that the accounting does not know: `times` as much."""
    sound = plan()
    return replace(sound, shifts=replace(sound.shifts, **{name: times * getattr(sound.shifts, name)}))


# Alone, each release has a small share of the budget: how many times it must be exceeded follows from that.
LOUD = {
    "too little noise in later rounds": ("later", 1.7),
    "the histogram of gradients with a fifth of its noise": ("clip", 5.0),
    "a pilot with a quarter of its noise": ("pilot", 4.0),
}


@pytest.mark.parametrize("name", LOUD)
def test_a_release_that_is_louder_than_accounted_is_refuted(name):
    kind, times = LOUD[name]
    planted = louder(kind, times)
    assert planted.guarantee.epsilon == BUDGET.epsilon  # it claims what the sound one claims
    report = audit_plan(planted, PROBLEM, fits=150_000, seed=1, device="cpu")
    assert report.verdict == "refuted" and report.proved_of("everything released") > BUDGET.epsilon


@pytest.mark.parametrize(("adjacency", "at_least"), [("add_remove", 0.65), ("replace", 0.55)])
def test_the_sound_mechanism_holds_and_the_attack_has_power(adjacency, at_least):
    problem = Problem(Squared(), domain=Domain(adjacency=adjacency))
    sound = make_plan(Recentered(), problem, 2, BUDGET)
    report = audit_plan(sound, problem, fits=150_000, seed=1, confidence=1 - 1e-4, device="cpu")
    assert report.verdict == "held" and at_least < report.share < 1.0
    leaves = report.proved_of("what leaves")
    assert leaves is not None and leaves < report.proved


class Unclipped(Records):
    """Rows that forget to clip gradients."""

    def gradient_sum(self, loss, theta, clip=None):
        return super().gradient_sum(loss, theta)


class ForgetsClip(RecenteredPlan):
    def release(self, rows, random):
        return super().release(Unclipped(**vars(rows)), random)


class BareCurvature(RecenteredPlan):
    """S without noise."""

    def geometry(self, rows, noise, n, random):
        pilot = self._given_coordinates(rows)
        sigma2, m = pilot.bound**2 * self.parameters.sigma2, self.parameters.m
        return geometry_of(pilot.gram, 2.0 * sigma2 * math.sqrt(m * self.d), self.rule.floor, n, pilot)


class Untouched(RecenteredPlan):
    """The sound mechanism, through its own release."""

    def release(self, rows, random):
        return super().release(rows, random)


def changed(kind: type[RecenteredPlan]) -> RecenteredPlan:
    sound = plan(SHORT)
    return kind(**{field.name: getattr(sound, field.name) for field in fields(sound)})


def test_a_subclass_is_attacked_by_its_own_code():
    pair, engine = walk_pairs(PROBLEM, 2, plan().mu)[0], backend("cpu")
    assert isinstance(accounted(plan(), pair, engine), AccountedFits)
    assert isinstance(accounted(changed(Untouched), pair, engine), Replayed)


@pytest.mark.parametrize(
    ("kind", "refuted"), [(ForgetsClip, True), (BareCurvature, True), (Untouched, False)]
)
def test_a_bug_in_the_code_is_found_by_its_replay(kind, refuted):
    planted = changed(kind)
    pairs = walk_pairs(PROBLEM, 2, planted.mu)[:1]
    report = audit_plan(planted, PROBLEM, pairs=pairs, fits=500, seed=1, device="cpu")
    assert (report.verdict == "refuted") is refuted, report
