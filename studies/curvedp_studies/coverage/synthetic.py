"""Generated populations: "KIND-D" with D columns and an intercept, and a small table with rare levels."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from curvedp.arrays import FloatArray
from curvedp.data.mapping import Coding, ColumnMap
from curvedp_studies.coverage.populations import EXPOSED, Population

RECORDS = 100_000
DIMENSIONS = (3, 10, 30)
_SIGNAL = 0.2  # standard deviation of xᵀθ around its mean; targets lie in [−1, 1]

Errors = Callable[[np.random.Generator, FloatArray], FloatArray]
ERRORS: dict[str, Errors] = {
    "gaussian": lambda random, X: 0.16 * random.standard_normal(len(X)),
    "hetero": lambda random, X: 0.156 * (0.5 + 2.0 * np.abs(X[:, 0])) * random.standard_normal(len(X)),
    "heavy": lambda random, X: 0.1 * random.standard_t(3, len(X)),
    "skewed": lambda random, X: 0.13 * (random.standard_exponential(len(X)) - 1.0),
    "huber": lambda random, X: 0.17 * (random.standard_exponential(len(X)) - 1.0),
}
KINDS = (*ERRORS, "logistic")
_SKEWED = ("skewed", "huber")  # with skewed columns, too
NAMES = tuple(f"{kind}-{d}" for kind in KINDS for d in DIMENSIONS)


def synthetic(name: str) -> Population:
    """Correlated normal columns cut at 4 deviations (or exponential ones), a linear signal, errors."""
    kind, _, digits = name.partition("-")
    d = int(digits)
    random = np.random.default_rng([KINDS.index(kind), d])
    if kind in _SKEWED:
        X = np.minimum(random.standard_exponential((RECORDS, d)), 6.0) / 3.0 - 1.0
    else:
        L = np.linalg.cholesky(np.full((d, d), 0.3) + 0.7 * np.eye(d))
        X = np.clip(random.standard_normal((RECORDS, d)) @ L.T, -4.0, 4.0) / 4.0
    signal = X @ random.uniform(-1.0, 1.0, d)
    signal = _SIGNAL * (signal - signal.mean()) / signal.std()
    if kind == "logistic":
        loss = "logistic"
        y = np.where(random.random(RECORDS) < 1.0 / (1.0 + np.exp(0.5 - 6.0 * signal)), 1.0, -1.0)
    else:
        loss = "huber" if kind == "huber" else "squared"
        y = np.clip(signal + ERRORS[kind](random, X), -1.0, 1.0)
    return Population.of(name, loss, np.column_stack([X, np.ones(RECORDS)]), y, math.sqrt(d + 1.0))


COUNTS = ("counts-few", "counts-many", "counts-varied", "counts-exposed", "classes-even", "classes-rare")
_COUNTED = 6  # columns of them
# mean and largest count, deviation of the logarithm of the rate, variance of a factor that rates have beside
_RATES = {
    "few": (0.3, 10, 0.5, 0.0),
    "many": (8.0, 60, 0.7, 0.0),
    "varied": (2.0, 40, 0.5, 1.0),
    "exposed": (1.0, 40, 0.5, 0.0),
}


def counted(name: str) -> Population:
    """Correlated normal columns as in `synthetic`; counts by a Poisson law, or three classes.

    "varied": the rate has a gamma factor of variance 1, so that counts vary more than a Poisson law says;
    "exposed": it is for an exposure from ¼ to 4. "classes-rare": 75, 18 and 7 % were the columns all 0.
    """
    kind, what = name.split("-")
    random, d = np.random.default_rng([57, COUNTS.index(name)]), _COUNTED
    L = np.linalg.cholesky(np.full((d, d), 0.3) + 0.7 * np.eye(d))
    X = np.clip(random.standard_normal((RECORDS, d)) @ L.T, -4.0, 4.0) / 4.0
    signal = X @ random.uniform(-1.0, 1.0, (d, 3))
    signal = (signal - signal.mean(axis=0)) / signal.std(axis=0)
    coding = Coding((0.0,) * (d + 1), constant=d)
    records = np.column_stack([X, np.ones(RECORDS)])
    if kind == "classes":
        odds = np.exp(signal + np.log([0.75, 0.18, 0.07] if what == "rare" else [1.0, 1.0, 1.0]))
        below = np.cumsum(odds, axis=1) < random.random((RECORDS, 1)) * odds.sum(axis=1, keepdims=True)
        y = below.sum(axis=1).astype(np.float64)
        return Population.of(name, "classes", records, y, math.sqrt(d + 1.0), coding)
    mean, largest, spread, extra = _RATES[what]
    offset = random.uniform(-EXPOSED, EXPOSED, RECORDS) if what == "exposed" else np.zeros(RECORDS)
    rate = mean * np.exp(spread * signal[:, 0] + offset)
    if extra:
        rate = rate * random.gamma(1.0 / extra, extra, RECORDS)
    y = np.minimum(random.poisson(rate), largest) / largest
    if what == "exposed":
        return Population.of(
            name, "exposed", records, np.column_stack([y, offset]), math.sqrt(d + 1.0), coding
        )
    return Population.of(name, "poisson", records, y, math.sqrt(d + 1.0), coding)


PERSONS = tuple(f"persons-{kind}" for kind in ("linear", "logistic", "informative", "many"))
_PEOPLE = 20_000


def people(name: str) -> Population:
    """Persons with random intercepts: skewed numbers of rows from 1 to 20, or to 50 ("many").

    Two numbers that differ within and between persons, a third and a category of 50, 35 and 15 % between them
    only. "informative": the more rows, the larger the response.
    """
    kind = name.removeprefix("persons-")
    random = np.random.default_rng([31, PERSONS.index(name)])
    most = 50 if kind == "many" else 20
    sizes = np.minimum(1.5 * (1.0 + random.pareto(1.5, _PEOPLE)), most).astype(np.int64)
    who = np.repeat(np.arange(_PEOPLE), sizes)
    between, within = random.standard_normal((_PEOPLE, 3)), random.standard_normal((len(who), 2))
    numbers = np.column_stack([0.5 * between[who, :2] + 0.85 * within, between[who, 2]])
    X = np.clip(numbers, -4.0, 4.0) / 4.0
    level = random.choice(3, _PEOPLE, p=(0.5, 0.35, 0.15))[who]
    own = random.standard_normal(_PEOPLE)
    if kind == "informative":
        own += 0.8 * np.log(sizes) - 0.8 * np.mean(np.log(sizes))
    signal = 0.2 * numbers @ np.array([0.6, -0.4, 0.3]) + np.array([0.0, 0.06, -0.1])[level] + 0.12 * own[who]
    if kind == "logistic":
        y = np.where(random.random(len(who)) < 1.0 / (1.0 + np.exp(0.5 - 6.0 * signal)), 1.0, -1.0)
    else:
        y = np.clip(signal + 0.16 * random.standard_normal(len(who)), -1.0, 1.0)
    low, high = np.array([(-1.0, 1.0)] * 3 + [(0.0, 1.0)] * 3).T
    coded = ColumnMap.from_bounds(low, high, one_hot=[(3, 4, 5)])
    coded_rows = coded.apply(np.column_stack([X, np.eye(3)[level]]))
    loss = "logistic" if kind == "logistic" else "squared"
    return Population.of(name, loss, coded_rows, y, coded.norm_bound, coded.coding, who)


def rare_levels(records: int = 5000) -> tuple[FloatArray, FloatArray, list[tuple[int, ...]]]:
    """(X, y, blocks) like a table of credits: 6 numbers, 8 categories, each with a level that 2 records have.

    X holds numbers in [−1, 1] and 0/1 levels; y is ±1.
    """
    random = np.random.default_rng(1994)
    numbers = np.clip(random.standard_normal((records, 6)) / 3.0, -1.0, 1.0)
    parts, blocks, at = [numbers], [], numbers.shape[1]
    for levels in (3, 4, 4, 5, 5, 3, 4, 5):
        shares = random.dirichlet(np.full(levels - 1, 4.0))
        level = random.choice(levels - 1, records, p=shares)
        level[random.choice(records, 2, replace=False)] = levels - 1
        parts.append(np.eye(levels)[level])
        blocks.append(tuple(range(at, at + levels)))
        at += levels
    X = np.hstack(parts)
    margin = X @ random.normal(0.0, 0.6, X.shape[1]) + 0.5
    y = np.where(random.random(records) < 1.0 / (1.0 + np.exp(-margin)), 1.0, -1.0)
    return X, y, blocks
