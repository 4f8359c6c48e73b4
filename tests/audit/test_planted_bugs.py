"""Bugs planted on purpose: the audit catches each with at most 10⁶ fits, and the sound mechanism passes."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from curvedp.audit import audit_plan
from curvedp.audit.densities import LinearNoise, integrate
from curvedp.audit.fits import backend
from curvedp.audit.pairs import Pair
from curvedp.audit.records import Records, no_records
from curvedp.audit.samplers import Batches, Releases, sampler
from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.ledger import Ledger
from curvedp.losses import Huber, Squared
from curvedp.mechanisms.base import Estimate, make_plan
from curvedp.mechanisms.lop import LOPClip
from curvedp.mechanisms.qop import QOP, QOPPlan
from curvedp.problem import Problem
from curvedp.release import execute
from curvedp.rows.base import Layout
from curvedp.solvers import Objective, solve

BUDGET = Budget(1.0, 1e-2)
PROBLEM = Problem(Squared(), domain=Domain(adjacency="add_remove"))


def empty(d: int) -> Records:
    return no_records(PROBLEM.domain, d)


@cache
def qop(d: int) -> QOPPlan:
    return make_plan(QOP(), PROBLEM, d, BUDGET)


class WithoutCurvature(QOPPlan):
    """W dropped; a speck of ridge keeps the minimiser unique."""

    def on_grid(self, drawn, rows):
        return replace(super().on_grid(drawn, rows), quadratic=0.1 * np.eye(self.d))


class WithoutLinearNoise(QOPPlan):
    """a dropped."""

    def on_grid(self, drawn, rows):
        return replace(super().on_grid(drawn, rows), linear=np.zeros_like(drawn.linear))


class UnperturbedIntercept(QOPPlan):
    """The last column, an intercept, gets neither W nor a; a speck of ridge keeps the minimiser unique."""

    def on_grid(self, drawn, rows):
        used = super().on_grid(drawn, rows)
        quadratic, linear = used.quadratic.copy(), used.linear.copy()
        quadratic[-1], quadratic[:, -1], linear[-1] = 0.0, 0.0, 0.0
        quadratic[-1, -1] = 0.1
        return replace(used, quadratic=quadratic, linear=linear)


class OneAtATime(QOPPlan):
    """The sound mechanism, through its own release."""

    def release(self, rows, random):
        return super().release(rows, random)


@dataclass(frozen=True)
class QuarterSensitivity(Problem):
    """Δ_c divided by four before anything is calibrated."""

    def center_sensitivity(self, theta_c):
        return super().center_sensitivity(theta_c) / 4


@cache
def plan_for_bound(bound: float, d: int) -> QOPPlan:
    problem = Problem(Squared(), domain=Domain(x_norm=bound, adjacency="add_remove"))
    return make_plan(QOP(accounting="spectral", m=40.0), problem, d, BUDGET)


@dataclass(frozen=True)
class BoundFromData:
    """The norm bound is the longest record of the dataset."""

    d: int

    @property
    def guarantee(self):
        return plan_for_bound(1.0, self.d).guarantee

    @property
    def layout(self):
        return Layout(PROBLEM.domain, self.d)

    def pulls(self):
        return plan_for_bound(1.0, self.d).pulls()

    def release(self, rows: Records, generator):
        longest = float(np.sqrt(np.square(rows.x).sum(1)).max(initial=0.0)) or 1.0
        return plan_for_bound(longest, self.d).release(rows, generator)


@dataclass(frozen=True)
class ReusedNoise:
    """Two fits, of all records and of those with y ≥ 0, from one draw of W and a; claimed at 2ε and 2δ."""

    plan: QOPPlan

    @property
    def guarantee(self):
        once = self.plan.guarantee
        return replace(once, budget=Budget(2 * once.epsilon, 2 * once.delta))

    @property
    def layout(self):
        return self.plan.layout

    def pulls(self):
        return self.plan.pulls()

    def fits(self, rows: Records) -> list[Records]:
        kept = rows.y >= 0
        return [rows, replace(rows, x=rows.x[kept], y=rows.y[kept], counts=rows.counts[kept])]

    def release(self, rows: Records, generator):
        plan, drawn = self.plan, self.plan.perturbation(generator)
        output = plan.output(plan.rows_at_most(rows.count(), generator), rows.magnitude)
        objectives = [Objective(plan.problem, part, plan.on_grid(drawn, part)) for part in self.fits(rows)]
        fits = [solve(objective, output.tolerance(plan.d)).theta for objective in objectives]
        return Estimate(np.hstack([output.blur(theta, generator) for theta in fits]))


@dataclass(frozen=True)
class FreshNoise(ReusedNoise):
    """The sound version: a draw for each fit."""

    def release(self, rows: Records, generator):
        return Estimate(np.hstack([self.plan.release(part, generator).theta for part in self.fits(rows)]))


def subclassed(cls, plan: QOPPlan) -> QOPPlan:
    return cls(**{field.name: getattr(plan, field.name) for field in fields(plan)})


def quarter_noise(plan: QOPPlan) -> QOPPlan:
    p = plan.parameters
    return replace(plan, parameters=replace(p, sigma2=p.sigma2 / 4, sigma0=p.sigma0 / 4))


def unit_norm_gradients():
    """LOP-Clip at ζ = 0.1 whose clipped gradients have norm 1."""
    return replace(make_plan(LOPClip(clip=0.1), PROBLEM, 2, BUDGET), clip=1.0)


BUGS = {
    "noise/4": (lambda: quarter_noise(qop(2)), 60_000),
    "W dropped": (lambda: subclassed(WithoutCurvature, qop(2)), 1_200),
    "a dropped": (lambda: subclassed(WithoutLinearNoise, qop(2)), 1_200),
    "sensitivity/4": (
        lambda: make_plan(QOP(), QuarterSensitivity(Squared(), domain=PROBLEM.domain), 2, BUDGET),
        300_000,
    ),
    "a bound read from the data": (lambda: BoundFromData(2), 1_200),
    "the intercept left unperturbed": (lambda: subclassed(UnperturbedIntercept, qop(2)), 1_200),
    "one noise draw reused for two fits": (lambda: ReusedNoise(qop(2)), 3_000),
    "LOP-Clip with unit-norm gradients": (unit_norm_gradients, 60_000),
}
SOUND = {
    "QOP": (lambda: qop(2), 100_000),
    "QOP released one at a time": (lambda: subclassed(OneAtATime, qop(2)), 1_200),
    "two fits with fresh noise": (lambda: FreshNoise(qop(2)), 1_200),
    "LOP-Clip": (lambda: make_plan(LOPClip(clip=0.1), PROBLEM, 2, BUDGET), 100_000),
}


@pytest.mark.parametrize("name", BUGS)
def test_the_audit_catches(name):
    make, fits = BUGS[name]
    plan = make()
    report = audit_plan(plan, PROBLEM, fits=fits, confidence=0.999, seed=1, device="cpu")
    assert report.fits <= 1_000_000
    assert report.beaten, report
    assert (report.epsilon, report.delta) == (plan.guarantee.epsilon, plan.guarantee.delta)


@pytest.mark.parametrize("name", SOUND)
def test_the_audit_passes(name):
    make, fits = SOUND[name]
    report = audit_plan(make(), PROBLEM, fits=fits, confidence=0.999, seed=1, device="cpu")
    assert not report.beaten, report
    assert report.complete


def test_a_subclass_is_audited_by_its_own_release():
    """A fast path that ignored an overridden method would audit code that is not shipped."""
    pair = Pair("", empty(2), empty(2).plus(np.eye(2)[0], 1.0), np.eye(2)[:1])
    engine = backend("cpu")
    assert isinstance(sampler(qop(2), pair, engine), Batches)
    assert isinstance(sampler(subclassed(type("Same", (QOPPlan,), {}), qop(2)), pair, engine), Batches)
    assert isinstance(sampler(subclassed(WithoutCurvature, qop(2)), pair, engine), Releases)
    changed = type("Changed", (type("Between", (WithoutCurvature,), {}),), {})
    assert isinstance(sampler(subclassed(changed, qop(2)), pair, engine), Releases)


@dataclass(frozen=True)
class Undercharged:
    """An account that takes a share of every ε."""

    ledger: Ledger
    share: float

    def charge(self, guarantee, label=""):
        said = ("delta", "neighbours", "mechanism", "theorem", "private", "costs")
        cost = {name: getattr(guarantee, name) for name in said}
        self.ledger.charge(SimpleNamespace(epsilon=self.share * guarantee.epsilon, **cost), label)


def test_a_ledger_charged_half_is_caught(tmp_path):
    """The claim is what the ledger says was spent; the fits are those of the mechanism that ran."""
    plan = make_plan(QOP(m=150.0), PROBLEM, 1, BUDGET)
    rows = empty(1).plus(np.ones(1), 1.0)
    spent = {}
    for name, share in (("half", 0.5), ("whole", 1.0)):
        ledger = Ledger.create(
            tmp_path / f"{name}.db", epsilon=3.0, delta=0.1, adjacency="add_remove", filter="basic"
        )
        execute(plan, rows, ledger=Undercharged(ledger, share))
        state = ledger.state()
        spent[name] = (state.spent_epsilon, state.spent_delta)
    half, whole = (
        audit_plan(plan, PROBLEM, claimed=spent[name], fits=fits, confidence=0.999, device="cpu")
        for name, fits in (("half", 300_000), ("whole", 100_000))
    )
    assert half.beaten and any(a.fits and a.epsilon > half.epsilon for a in half.attacks)
    assert not whole.beaten


@pytest.mark.parametrize(("delta", "true_delta"), [(1e-6, 1.5839e-6), (1e-8, 1.6855e-7), (1e-10, 2.0237e-8)])
def test_the_published_calibration_of_lop_fails_under_replace(delta, true_delta):
    """D: a slope of −ζ everywhere. D': a ramp of slope L from −ζ to ζ. Samples cannot show it."""
    epsilon, L, zeta = 1.0, 1.0, 1.0
    Delta = 2 * L / epsilon
    sigma = zeta * math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
    noise = LinearNoise(Delta, sigma, np.zeros(1))
    constant = empty(1).plus(np.ones(1), 1e6)
    worst = 0.0
    for place in np.linspace(-35.0, -20.0, 31):
        ramp = empty(1).plus(np.ones(1), place)
        grid = integrate(noise, constant, ramp, Huber(zeta), 0.0, sigma / Delta / 2)
        worst = max(worst, *grid.deltas(epsilon))
    assert worst > 1.5 * delta
    assert worst == pytest.approx(true_delta, rel=2e-3)  # by 2·10⁶ points on each piece
