"""Columns that are functions of the same declared ones: what is public of them, and what it does to fits."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from curvedp import (
    Boolean,
    Categorical,
    Date,
    Numeric,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    Schema,
)
from curvedp.data.formulas import derived
from curvedp.data.frames import Table
from curvedp.forms import LARGEST
from curvedp.mechanisms import geometry, walk

AGE, HEIGHT, SMOKER = Numeric("age", 16, 65), Numeric("height", 1.2, 2.2), Boolean("smoker")
REGION, BORN = Categorical("region", ["n", "e", "s", "w"]), Date("born", date(1950, 1, 1), date(2000, 1, 1))
DECLARED = Schema([AGE, HEIGHT, SMOKER, REGION, BORN])


def coded(formula, intercept=1.0):
    return DECLARED.with_formula(formula).encoding.column_map(intercept, None)


@pytest.mark.parametrize(
    ("formula", "joined"),
    [
        ("~ age + height + region", []),
        ("~ age + height + I(age**2)", [(0, 2)]),
        ("~ I(age**2) + height + age + I(age**3)", [(2, 0, 3)]),  # declared columns first
        ("~ age * smoker + height", [(0, 1, 3)]),  # main effects come before products
        ("~ age + I(age**2) + height + I(height**2)", [(0, 1), (2, 3)]),
        ("~ age + height + age:height + I(height**2)", [(0, 1, 3, 2)]),
        ("~ region * age", [(0, 1, 2, 3, 4, 5, 6, 7)]),
        ("~ age + year(born):age", []),  # what dates may be is not spread
    ],
)
def test_columns_that_share_what_is_declared_are_joined(formula, joined):
    found = [surface.columns for surface in coded(formula).coding.surfaces]
    names = DECLARED.with_formula(formula).encoding.names
    assert [sorted(names[j] for j in columns) for columns in found] == [
        sorted(names[j] for j in columns) for columns in joined
    ]
    for surface in coded(formula).coding.surfaces:
        assert all(":" not in names[j] and "**" not in names[j] for j in surface.columns[: surface.plain])
        assert np.array(surface.points).shape == (derived._ROWS, len(surface.columns))


def test_very_many_columns_are_left_alone(monkeypatch):
    monkeypatch.setattr(derived, "_MOST_JOINED", 7)
    assert not coded("~ region * age").coding.surfaces


@pytest.mark.parametrize("formula", ["~ age + I(age**2) + I(age**3)", "~ age * smoker", "~ region * height"])
def test_points_are_spread_like_random_records(formula):
    """Against records drawn at random within what is declared, encoded as every table is."""
    encoding, columns = DECLARED.with_formula(formula).encoding, coded(formula)
    (surface,) = columns.coding.surfaces
    random, n = np.random.default_rng(0), 200_000
    cells = {
        "age": random.uniform(16, 65, n),
        "height": random.uniform(1.2, 2.2, n),
        "smoker": random.choice(["false", "true"], n).tolist(),
        "region": random.choice(["n", "e", "s", "w"], n).tolist(),
    }
    drawn = columns.apply(encoding.encode(Table(cells)))[:, surface.columns]
    points = np.array(surface.points)
    assert np.abs(points.mean(axis=0) - drawn.mean(axis=0)).max() < 0.02
    assert np.abs(np.cov(points.T) - np.cov(drawn.T)).max() < 0.02
    assert surface.levels == {"~ age * smoker": 2, "~ region * height": 4}.get(formula, 1)


@pytest.mark.parametrize("intercept", [0.0, 1.0])
@pytest.mark.parametrize(
    "formula", ["~ age + I(age**2) + I(age**3) + height", "~ region * age", "~ age * smoker"]
)
def test_such_columns_are_uncorrelated_in_the_coordinates(formula, intercept):
    columns = coded(formula, intercept)
    T, inverse, jumps = geometry.declared_columns(columns.coding, columns.d)
    assert T @ inverse == pytest.approx(np.eye(columns.d), abs=1e-9)
    (surface,) = columns.coding.surfaces
    rows = np.zeros((len(surface.points), columns.d))
    rows[:, surface.columns] = surface.points
    if intercept:
        rows[:, columns.coding.constant] = 1.0
    straight = (rows @ T.T)[:, surface.columns]
    second = straight.T @ straight / len(rows)
    varies = np.diag(second) > 1e-9
    assert varies.sum() >= len(surface.columns) - 1  # all but along the sum of the levels
    assert second == pytest.approx(np.diag(varies / 3.0), abs=1e-9)
    assert np.linalg.cond(T) < 1e3
    assert np.linalg.eigvalsh(jumps).min() > -1e-12


def test_columns_on_a_curve_are_no_box():
    """Against records of all ages; the box around the curve is much longer in their metric."""
    columns, random = coded("~ age + I(age**2) + I(age**3) + height"), np.random.default_rng(5)
    age, x = np.concatenate([[16, 65, 40], random.uniform(16, 65, 4000)]), random.uniform(1.2, 2.2, 4003)
    rows = columns.apply(np.column_stack([age, age**2, age**3, x]))
    A = np.linalg.inv(np.linalg.cholesky(rows.T @ rows / len(rows)))
    longest, box = columns.coding.longest(A, columns.x_norm), columns.x_norm * np.linalg.norm(A, 2)
    assert np.linalg.norm(rows @ A.T, axis=1).max() <= longest < 0.25 * box
    assert replace(columns.coding, surfaces=()).longest(A, columns.x_norm) == pytest.approx(box)


def powers(random, n):
    """A quartic of a number that is mostly far from the end of its bounds."""
    x = np.minimum(random.gamma(2.0, 1.0, n), 10.0)
    y = np.clip(0.5 * x - 0.08 * x**2 + 0.004 * x**3 + 0.3 * random.normal(size=n), -4, 4)
    design = np.column_stack([x, x**2, x**3, np.ones(n)])
    schema = Schema([Numeric("x", 0, 10), Numeric("y", -4, 4)], target="y", adjacency="add_remove")
    return {"x": x, "y": y}, design, y, schema, "y ~ x + I(x**2) + I(x**3)"


def slopes_by_level(random, n):
    height, man = random.normal(1.7, 0.1, n).clip(1.2, 2.2), random.random(n) < 0.5
    y = np.clip(
        60 + 50 * (height - 1.7) + man * (8 + 30 * (height - 1.7)) + 8 * random.normal(size=n), 20, 150
    )
    design = np.column_stack([height, man, height * man, np.ones(n)])
    schema = Schema([HEIGHT, Boolean("man"), Numeric("y", 20, 150)], target="y", adjacency="add_remove")
    return {"height": height, "man": man.tolist(), "y": y}, design, y, schema, "y ~ height * man"


@pytest.mark.parametrize("drawn", [powers, slopes_by_level])
def test_powers_and_products_are_fitted_and_stated(drawn, monkeypatch):
    """Beside least squares on the same rows; not so if nothing were known of such columns."""
    table, design, y, schema, formula = drawn(np.random.default_rng(3), 20_000)
    best = np.linalg.lstsq(design, y, rcond=None)[0][:-1]
    residuals, inverse = (
        y - design @ np.append(best, (y - design[:, :-1] @ best).mean()),
        np.linalg.inv(design.T @ design),
    )
    errors = np.sqrt(np.diag(inverse) * residuals.var())[:-1]

    def fits():
        for seed in range(8):
            model = PrivateLinearRegression(schema=schema, formula=formula, epsilon=3.0, delta=1e-6)
            model.set_params(random_state=seed).fit(table)
            yield (
                (model.coef_ - best) / errors,
                np.isfinite(model.coef_se_),
                model.coef_se_ / errors,
            )

    apart, told, stated = (np.array(parts) for parts in zip(*fits(), strict=True))
    assert told.all()
    assert np.sqrt(np.mean(apart**2)) < 1.0
    assert np.median(stated) < 2.0
    assert np.all(np.abs(apart) < 4.0 * stated)
    monkeypatch.setattr(derived.Encoding, "_surfaces", lambda self, mapped: iter(()))
    apart, told, stated = (np.array(parts) for parts in zip(*fits(), strict=True))
    assert not told.all() or np.sqrt(np.mean(apart**2)) > 1.5


# --- two classes: slopes are bounded, and so are gradients ---------------------------------------------


def two_classes(n, seed):
    random = np.random.default_rng(seed)
    X = 2.0 * random.beta(0.5, 0.5, (n, 1)) - 1.0
    return X, (random.random(n) < 1.0 / (1.0 + np.exp(-0.5 - 2.0 * X[:, 0]))).astype(int)


def logistic(n, epsilon, seed, **options):
    model = PrivateLogisticRegression(
        epsilon=epsilon, delta=1e-6, bounds=[(-1, 1)], classes=(0, 1), random_state=seed, **options
    )
    return model.fit(*two_classes(n, seed))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace"])
def test_no_gradient_of_few_columns_is_clipped(adjacency):
    """The longest at any θ, by brute force: of a slope of 1 at the corners of the bounds."""
    known = logistic(2000, 3.0, 0, adjacency=adjacency).inference_
    corners = np.array([[-1.0, 1.0], [1.0, 1.0]])
    assert np.linalg.norm(corners @ known.basis, axis=1).max() <= known.tail.longest
    assert known.tail.edges[1] == pytest.approx(known.tail.longest)
    assert not known.tail.excesses.any()
    assert not known._clipped[1].any()


def test_intervals_of_few_records_and_columns(monkeypatch):
    """Coverage of 60 samples, and width: larger where clipped gradients were thought to be there."""

    def measured():
        ends = np.array(
            [logistic(1000, 3.0, seed, adjacency="add_remove").conf_int()[0] for seed in range(60)]
        )
        told = np.isfinite(ends[:, 0])
        return np.mean(np.prod(ends[told] - 2.0, axis=1) < 0), np.mean(np.diff(ends[told]))

    coverage, width = measured()
    assert coverage >= 0.9
    assert width < 0.72
    monkeypatch.setattr(walk.Rounds, "longest", LARGEST)
    assert measured()[1] > 1.08 * width
