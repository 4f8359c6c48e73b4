"""Calibrations from the library's own plans."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.losses import Huber, Logistic, Loss, Squared, spread_targets
from curvedp.mechanisms import inference
from curvedp.mechanisms.geometry import Geometry
from curvedp.mechanisms.inference import InferencePlan, RecenteredInference
from curvedp.neighbours import Adjacency
from curvedp.problem import Problem
from curvedp_studies.coverage.calibration import Calibration, Calibrations, Constants, LossConstants
from curvedp_studies.coverage.derivatives import HUBER_WIDTH, LOSSES
from curvedp_studies.coverage.populations import Population

DELTA = 1e-6


def loss_of(name: str) -> Loss:
    losses: dict[str, Loss] = {"squared": Squared(), "logistic": Logistic(), "huber": Huber(HUBER_WIDTH)}
    return losses[name]


def domain_of(population: Population, adjacency: Adjacency) -> Domain:
    return Domain(population.x_norm, 1.0, adjacency)


def plan_of(population: Population, epsilon: float, adjacency: Adjacency) -> InferencePlan:
    """The library's plan for this population."""
    problem = Problem(loss_of(population.loss), domain=domain_of(population, adjacency))
    return RecenteredInference(population.blocks).plan(problem, population.d, Budget(epsilon, DELTA))


def calibration(plan: InferencePlan) -> Calibration:
    """The public numbers of a plan; they depend on r, ε, δ and the adjacency alone."""
    walk, r = plan.walk, plan.walk.d
    return Calibration(
        r=r,
        epsilon=plan.budget.epsilon,
        adjacency=plan.problem.domain.adjacency,
        sigma2=walk.parameters.sigma2,
        m=walk.parameters.m,
        mu=walk.mu,
        far=walk.far,
        gram_slack=Geometry(np.eye(r), np.eye(r), float(r)).gram_slack(1.0),
        shifts=vars(walk.shifts),
        looks=vars(plan.looks),
    )


def constants() -> Constants:
    rule = RecenteredInference().rule
    return Constants(
        delta=DELTA,
        rule=vars(rule),
        edges=inference.EDGES,
        second_bound=inference.SECOND_BOUND,
        bread_bounds=inference.BREAD_BOUNDS,
        bread_growth=inference.BREAD_GROWTH,
        losses={name: _loss_constants(loss_of(name)) for name in LOSSES},
    )


def _loss_constants(loss: Loss) -> LossConstants:
    domain = Domain()
    targets = spread_targets(loss, domain)
    slopes = loss.gradient(np.zeros((len(targets), 1)), targets)
    return LossConstants(loss.curvature(domain, np.inf), float(np.sqrt(np.mean(slopes**2))))


def calibrated(
    dimensions: Iterable[int], epsilons: Iterable[float], adjacencies: Iterable[Adjacency]
) -> Calibrations:
    """For every number of coordinates, ε and adjacency."""
    plans = []
    epsilons, adjacencies = tuple(epsilons), tuple(adjacencies)
    for r in sorted(set(dimensions)):
        for epsilon in epsilons:
            for adjacency in adjacencies:
                problem = Problem(Squared(), domain=Domain(1.0, 1.0, adjacency))
                plans.append(calibration(RecenteredInference().plan(problem, r, Budget(epsilon, DELTA))))
    return Calibrations(constants(), tuple(plans))
