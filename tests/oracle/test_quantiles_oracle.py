"""Quantiles among candidates against their definition: every outcome of every small table, by brute force."""

from __future__ import annotations

import itertools
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.stats import chisquare
from tests.catalogue import ADJACENCIES

from curvedp.analyses.explore.quantiles import Levels, SpanLaw, SumLaw, choice
from curvedp.analyses.explore.tallies import Ordered
from curvedp.privacy.budget import Neighbours
from curvedp.randomness import generator

CANDIDATES = (0.0, 1.0, 1.5, 2.0, 3.0)
CELLS = (1.0, 2.0, 2.5, None)  # None: no number
LEVELS = [(0.005, 0.995), (0.2, 0.6), (0.5,), (0.05,), (0.25, 0.5, 0.75)]
EPSILON = 0.8


def error(values, candidate, level):
    """How far the rank level·n lies from the ranks that the candidate has, above: positive."""
    n = Fraction(len(values)) * Fraction(str(level))
    below, upto = sum(x < candidate for x in values), sum(x <= candidate for x in values)
    if below > n:
        return below - n
    return upto - n if upto < n else Fraction(0)


def size(errors, spans):
    return max(*errors, 0) - min(*errors, 0) if spans else sum(map(abs, errors))


def probabilities(table, levels, adjacency, sensitivity):
    """Of every increasing choice of candidates, from the definition, with 40 digits."""
    values = [cell for cell in table if cell is not None]
    spans = adjacency == "replace" and len(levels) == 2
    outcomes = list(itertools.combinations_with_replacement(range(len(CANDIDATES)), len(levels)))
    with mpmath.workdps(40):
        found = []
        for outcome in outcomes:
            errors = [error(values, CANDIDATES[c], q) for c, q in zip(outcome, levels, strict=True)]
            exponent = Fraction(str(EPSILON)) / (2 * sensitivity) * size(errors, spans)
            found.append(mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator))
        total = mpmath.fsum(found)
        return {outcome: weight / total for outcome, weight in zip(outcomes, found, strict=True)}


def neighbouring(adjacency, rows=4):
    for table in itertools.combinations_with_replacement(range(len(CELLS)), rows):
        cells = tuple(CELLS[i] for i in table)
        if adjacency == "add_remove":
            yield from ((cells, cells[:i] + cells[i + 1 :]) for i in range(rows))
        else:
            yield from ((cells, (*cells[:i], new, *cells[i + 1 :])) for i in range(rows) for new in CELLS)


def worst_ratio(levels, adjacency, sensitivity):
    """The largest log-ratio of any outcome between any two neighbours, in either direction."""
    known = {}

    def law(table):
        key = tuple(sorted(table, key=str))
        if key not in known:
            known[key] = probabilities(key, levels, adjacency, sensitivity)
        return known[key]

    return max(
        abs(mpmath.log(law(one)[outcome] / law(other)[outcome]))
        for one, other in neighbouring(adjacency)
        for outcome in law(one)
    )


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_no_outcome_of_neighbours_differs_by_more_than_epsilon(levels, adjacency):
    sensitivity = Levels.of(levels, Neighbours(adjacency)).sensitivity
    assert worst_ratio(levels, adjacency, sensitivity) <= EPSILON


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_half_of_the_sensitivity_is_caught(adjacency):
    sensitivity = Levels.of((0.2, 0.6), Neighbours(adjacency)).sensitivity
    assert worst_ratio((0.2, 0.6), adjacency, sensitivity / 2) > EPSILON


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_the_utility_moves_by_the_stated_sensitivity_at_most(levels, adjacency):
    stated = Levels.of(levels, Neighbours(adjacency)).sensitivity
    spans = adjacency == "replace" and len(levels) == 2
    found = Fraction(0)
    for one, other in neighbouring(adjacency):
        sides = [[x for x in table if x is not None] for table in (one, other)]
        for outcome in itertools.combinations_with_replacement(CANDIDATES, len(levels)):
            sizes = [
                size([error(values, c, q) for c, q in zip(outcome, levels, strict=True)], spans)
                for values in sides
            ]
            found = max(found, abs(sizes[0] - sizes[1]))
    assert found <= stated
    assert found >= stated * Fraction(2, 3)  # four rows do not attain every bound


