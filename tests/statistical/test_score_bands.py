"""How often the bands and intervals of curves of private scores hold the curves of the population (V-4).

Four generated populations, one with few positives and one whose ROC curve is neither smooth nor concave.
The stated level is 95 % at any one x; 250 tables give it ± 3 %. A band that takes its noisy x for the true
one, as a planted bug, fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy.special import expit

from curvedp.analyses.explore.noisy import ratio_ends
from curvedp.analyses.scores import means as bands
from curvedp.analyses.scores import score_plan
from curvedp.analyses.scores.means import Curve, Ranking
from curvedp.analyses.scores.plans import LEVELS_OF_RESIDUALS, share
from curvedp.analyses.scores.source import ScoredRecords, ScoreLayout, class_records
from curvedp.privacy.budget import Budget, Neighbours
from curvedp.randomness import generator
from sklearn import metrics

Table = tuple[np.ndarray, np.ndarray]
Draw = Callable[[int, np.random.Generator], Table]
LEAST = 0.95 - 0.03  # 250 tables: two deviations
CLASSES = ScoreLayout("classification", Neighbours(), ("no", "yes"), True)
NUMBERS = ScoreLayout("regression", Neighbours(), reach=3.0)
X = np.linspace(0.005, 0.995, 100)  # on, between and beside what is told


def classes(margin: np.ndarray, p: np.ndarray, random: np.random.Generator) -> Table:
    return margin, (random.random(len(p)) < p).astype(float)


def usual(n: int, random: np.random.Generator) -> Table:
    """Calibrated, AUC = 0.87."""
    margin = random.normal(-0.8, 2.2, n)
    return classes(margin, expit(margin), random)


def few(n: int, random: np.random.Generator) -> Table:
    """One record in twenty is positive."""
    margin = random.normal(-3.5, 1.3, n)
    return classes(margin, expit(margin), random)


def sharp(n: int, random: np.random.Generator) -> Table:
    """Two groups, AUC = 0.98: the curve turns sharply."""
    margin = random.choice([-4.0, 4.0], n) + random.normal(0.0, 1.2, n)
    return classes(margin, expit(margin), random)


def tied(n: int, random: np.random.Generator) -> Table:
    """Eight different scores, positives rare among some of the high ones."""
    margin = random.choice([-2.0, -1.2, -0.5, -0.1, 0.3, 0.4, 1.1, 1.9], n)
    return classes(margin, expit(-0.5 * margin + 1.5 * np.sin(3 * margin)), random)


@cache
def exact(draw: Draw) -> dict[str, np.ndarray]:
    """ROC and precision at X, of a million records; ties are broken by chance, which makes lines."""
    margin, y = draw(1_000_000, np.random.default_rng(12345))
    false, true, _ = metrics.roc_curve(y, margin, drop_intermediate=False)
    per_positive = np.interp(X, true, false) * (1.0 - y.mean()) / y.mean()
    return {"roc": np.interp(X, false, true), "precision recall": X / (X + per_positive)}


def curves(draw: Draw, n: int, epsilon: float, tables: int) -> list[dict[str, Curve]]:
    plan, random = score_plan(CLASSES, Budget(epsilon, 1e-6)), np.random.default_rng(7)
    found = []
    for t in range(tables):
        margin, y = draw(n, random)
        table = class_records(CLASSES, margin[:, None], y, np.full(n, -1), n)
        found.append(dict(plan.release(table, generator(t))[0].curves))
    return found


def holds(curve: Curve, name: str, draw: Draw) -> np.ndarray:
    """At which of X a band holds the curve of the population; one that says nothing holds."""
    if not curve.x:
        return np.ones(len(X), dtype=bool)
    told = curve.x[0] <= X if name == "precision recall" else np.ones(len(X), dtype=bool)
    low, high = (np.interp(X, curve.x, ends) for ends in (curve.low, curve.high))
    y = exact(draw)[name]
    return ~told | ((low <= y + 1e-3) & (y <= high + 1e-3))  # 0.001: a million records, not all


BANDS = [(usual, 1500, 20.0), (few, 4000, 1.0), (sharp, 600, 1.0), (tied, 2500, 0.3)]
MORE_BANDS = [
    (usual, 1500, 1.0),
    (usual, 5000, 0.3),
    (few, 12_000, 0.3),
    (sharp, 2000, 0.3),
    (tied, 800, 1.0),
]


def named(case: object) -> str:
    return getattr(case, "__name__", str(case))


def in_full(cases: list[tuple[object, ...]]) -> list[object]:
    return [pytest.param(*case, marks=pytest.mark.full) for case in cases]


@pytest.mark.parametrize(("draw", "n", "epsilon"), [*BANDS, *in_full(MORE_BANDS)], ids=named)
def test_a_band_holds_the_curve_at_every_place(draw: Draw, n: int, epsilon: float) -> None:
    found = curves(draw, n, epsilon, tables=250)
    assert np.mean([bool(f["roc"].x) for f in found]) > 0.8  # something is said
    for name in ("roc", "precision recall"):
        share_of_tables = np.mean([holds(f[name], name, draw) for f in found], axis=0)
        assert share_of_tables.min() >= LEAST, (name, X[share_of_tables.argmin()], share_of_tables.min())


def at_a_noisy_x(ranking: Ranking) -> Curve:
    """The planted bug: an interval for y, stated at an estimate of x."""
    down = ranking.negatives[::-1].cumsum(), ranking.positives[::-1].cumsum()
    cells, sigma = len(down[0]), ranking.sigma
    points = [(share(float(a), i + 1, float(down[0][-1]), cells, sigma),
               share(float(b), i + 1, float(down[1][-1]), cells, sigma))
              for i, (a, b) in enumerate(zip(*down, strict=True)) if i < cells - 1]  # fmt: skip
    known = sorted(((x.value, y) for x, y in points if x.is_known), key=lambda point: point[0])
    return Curve(*zip(*((x, y.value, y.low, y.high) for x, y in known if y.is_known), strict=True))


def test_a_band_at_a_noisy_x_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "roc", at_a_noisy_x)
    for draw, n in ((usual, 1500), (few, 4000), (tied, 800)):
        found = curves(draw, n, 1.0, tables=60)
        assert np.mean([holds(f["roc"], "roc", draw) for f in found], axis=0).min() < 0.8


def test_bounds_that_hold_half_of_the_time_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bands, "Z_OF_FOUR", 0.4)
    found = curves(sharp, 600, 1.0, tables=100)
    assert np.mean([holds(f["roc"], "roc", sharp) for f in found], axis=0).min() < LEAST


@pytest.mark.parametrize(("draw", "most"), [(usual, 0.08), (few, 0.13), (sharp, 0.05)], ids=named)
def test_a_band_of_many_records_is_narrow(draw: Draw, most: float) -> None:
    """100,000 records: hardly wider than the step from a threshold to the next."""
    (found,) = curves(draw, 100_000, 1.0, tables=1)
    curve = found["roc"]
    assert np.mean(np.subtract(curve.high, curve.low)) < most


def test_a_curve_rises_from_corner_to_corner() -> None:
    for draw, n in ((usual, 500), (few, 3000), (tied, 800)):
        for found in curves(draw, n, 1.0, tables=40):
            curve = found["roc"]
            if not curve.x:
                continue
            assert (curve.x[0], curve.y[0], curve.x[-1], curve.y[-1]) == (0.0, 0.0, 1.0, 1.0)
            for values in (curve.x, curve.y, curve.low, curve.high):
                assert np.all(np.diff(values) >= 0) and 0 <= min(values) <= max(values) <= 1
            for name in ("roc", "precision recall"):
                curve = found[name]
                assert np.all(np.less_equal(curve.low, curve.y)) and np.all(
                    np.less_equal(curve.y, curve.high)
                )


def test_bounds_of_a_share_are_those_of_the_test_that_they_invert() -> None:
    """By bisection on |A − qW| = z·deviation, and Wilson's interval where there is no noise."""
    part, whole, sigma, c, m, n, z = 40.0, 130.0, 4.0, 3, 10, 125.0, 1.96
    terms = (sigma**2 * c, n - 2 * sigma**2 * c, sigma**2 * m - n)

    def over(q: float) -> float:
        noise = sigma**2 * (c * (1 - q) ** 2 + (m - c) * q**2) + n * q * (1 - q)
        return abs(part - q * whole) - z * math.sqrt(noise)

    for end in ratio_ends(part, whole, terms, z, (0.0, 1.0)):
        assert over(float(end)) == pytest.approx(0.0, abs=1e-9)
    p, total = 0.3, 50.0
    wilson = [(p + z**2 / (2 * total) + s * z * math.sqrt(p * (1 - p) / total + z**2 / (4 * total**2)))
              / (1 + z**2 / total) for s in (-1, 1)]  # fmt: skip
    found = ratio_ends(p * total, total, (0.0, total, -total), z, (0.0, 1.0))
    np.testing.assert_allclose(found, wilson, rtol=1e-12)
    assert ratio_ends(3.0, 5.0, (9.0, 0.0, 90.0), z, (0.0, 1.0)) == (0.0, 1.0)  # drowned


