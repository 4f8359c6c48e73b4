"""Bugs planted in every mechanism and release: refuted with the stated number of runs; sound ones are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from curvedp.audit import audit_plan
from curvedp.audit.accounted import accounted
from curvedp.audit.fits import backend
from curvedp.audit.pairs import Pair
from curvedp.audit.records import Records, no_records
from curvedp.audit.releases import RELEASES, Release, audit_release
from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.looks import bounds
from curvedp.looks.describe import DescribePlan
from curvedp.looks.scales import CountNoise
from curvedp.losses import Logistic, Squared
from curvedp.mechanisms import NoisyGradient, OutputPerturbation, Recentered, Statistics
from curvedp.mechanisms.base import make_plan
from curvedp.mechanisms.geometry import geometry_of
from curvedp.mechanisms.noise import Grid
from curvedp.mechanisms.peers.functional import Functional
from curvedp.mechanisms.recentered import RecenteredPlan
from curvedp.mechanisms.rule import Rule
from curvedp.mechanisms.statistics import StatisticsPlan
from curvedp.problem import Problem
from curvedp.released.moments import ReleasedMoments
from curvedp.rows import make_rows
from curvedp.scores import noisy

BUDGET = Budget(1.0, 0.1)  # a large δ: the events that decide are common, few runs show them
DOMAIN = Domain(adjacency="add_remove")
PROBLEM = Problem(Squared(), domain=DOMAIN)
QUICK = Recentered(Rule(rounds=4, first_rounds=2))
LONG = np.array([1.0, 0.0])


def crowd(records: Records | None = None) -> Records:
    """Six short records and no more."""
    empty = records or no_records(DOMAIN, 2)
    return empty.plus(np.array([0.1, 0.2]), 0.5, 3.0).plus(np.array([-0.2, 0.1]), -0.5, 3.0)


def rows(plan: Any, left: Records | None = None) -> tuple[Any, tuple[Records, Records]]:
    """The plan, with the crowd and the crowd beside one long record."""
    left = left or crowd()
    return plan, (left, left.plus(LONG, -1.0))


def planted(cls: type, plan: Any) -> Any:
    return cls(**{field.name: getattr(plan, field.name) for field in fields(plan)})


class ExactTargets(StatisticsPlan):
    """Xᵀy without noise."""

    def release_moments(self, rows, random):
        released = super().release_moments(rows, random)
        return ReleasedMoments(released.xx, rows.moments().xy, released.xx_scale, released.xy_scale)


class ExactCurvature(RecenteredPlan):
    """S without noise."""

    def geometry(self, rows, noise, n, random):
        pilot = self._look(rows, noise, n)
        return geometry_of(pilot.gram, 1.0, self.rule.floor, n, pilot)


class ExactLengths(RecenteredPlan):
    """The histogram of lengths read without noise."""

    def length_bound(self, measured, noise, n, largest):
        edges = self.edges(largest)
        counts = measured.norm_histogram(edges)
        inside = edges[np.cumsum(counts[:-1]) >= self.rule.kept_lengths * counts.sum()]
        return (float(inside[0]) if inside.size else largest), n


class HonestLengths(ExactLengths):
    """The same rule, with noise."""

    def length_bound(self, measured, noise, n, largest):
        return RecenteredPlan.length_bound(self, measured, noise, n, largest)


@dataclass(frozen=True, eq=False)
class Unclipped(Records):
    """Gradients of any length."""

    def gradient_sum(self, loss, theta, clip=None):
        return super().gradient_sum(loss, theta)


class OneColumn(DescribePlan):
    """Noise as if no record had more than a fifth of its part in every sum."""

    @property
    def grids(self):
        sound = DescribePlan.calibrated(self.layout, self.budget).grids
        return {part: Grid(grid.sigma / 5, grid.step) for part, grid in sound.items()}


def walk(cls: type[RecenteredPlan] = RecenteredPlan) -> RecenteredPlan:
    return planted(cls, make_plan(QUICK, PROBLEM, 2, BUDGET))


def louder_rounds(times: float, mechanism: Any = QUICK) -> RecenteredPlan:
    """Noise of later rounds divided by `times`."""
    plan = make_plan(mechanism, PROBLEM, 2, BUDGET)
    return replace(plan, shifts=replace(plan.shifts, later=times * plan.shifts.later))


def output(times: float = 1.0) -> Any:
    plan = make_plan(OutputPerturbation(), Problem(Logistic(), domain=DOMAIN), 2, BUDGET)
    return replace(plan, ratio=plan.ratio / times, base_sigma=plan.base_sigma / times)


def gradient(times: float = 1.0) -> Any:
    plan = make_plan(NoisyGradient(rounds=20), PROBLEM, 2, BUDGET)
    return replace(plan, mu_round=times * plan.mu_round)


def functional(times: int = 1) -> Any:
    plan = make_plan(Functional(), PROBLEM, 2, Budget(1.0))
    return replace(plan, steps=plan.steps // times)


def every_row_a_person() -> Any:
    """The contribution of a person is not bounded: each of its rows counts as one."""
    plan, _ = RELEASES["persons"](BUDGET, "add_remove")
    X, y = np.random.default_rng(0).uniform(-0.3, 0.3, (40, 2)), np.zeros(40)

    def table(k: int) -> Any:
        X_k, y_k = np.vstack([X, np.tile([0.8, 0.6], (k, 1))]), np.append(y, -np.ones(k))
        return make_rows(X_k, y_k, plan.problem.domain, unit=np.arange(40 + k))

    return plan, (table(0), table(50))


def inference(times: float = 1.0) -> Any:
    """Noise on the bread divided by `times`; the record's gradient is small, so that its curvature counts."""
    plan, _ = RELEASES["inference"](BUDGET, "add_remove")
    X, domain = np.random.default_rng(0).uniform(-0.6, 0.6, (800, 2)), plan.problem.domain
    one_more = np.vstack([X, 0.9 * LONG])
    tables = make_rows(X, np.zeros(800), domain), make_rows(one_more, np.zeros(801), domain)
    return replace(plan, looks=replace(plan.looks, bread=times * plan.looks.bread)), tables


