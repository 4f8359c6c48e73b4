"""The study of private scores on a small generated table."""

from __future__ import annotations

import numpy as np
import pytest

from curvedp.privacy.budget import Budget
from curvedp_studies.peers_data import Dataset, Kind
from curvedp_studies.scores import study


@pytest.mark.parametrize(("kind", "score"), [("regression", "r2"), ("binary", "auc")])
def test_a_study_has_errors_and_coverage(kind: Kind, score: str) -> None:
    random = np.random.default_rng(0)
    X = np.column_stack([random.uniform(-1, 1, (8000, 2)), np.ones(8000)])
    noisy = X[:, 0] + 0.2 * random.normal(size=8000)
    y = np.clip(noisy, -1, 1) if kind == "regression" else np.where(noisy > 0, 1.0, -1.0)
    rows = list(study(Dataset("toy", kind, X, y, 2.0), "add_remove", Budget(1.0, 1e-6), seeds=10, tables=10))
    found = {row.score: row for row in rows}[score]
    assert found.rows == 1600 and found.exact > 0.7
    assert found.median_error < found.half_width < 0.2 and found.coverage >= 0.6