def law_of(table, levels, adjacency):
    values = np.sort([cell for cell in table if cell is not None])
    return Levels.of(levels, Neighbours(adjacency)).law(Ordered.of(values), np.array(CANDIDATES), EPSILON)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("levels", LEVELS, ids=str)
def test_the_code_has_the_law_of_the_definition(levels, adjacency):
    sensitivity = Levels.of(levels, Neighbours(adjacency)).sensitivity
    for table in itertools.combinations_with_replacement(CELLS[:3], 4):
        law = law_of(table, levels, adjacency)
        weight = {}
        for outcome in itertools.combinations_with_replacement(range(len(CANDIDATES)), len(levels)):
            if isinstance(law, SpanLaw):
                weight[outcome] = law.beside(outcome[0], 40)[outcome[1]]
            else:
                assert isinstance(law, SumLaw)
                steps = [[Decimal(0), *sums(40)] for sums in law._sums]
                parts = [s[c + 1] - s[c] for s, c in zip(steps, outcome, strict=True)]
                weight[outcome] = Decimal(1)
                for part in parts:
                    weight[outcome] *= part
        total = sum(weight.values())
        for outcome, wanted in probabilities(table, levels, adjacency, sensitivity).items():
            assert float(weight[outcome] / total) == pytest.approx(float(wanted), rel=1e-12)


def test_the_marginal_law_is_the_sum_over_the_second_candidate():
    random = np.random.default_rng(0)
    values, candidates = np.sort(random.integers(0, 30, 200)), np.arange(-3.0, 34.0)
    law = Levels.of((0.05, 0.8), Neighbours("replace")).law(Ordered.of(values), candidates, 0.3)
    sums = [Decimal(0), *law._marginal(40)]
    for i in range(len(candidates)):
        assert float(sums[i + 1] - sums[i]) == pytest.approx(float(sum(law.beside(i, 40))), rel=1e-12)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_draws_follow_the_law(adjacency):
    table, levels = (1.0, 1.0, 2.0, 2.5), (0.2, 0.6)
    law, random = law_of(table, levels, adjacency), generator(5)
    counts = Counter(law.draw(random) for _ in range(6_000))
    sensitivity = Levels.of(levels, Neighbours(adjacency)).sensitivity
    wanted = probabilities(table, levels, adjacency, sensitivity)
    assert set(counts) <= set(wanted)
    expected = [6_000 * float(p) for p in wanted.values()]
    assert chisquare([counts[outcome] for outcome in wanted], expected).pvalue > 1e-3
    # The same draws do not follow the law of twice the rate.
    wrong = [6_000 * float(p) for p in probabilities(table, levels, adjacency, sensitivity / 2).values()]
    assert chisquare([counts[outcome] for outcome in wanted], wrong).pvalue < 1e-9


def test_a_draw_that_forty_digits_leave_open_is_decided_by_more():
    asked = []

    class Bytes:
        """A uniform number whose first 128 bits lie on a boundary, 1/2."""

        def __init__(self):
            self.words = [(2**127).to_bytes(16, "little"), (5).to_bytes(16, "little")]

        def bytes(self, size):
            return self.words.pop(0)

    def sums(digits):
        asked.append(digits)
        return [Decimal("0.5") - Decimal(1).scaleb(-42), Decimal(1)]

    assert choice(Bytes(), sums) == 1
    assert len(asked) > 1


def test_weights_far_beyond_the_range_of_doubles_still_order_candidates():
    values = np.arange(1_000_000.0)
    law = Levels.of((0.5,), Neighbours("add_remove")).law(
        Ordered.of(values), np.array([1e5, 2e5, 9.5e5]), 1.0
    )
    assert {law.draw(generator(seed)) for seed in range(20)} == {(1,)}
