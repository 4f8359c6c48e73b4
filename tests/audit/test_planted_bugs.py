"""Bugs planted on purpose: the audit catches each with at most 10⁶ fits, and the sound mechanism passes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from curvedp.audit import audit_plan
from curvedp.audit.densities import LinearNoise, integrate
from curvedp.audit.pairs import Pair
from curvedp.audit.records import Records, no_records
from curvedp.audit.samplers import Batches, Releases, sampler
from curvedp.budget import Expense
from curvedp.domain import Domain
from curvedp.fit import fit_rows
from curvedp.ledger import Ledger
from curvedp.losses import Huber, Squared
from curvedp.mechanisms.base import Release
from curvedp.mechanisms.lop import LOPClip
from curvedp.mechanisms.output_noise import OutputNoise
from curvedp.mechanisms.qop import QOP, QOPPlan
from curvedp.problem import Problem
from curvedp.solvers import Objective
from curvedp.solvers.batched import backend

EPSILON, DELTA = 1.0, 1e-2
PROBLEM = Problem(Squared(), domain=Domain(adjacency="add_remove"))


@cache
def qop(d: int) -> QOPPlan:
    return QOP(EPSILON, DELTA).plan(PROBLEM, d)


class WithoutCurvature(QOPPlan):
    """W dropped; a speck of ridge keeps the minimiser unique."""

    def draw(self, rows, generator):
        perturbation = super().draw(rows, generator)
        return replace(perturbation, quadratic=0.1 * np.eye(self.d))


class WithoutLinearNoise(QOPPlan):
    """a dropped."""

    def draw(self, rows, generator):
        perturbation = super().draw(rows, generator)
        return replace(perturbation, linear=np.zeros_like(perturbation.linear))


class UnperturbedIntercept(QOPPlan):
    """The last column, an intercept, gets neither W nor a; a speck of ridge keeps the minimiser unique."""

    def draw(self, rows, generator):
        perturbation = super().draw(rows, generator)
        quadratic, linear = perturbation.quadratic.copy(), perturbation.linear.copy()
        quadratic[-1], quadratic[:, -1], linear[-1] = 0.0, 0.0, 0.0
        quadratic[-1, -1] = 0.1
        return replace(perturbation, quadratic=quadratic, linear=linear)


@dataclass(frozen=True)
class QuarterSensitivity(Problem):
    """Δ_c divided by four before anything is calibrated."""

    def center_sensitivity(self, theta_c):
        return super().center_sensitivity(theta_c) / 4


@cache
def plan_for_bound(bound: float, d: int) -> QOPPlan:
    return QOP(EPSILON, DELTA, accounting="spectral", m=40.0).plan(
        Problem(Squared(), domain=Domain(x_norm=bound, adjacency="add_remove")), d
    )


@dataclass(frozen=True)
class BoundFromData:
    """The norm bound is the longest record of the dataset."""

    d: int

    @property
    def guarantee(self):
        return plan_for_bound(1.0, self.d).guarantee

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
        return replace(once, epsilon=2 * once.epsilon, delta=2 * once.delta)

    def release(self, rows: Records, generator):
        perturbation = self.plan.draw(rows, generator)
        kept = rows.y >= 0
        fits = [rows, Records(rows.x[kept], rows.y[kept], rows.counts[kept])]
        noise = OutputNoise(self.plan.parameters.eta, self.plan.parameters.sigma_tilde)
        theta = [noise.release(Objective(self.plan.problem, part, perturbation), generator) for part in fits]
        return Release(np.hstack(theta), self.guarantee)


@dataclass(frozen=True)
class FreshNoise(ReusedNoise):
    """The sound version: a draw for each fit."""

    def release(self, rows: Records, generator):
        kept = rows.y >= 0
        fits = [rows, Records(rows.x[kept], rows.y[kept], rows.counts[kept])]
        theta = [self.plan.release(part, generator).theta for part in fits]
        return Release(np.hstack(theta), self.guarantee)


def subclassed(cls, plan: QOPPlan) -> QOPPlan:
    return cls(plan.problem, plan.d, plan.center, plan.parameters, plan.exact)


def quarter_noise(plan: QOPPlan) -> QOPPlan:
    p = plan.parameters
    return replace(plan, parameters=replace(p, sigma2=p.sigma2 / 4, sigma0=p.sigma0 / 4))


def unit_norm_gradients():
    """LOP-Clip at ζ = 0.1 whose clipped gradients have norm 1."""
    return replace(LOPClip(EPSILON, DELTA, clip=0.1).plan(PROBLEM, 2), clip=1.0)


CLAIM = (EPSILON, DELTA)
BUGS = {
    "noise/4": (lambda: quarter_noise(qop(2)), 300_000),
    "W dropped": (lambda: subclassed(WithoutCurvature, qop(2)), 3_000),
    "a dropped": (lambda: subclassed(WithoutLinearNoise, qop(2)), 3_000),
    "sensitivity/4": (
        lambda: QOP(EPSILON, DELTA).plan(QuarterSensitivity(Squared(), domain=PROBLEM.domain), 2),
        300_000,
    ),
    "a bound read from the data": (lambda: BoundFromData(2), 3_000),
    "the intercept left unperturbed": (lambda: subclassed(UnperturbedIntercept, qop(2)), 3_000),
    "one noise draw reused for two fits": (lambda: ReusedNoise(qop(2)), 3_000),
    "LOP-Clip with unit-norm gradients": (unit_norm_gradients, 300_000),
}
SOUND = {
    "QOP": (lambda: qop(2), 300_000),
    "QOP released one at a time": (lambda: subclassed(type("Same", (QOPPlan,), {}), qop(2)), 3_000),
    "two fits with fresh noise": (lambda: FreshNoise(qop(2)), 3_000),
    "LOP-Clip": (lambda: LOPClip(EPSILON, DELTA, clip=0.1).plan(PROBLEM, 2), 300_000),
}


@pytest.mark.parametrize("name", BUGS)
def test_the_audit_catches(name):
    make, fits = BUGS[name]
    plan = make()
    report = audit_plan(plan, PROBLEM, features=2, fits=fits, confidence=0.999, seed=1, device="cpu")
    assert report.fits <= 1_000_000
    assert report.beaten, report
    assert (report.epsilon, report.delta) == (plan.guarantee.epsilon, plan.guarantee.delta)


@pytest.mark.parametrize("name", SOUND)
def test_the_audit_passes(name):
    make, fits = SOUND[name]
    report = audit_plan(make(), PROBLEM, features=2, fits=fits, confidence=0.999, seed=1, device="cpu")
    assert not report.beaten, report
    assert report.complete


def test_a_subclass_is_audited_by_its_own_release():
    """A fast path that ignored an overridden method would audit code that is not shipped."""
    pair = Pair("", no_records(2), no_records(2).plus(np.eye(2)[0], 1.0), np.eye(2)[:1])
    engine = backend("cpu")
    assert isinstance(sampler(qop(2), pair, engine), Batches)
    assert isinstance(sampler(subclassed(WithoutCurvature, qop(2)), pair, engine), Releases)


def test_a_ledger_charged_half_is_caught(tmp_path):
    """The claim is what the ledger says was spent; the fits are those of the mechanism that ran."""
    mechanism = QOP(EPSILON, DELTA, m=150.0)
    rows = no_records(1).plus(np.ones(1), 1.0)
    spent = {}
    for name, share in (("half", 0.5), ("whole", 1.0)):
        ledger = Ledger.create(tmp_path / f"{name}.db", epsilon=3.0, delta=0.1, adjacency="add_remove")

        def charge(guarantee, ledger=ledger, share=share):
            g = guarantee
            ledger.charge(
                Expense(share * g.epsilon, g.delta, g.adjacency, mechanism=g.mechanism, theorem=g.theorem)
            )

        fit_rows(PROBLEM, rows, mechanism=mechanism, charge=charge)
        state = ledger.state()
        spent[name] = (state.spent_epsilon, state.spent_delta)
    plan = mechanism.plan(PROBLEM, 1)
    half, whole = (
        audit_plan(
            plan, PROBLEM, features=1, claimed=spent[name], fits=300_000, confidence=0.999, device="cpu"
        )
        for name in ("half", "whole")
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
    constant = no_records(1).plus(np.ones(1), 1e6)
    worst = 0.0
    for place in np.linspace(-35.0, -20.0, 31):
        ramp = no_records(1).plus(np.ones(1), place)
        grid = integrate(noise, constant, ramp, Huber(zeta), 0.0, sigma / Delta / 2)
        worst = max(worst, *grid.deltas(epsilon))
    assert worst > 1.5 * delta
    assert worst == pytest.approx(true_delta, rel=2e-3)  # by 2·10⁶ points on each piece
