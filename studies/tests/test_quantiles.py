"""The study of quantiles on generated columns; OpenDP's part runs where it is installed, and says so."""

from __future__ import annotations

import json

import numpy as np
import pytest

from curvedp_studies import quantiles

VALUES = np.random.default_rng(0).gamma(3.0, 20.0, 30_000)


@pytest.mark.parametrize("adjacency", ["add_remove", pytest.param("replace", marks=pytest.mark.full)])
def test_two_quantiles_in_one_draw_beat_two_draws_of_half_the_epsilon(adjacency):
    row = quantiles.compare(
        VALUES, (0.0, 400.0), name=("generated", "x"), epsilon=0.1, adjacency=adjacency, seeds=60
    )
    assert row.n == 30_000 and 0 < row.ours < 150
    assert (row.opendp is None) == (not quantiles.has_opendp())
    if row.opendp is not None:
        assert row.wins and row.opendp > 1.1 * row.ours


def test_a_rank_error_counts_records_and_knows_ties():
    ordered = np.array([1.0] * 10 + [2.0] * 980 + [3.0] * 10)
    assert quantiles.rank_error(ordered, (1.0, 3.0)) == 0
    assert quantiles.rank_error(ordered, (1.5, 3.0)) == 5
    assert quantiles.rank_error(ordered, (0.0, 2.5)) == 5
    assert quantiles.rank_error(ordered, None) == 1000


def test_the_page_has_every_column_and_says_where_opendp_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(quantiles, "has_opendp", lambda: False)
    monkeypatch.setattr(quantiles, "COLUMNS", (("made", "b"),))
    np.savez(tmp_path / "made.npz", Xnum=np.column_stack([VALUES, VALUES + 1])[:3_000].astype(np.float32))
    meta = {"feature_names": ["a", "b"], "bounds": [[0, 1], [0, 400]]}
    (tmp_path / "made.json").write_text(json.dumps(meta))
    quantiles.main(
        ["--data", str(tmp_path), "--out", str(tmp_path / "page.md"), "--seeds", "4", "--epsilon", "1"]
    )
    page = (tmp_path / "page.md").read_text()
    assert page.count("| made | b | 3,000 |") == 2 and page.count("not installed") == 2
