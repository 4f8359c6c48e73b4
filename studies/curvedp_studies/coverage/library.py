"""Fits by the library itself: the plan that `inference=True` has, on samples of a population."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from curvedp.budget import Budget
from curvedp.domain import Domain
from curvedp.mechanisms.inference import InferencePlan, RecenteredInference
from curvedp.neighbours import Adjacency
from curvedp.problem import Problem
from curvedp.randomness import generator
from curvedp.released.inference import Releases
from curvedp.rows import DenseRows
from curvedp_studies.coverage.populations import Population, loss_of

DELTA = 1e-6
CHUNK = 20  # runs that are one piece of work


def chunks(runs: int) -> list[range]:
    """The runs 0, 1, … in pieces of work; what a run draws follows from its number alone."""
    return [range(start, min(start + CHUNK, runs)) for start in range(0, runs, CHUNK)]


def problem_of(population: Population, adjacency: Adjacency) -> Problem:
    return Problem(loss_of(population.loss), domain=Domain(population.x_norm, 1.0, adjacency))


def plan_of(population: Population, epsilon: float, adjacency: Adjacency) -> InferencePlan:
    """The library's plan for this population."""
    problem = problem_of(population, adjacency)
    return RecenteredInference(population.blocks).plan(problem, population.d, Budget(epsilon, DELTA))


def sample(population: Population, n: int | None, domain: Domain, seed: int) -> DenseRows:
    """n records with replacement; None: all records, each once."""
    everyone = np.arange(len(population.y))
    rows = everyone if n is None else np.random.default_rng(seed).integers(0, len(everyone), n)
    return DenseRows(population.X[rows], population.y[rows], domain, threads=1)


def releases(
    population: Population, plan: InferencePlan, n: int | None, seeds: Iterable[int]
) -> list[Releases]:
    """What each seed's sample and noise release."""
    told = []
    for seed in seeds:
        rows = sample(population, n, plan.problem.domain, seed)
        inference = plan.release(rows, generator(seed)).inference
        assert inference is not None
        told.append(inference.releases)
    return told
