"""The study of searches runs on a small table and counts gains against the default."""

from __future__ import annotations

import json

import numpy as np

from curvedp_studies import search


def test_a_study_of_one_table(tmp_path, capsys) -> None:
    random = np.random.default_rng(0)
    X = random.uniform(0, 1, (1500, 3))
    y = X @ [1.0, -1.0, 0.5] + random.normal(0, 0.1, 1500)
    np.savez(tmp_path / "made.npz", Xnum=X, Xbin=np.zeros((1500, 0)), y=y)
    meta = {
        "bounds": [[0, 1]] * 3, "log1p_columns": [], "feature_names": ["a", "b", "c"], "d_numeric": 3,
        "categorical": {}, "task": "regression", "classes": None, "y_bounds": [-2, 3],
    }  # fmt: skip
    (tmp_path / "made.json").write_text(json.dumps(meta))
    search.main([str(tmp_path), "--seeds", "2", "--designs", "default,same,split,trials"])
    assert "of 1 tables" in capsys.readouterr().out
    (found,) = search.study(tmp_path, ["made"], 1, 1000, ("default", "same"))
    assert found.kappa > 10 and abs(found.gain("same")) < 0.2