def tipping() -> Records:
    """One long record more, and fewer than four in five are short."""
    return no_records(DOMAIN, 2).plus(np.array([0.05, 0.0]), 0.5, 2.0).plus(np.array([0.0, 0.05]), 0.5, 1.0)


def released(name: str, change: Callable[[Any], Any] = lambda plan: plan) -> Any:
    plan, tables = RELEASES[name](BUDGET, "add_remove")
    return change(plan), tables


# name: (what is attacked, its sound version, runs)
BUGS: dict[str, tuple[Callable[[], Any], Callable[[], Any], int]] = {
    "statistics: Xᵀy without noise": (
        lambda: rows(planted(ExactTargets, make_plan(Statistics(), PROBLEM, 2, BUDGET))),
        lambda: rows(make_plan(Statistics(), PROBLEM, 2, BUDGET)),
        400,
    ),
    "recentered: S without noise": (
        lambda: rows(walk(ExactCurvature)),
        lambda: rows(walk()),
        120,
    ),
    "recentered: lengths without noise": (
        lambda: rows(walk(ExactLengths), tipping()),
        lambda: rows(walk(HonestLengths), tipping()),
        120,
    ),
    "recentered: clip forgotten": (
        lambda: rows(walk(), crowd(Unclipped(np.zeros((0, 2)), np.zeros(0), np.zeros(0), DOMAIN))),
        lambda: rows(walk()),
        120,
    ),
    "recentered: later rounds, noise/6": (
        lambda: rows(louder_rounds(6.0)),
        lambda: rows(louder_rounds(1.0)),
        200,
    ),
    "gradient: noise/5": (lambda: rows(gradient(5.0)), lambda: rows(gradient()), 200),
    "output: noise/5": (lambda: rows(output(5.0)), lambda: rows(output()), 20_000),
    "functional: discrete Laplace, scale/2": (
        lambda: rows(functional(2)),
        lambda: rows(functional()),
        100_000,
    ),
    "persons: contributions not bounded": (every_row_a_person, lambda: released("persons"), 120),
    "inference: bread without noise": (lambda: inference(1e4), inference, 120),
    "describe: noise/5": (
        lambda: released("describe", lambda plan: planted(OneColumn, plan)),
        lambda: released("describe"),
        20_000,
    ),
}


def judged(target: tuple[Any, Any], runs: int) -> Any:
    return audit_release(Release("", *target), fits=runs, confidence=0.99, seed=3)


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_refuted_and_the_sound_release_is_not(name):
    bug, sound, runs = BUGS[name]
    plan, _ = bug()
    assert plan.guarantee.epsilon == sound()[0].guarantee.epsilon == 1.0
    assert judged(bug(), runs).verdict == "refuted"
    assert judged(sound(), runs).verdict != "refuted"


def test_scores_with_noise_for_a_sixth_of_the_sensitivity_are_refuted(monkeypatch):
    sound = released("scores")
    assert judged(sound, 200).verdict != "refuted"
    grid = noisy.Split.grid
    monkeypatch.setattr(noisy.Split, "grid", lambda split, name, size: grid(split, name, size / 6))
    assert judged(sound, 200).verdict == "refuted"


@pytest.mark.full
def test_scores_with_noise_for_half_of_the_sensitivity_are_refuted(monkeypatch):
    sound = released("scores")
    assert judged(sound, 4_000).verdict != "refuted"
    grid = noisy.Split.grid
    monkeypatch.setattr(noisy.Split, "grid", lambda split, name, size: grid(split, name, size / 2))
    assert judged(sound, 4_000).verdict == "refuted"


@pytest.mark.full
def test_bounds_whose_counts_have_too_little_noise_are_refuted(monkeypatch):
    """A tenth of the noise on the counts of scales: a scale that one record has is seen."""
    plan, tables = released("bounds")
    assert judged((plan, tables), 600).verdict != "refuted"
    monkeypatch.setattr(bounds.BoundsPlan, "scale_noise", CountNoise(plan.scale_noise.scale // 10))
    assert judged(released("bounds"), 600).verdict == "refuted"  # a plan that has no noise of its own yet


@pytest.mark.full
def test_later_rounds_at_seven_tenths_of_their_noise_are_refuted_by_batches():
    """The whole default mechanism, 3·10⁶ fits."""
    for times, verdict in ((1.0 / 0.7, True), (1.0, False)):
        plan = louder_rounds(times, Recentered())
        report = audit_plan(plan, PROBLEM, fits=3_000_000, seed=1, device="cpu")
        assert report.beaten is verdict, report


def test_planted_plans_are_replayed_and_not_batched():
    """A batch by the law of the parent would attack code that is not shipped."""
    left, right = rows(None)[1]
    pair = Pair("", left, right, LONG[None])
    engine = backend("cpu")
    assert not getattr(accounted(walk(), pair, engine), "slow", False)
    assert accounted(walk(ExactCurvature), pair, engine).slow