def linear_rate(n: int, random: np.random.Generator) -> Table:
    """P(positive) = 0.2 + 0.6·p where p is predicted: off the diagonal, and linear in every cell."""
    margin = random.normal(-0.8, 2.2, n)
    return classes(margin, 0.2 + 0.6 * expit(margin), random)


@pytest.mark.parametrize(("draw", "slope"), [(few, 1.0), (sharp, 1.0), (linear_rate, 0.6)], ids=named)
@pytest.mark.parametrize(("n", "epsilon"), [(1500, 1.0), (10_000, 0.3), *in_full([(10_000, 1.0)])])
def test_calibration_of_classes(draw: Draw, slope: float, n: int, epsilon: float) -> None:
    hits = []
    for found in curves(draw, n, epsilon, tables=60):
        c = found["calibration"]
        hits += [a <= slope * x + (1 - slope) / 2 <= b for a, x, b in zip(c.low, c.x, c.high, strict=True)]
    assert len(hits) > 700 and np.mean(hits) >= 0.93


def steady(n: int, random: np.random.Generator) -> Table:
    prediction = np.clip(random.normal(0.1, 0.18, n), -2, 2)
    return prediction, np.clip(prediction + 0.12 * random.standard_t(6, n), -1, 1)


def skewed(n: int, random: np.random.Generator) -> Table:
    """The mean target rises less than the prediction; residuals are skewed."""
    prediction = np.clip(random.normal(0.0, 0.2, n), -2, 2)
    return prediction, np.clip(0.3 * prediction + 0.14 * (random.exponential(1.0, n) - 1.0), -1, 1)


