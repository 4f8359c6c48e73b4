"""Every sensitivity factor in one place, and no other place that compares adjacencies."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvedp.errors import InvalidInput
from curvedp.privacy.budget import Neighbours

SOURCE = Path(__file__).parents[2] / "src" / "curvedp"


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_no_pair_of_neighbours_moves_a_sum_by_more_than_its_factor(seed: int, d: int) -> None:
    random = np.random.default_rng(seed)
    v, w = (unit / max(np.linalg.norm(unit), 1e-300) for unit in random.standard_normal((2, d)))
    cells = random.integers(0, 4, 2)
    for neighbours, other in ((Neighbours("add_remove"), 0 * w), (Neighbours("replace"), w)):
        gone = neighbours.moves == 2
        histogram = np.zeros(4)
        histogram[cells[0]] += 1
        histogram[cells[1]] -= gone
        slack = 1 + 1e-12
        assert np.linalg.norm(v - other) <= neighbours.sum_factor * slack
        assert np.linalg.norm(histogram) <= neighbours.histogram_factor * slack
        assert np.linalg.norm(np.outer(v, v) - np.outer(other, other)) <= neighbours.gram_factor * slack


def test_the_factors_are_attained() -> None:
    replace = Neighbours("replace")
    e, f = np.eye(2)
    assert np.linalg.norm(e - -e) == replace.sum_factor
    assert np.linalg.norm(np.outer(e, e) - np.outer(f, f)) == pytest.approx(replace.gram_factor)


def test_an_unknown_adjacency_is_refused() -> None:
    with pytest.raises(InvalidInput, match="add_remove"):
        Neighbours("swap")  # type: ignore[arg-type]


def test_no_other_module_compares_adjacencies() -> None:
    pattern = re.compile(r"(==|!=|\bin\b)\s*\(?\s*\"(replace|add_remove)\"")
    comparing = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if pattern.search(path.read_text("utf-8"))
    }
    assert comparing == {"privacy/budget.py"}
