"""Fits by the library itself: the plan of a default fit, on samples of a population."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from curvedp.data.rows import ArrayRows, Rows
from curvedp.mechanisms.base import Estimate
from curvedp.mechanisms.recentered import Recentered, RecenteredPlan
from curvedp.privacy.budget import Adjacency, Budget
from curvedp.problems import Problem
from curvedp.problems.domain import Domain
from curvedp.randomness import generator
from curvedp_studies.coverage.populations import Population, loss_of

DELTA = 1e-6
CHUNK = 20  # runs that are one piece of work


def chunks(runs: int) -> list[range]:
    """The runs 0, 1, … in pieces of work; what a run draws follows from its number alone."""
    return [range(start, min(start + CHUNK, runs)) for start in range(0, runs, CHUNK)]


def problem_of(population: Population, adjacency: Adjacency) -> Problem:
    unit = None if population.starts is None else "person"
    return Problem(loss_of(population.loss), domain=Domain(population.x_norm, 1.0, adjacency, unit))


def plan_of(population: Population, epsilon: float, adjacency: Adjacency) -> RecenteredPlan:
    """The library's plan for this population."""
    problem = problem_of(population, adjacency)
    mechanism = Recentered(coding=population.coding, inference=True)
    return mechanism.plan(problem, population.d, Budget(epsilon, DELTA))


def sample(population: Population, n: int | None, domain: Domain, seed: int) -> Rows:
    """n records, or persons with all their rows, with replacement; None: all of them, each once."""
    starts = population.starts
    if starts is not None:
        everyone = np.arange(len(starts) - 1)
        who = everyone if n is None else np.random.default_rng(seed).integers(0, len(everyone), n)
        sizes = np.diff(starts)[who]
        codes = np.repeat(np.arange(len(who)), sizes)
        first = np.repeat(starts[who] - np.cumsum(sizes) + sizes, sizes)
        rows = first + np.arange(len(codes))
        return ArrayRows(population.X[rows], population.y[rows], domain, codes=codes)
    everyone = np.arange(len(population.y))
    rows = everyone if n is None else np.random.default_rng(seed).integers(0, len(everyone), n)
    return ArrayRows(population.X[rows], population.y[rows], domain, threads=1)


def releases(
    population: Population, plan: RecenteredPlan, n: int | None, seeds: Iterable[int]
) -> list[Estimate]:
    """What each seed's sample and noise release."""
    domain = plan.problem.domain
    return [plan.release(sample(population, n, domain, seed), generator(seed)) for seed in seeds]
