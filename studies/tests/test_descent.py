"""The tuned gradient descent: the batched engine against a plain loop, noise, choice and two machines."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss as reference_log_loss
from sklearn.metrics import roc_auc_score

from curvedp.privacy.gaussian import calibrate_mu
from curvedp.problems.losses import Logistic, Multinomial, Squared
from curvedp_studies import peers_descent
from curvedp_studies.peers import compare
from curvedp_studies.peers_descent import (
    COLUMNS,
    Configuration,
    Descent,
    Table,
    area_under_curve,
    generator_of,
    grid_of,
    log_loss,
    main,
    tuned,
)
from curvedp_studies.peers_export import prepare

LOSSES = {"regression": Squared(), "binary": Logistic(), "multiclass": Multinomial(3)}


def table(kind: str, n: int = 90, d: int = 3, seeds: int = 2) -> Table:
    random = np.random.default_rng(4)
    X = random.normal(size=(n, d)).astype(np.float32)
    margin = X @ np.linspace(1.0, -0.5, d)
    y = {"regression": np.clip(margin / 3, -1, 1), "binary": np.sign(margin)}.get(kind)
    if y is None:
        y = np.digitize(margin, [-0.5, 0.5]).astype(float)
    test = np.zeros((seeds, n), dtype=bool)
    for seed in range(seeds):
        test[seed, random.permutation(n)[: n // 5]] = True
    return Table("t", kind, X, y, test, 4.0, 3 if kind == "multiclass" else 2)


def plain_descent(t: Table, seed: int, c: Configuration, rounds: int):
    """(last, mean of the last half), record by record, without noise."""
    loss, train = LOSSES[t.kind], ~t.test[seed]
    X, y = t.X[train].astype(float), t.y[train]
    theta = np.zeros((X.shape[1], loss.n_outputs))
    velocity, path = np.zeros_like(theta), []
    for _ in range(rounds):
        slopes = loss.gradient(X @ theta, y)
        gradient = np.zeros_like(theta)
        for x, slope in zip(X, slopes, strict=True):
            g = np.outer(x, slope)
            gradient += g * min(1.0, c.clip / max(np.linalg.norm(g), 1e-300))
        velocity = c.momentum * velocity + gradient
        theta = theta - c.step / len(y) * velocity
        path.append(theta)
    return path[-1], np.mean(path[-(rounds // 2) :], axis=0)


@pytest.mark.parametrize("kind", ["regression", "binary", "multiclass"])
def test_batched_descent_is_plain_descent(kind, monkeypatch):
    """Without noise, every column is what a loop over records and rounds gives."""
    t = table(kind)
    grid = [Configuration(0.05, 0.4, 0.0), Configuration(0.7, 0.3, 0.9)]
    descent = Descent(t, grid, "cpu", torch.Generator(), cells=1_000)  # several blocks of rows
    monkeypatch.setattr(descent, "noise", torch.zeros)
    iterates = descent.run(8, 1.0)
    scores = descent.scores(iterates.last)
    for seed in range(2):
        for at, configuration in enumerate(grid):
            last, mean = plain_descent(t, seed, configuration, 8)
            np.testing.assert_allclose(iterates.last[:, seed, at].numpy(), last, atol=2e-5)
            np.testing.assert_allclose(iterates.mean[:, seed, at].numpy(), mean, atol=2e-5)
            margins, y = t.X[t.test[seed]] @ last, t.y[t.test[seed]]
            if kind == "regression":
                error = np.sum((np.clip(margins[:, 0], -1, 1) - y) ** 2)
                expected = 1 - error / np.sum((y - y.mean()) ** 2)
            else:
                guess = np.sign(margins[:, 0]) if kind == "binary" else margins.argmax(axis=1)
                expected = np.mean(guess == y)
            assert scores[seed, at] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_noise_has_the_accounted_scale(momentum):
    """No data to speak of: the noise of 16 rounds, each of deviation clip·√16/μ, adds up as momentum says."""
    d, n, rounds, mu = 4000, 10, 16, 0.5
    empty = Table("t", "regression", np.zeros((n, d)), np.zeros(n), np.zeros((1, n), dtype=bool), 1.0, 2)
    grid = [Configuration(0.3, 2.0, momentum)]
    theta = Descent(empty, grid, "cpu", torch.Generator().manual_seed(1), 10_000).run(rounds, mu).last
    weights = [sum(momentum**k for k in range(rounds - t)) for t in range(rounds)]
    expected = 2.0 / n * 0.3 * np.sqrt(rounds) / mu * np.linalg.norm(weights)
    assert float(theta.std()) == pytest.approx(expected, rel=0.04)
    sensitivity_over_noise = 0.3 / (0.3 * np.sqrt(rounds) / mu)
    assert np.sqrt(rounds) * sensitivity_over_noise == pytest.approx(mu)  # all rounds together: shift μ


def test_the_best_on_the_test_rows_is_chosen_and_run_again():
    t = table("regression", n=200, seeds=4)
    found = tuned(t, 3.0, generator_of("t", "add_remove", 1.0, "cpu"), rounds=(1, 4, 16))
    grid = grid_of(t)
    assert len(grid) == 112 and found.claimed.configuration in grid
    assert found.claimed.median >= found.plain.median
    assert found.plain.configuration.momentum == 0.0 and not found.plain.averaged
    assert found.fresh.configuration == found.claimed.configuration
    assert not np.array_equal(found.fresh.theta, found.claimed.theta)
    single = [found.claimed.configuration]
    again = tuned(
        t, 3.0, generator_of("t", "add_remove", 2.0, "cpu"), rounds=(found.claimed.rounds,), grid=single
    )
    assert again.fresh.median == pytest.approx(found.fresh.median, abs=0.1)


def test_the_claim_is_larger_than_the_rerun_where_there_is_nothing_to_learn():
    """Targets without signal: the best of thousands on the test rows looks good, its rerun does not."""
    random = np.random.default_rng(0)
    t = table("binary", n=100, seeds=3)
    coins = Table(**{**vars(t), "y": random.choice([-1.0, 1.0], 100)})
    found = tuned(coins, 0.3, generator_of("coins", "add_remove", 1.0, "cpu"), rounds=(1, 8))
    assert found.claimed.median > 0.6 and found.fresh.median < found.claimed.median - 0.05


def test_a_descent_that_diverges_is_not_chosen():
    t = table("regression", n=60)
    grid = [Configuration(1e30, 1e30, 0.9), Configuration(0.5, 0.1, 0.0)]
    found = tuned(t, 5.0, generator_of("t", "add_remove", 1.0, "cpu"), rounds=(8,), grid=grid)
    assert found.claimed.configuration == grid[1] and np.all(np.isfinite(found.fresh.scores))


def test_scores_of_classes_are_scikit_learns():
    random = np.random.default_rng(2)
    margins, y = np.round(random.normal(size=(200, 1)), 1), random.choice([-1.0, 1.0], 200)
    assert area_under_curve(margins[:, 0], y > 0) == pytest.approx(roc_auc_score(y, margins[:, 0]))
    p = 1 / (1 + np.exp(-margins[:, 0]))
    assert log_loss(margins, y) == pytest.approx(reference_log_loss(y, p))
    logits, classes = random.normal(size=(50, 3)), random.integers(0, 3, 50)
    soft = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert log_loss(logits, classes) == pytest.approx(reference_log_loss(classes, soft, labels=[0, 1, 2]))


@pytest.fixture
def data(tmp_path):
    random = np.random.default_rng(0)
    (tmp_path / "data" / "unit").mkdir(parents=True)
    X = random.uniform(-0.5, 0.5, (300, 3))
    y = np.clip(X @ [0.9, -0.4, 0.2], -1, 1)
    np.savez(tmp_path / "data" / "unit" / "tiny.npz", X=X[:200], y=y[:200], Xt=X[200:], yt=y[200:])
    return tmp_path / "data"


def test_there_and_back(data, tmp_path, monkeypatch):
    """prepare → script → compare: the scores arrive, and nothing is computed again."""
    (file,) = prepare(data, tmp_path / "prepared", epsilons=[4.0], seeds=2)
    t = Table.read(file)
    assert (t.name, t.from_zero, t.test.sum()) == ("unit/tiny", True, 200)
    with np.load(file) as z:
        assert z["shifts"].tolist() == [calibrate_mu(4.0, 1 / 200**2)]
    out = tmp_path / "descent.csv"
    options = [str(tmp_path / "prepared"), str(out), "--device", "cpu", "--rounds", "8", "--cells", "1000000"]
    main(options)
    before = out.read_text()
    main(options)  # finished cells stay
    assert out.read_text() == before
    rows = list(csv.DictReader(out.open()))
    assert tuple(rows[0]) == COLUMNS and len(rows) == 3 * 2 * 2
    monkeypatch.setattr(peers_descent, "tuned", lambda *a, **k: pytest.fail("computed twice"))
    results = tmp_path / "results"
    compare(data, ["unit/tiny"], ["descent"], [4.0], 2, results, workers=1, scores=[out])
    kept = [row for row in csv.DictReader((results / "scores.csv").open()) if row["mechanism"] == "descent"]
    assert [row["score"] for row in kept] == [row["score"] for row in rows if row["mechanism"] == "descent"]


def test_the_script_needs_numpy_and_torch_alone(data, tmp_path):
    prepare(data, tmp_path / "prepared", epsilons=[4.0], seeds=2)
    blocked = {
        "curvedp",
        "curvedp_studies",
        "sklearn",
        "scipy",
        "numba",
        "dp_accounting",
        "narwhals",
        "pandas",
    }
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {blocked!r}: raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
    )
    script, out = Path(peers_descent.__file__), tmp_path / "out.csv"
    command = [
        sys.executable,
        str(script),
        str(tmp_path / "prepared"),
        str(out),
        "--device",
        "cpu",
        "--rounds",
        "2",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "unit/tiny replace ε=4:" in done.stdout and len(out.read_text().splitlines()) == 1 + 12