REGRESSIONS = [(steady, 1.0, 1500, 1.0), (skewed, 0.3, 10_000, 0.3), (skewed, 0.3, 40_000, 1.0)]
MORE_REGRESSIONS = [(skewed, 0.3, 1500, 1.0), (steady, 1.0, 10_000, 0.3), (steady, 1.0, 40_000, 1.0)]


@pytest.mark.parametrize(
    ("draw", "slope", "n", "epsilon"), [*REGRESSIONS, *in_full(MORE_REGRESSIONS)], ids=named
)
def test_curves_of_a_regression(draw: Draw, slope: float, n: int, epsilon: float) -> None:
    prediction, target = draw(1_000_000, np.random.default_rng(1))
    quantiles = np.quantile(target - prediction, LEVELS_OF_RESIDUALS)
    plan, random = score_plan(NUMBERS, Budget(epsilon, 1e-6)), np.random.default_rng(7)
    hits, calibrated, width = [], [], []
    for t in range(100):
        prediction, target = draw(n, random)
        nothing = np.zeros((n, 2))
        table = ScoredRecords(
            NUMBERS, prediction[:, None], target, np.full(n, -1), np.zeros(n, np.intp), nothing, n
        )
        found = plan.release(table, generator(t))[0].curves
        c = found["residuals"]
        hits.append([a <= q <= b for a, q, b in zip(c.low, quantiles, c.high, strict=True)])
        width.append(np.subtract(c.high, c.low))
        c = found["calibration"]
        calibrated += [a <= slope * x <= b for a, x, b in zip(c.low, c.x, c.high, strict=True)]
    assert np.mean(hits, axis=0).min() >= 0.95 - 0.045 and np.mean(calibrated) >= 0.93
    if n == 40_000:  # residuals have a deviation of about 0.15; at 0.25, 0.5 and 0.75
        assert np.median(width, axis=0)[2:5].max() < 0.02
