import csv

import numpy as np
import pytest

from curvedp_studies.figure1 import Grid, figure1

SMALL = Grid(
    deltas=(1e-5, 1e-4, 1e-3, 1e-2),
    our_deltas=(1e-3,),
    center_sensitivities=(0.5, 5.0),
    epsilons=(0.2, 0.8),
    large_epsilons=(),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("figure1")
    figure1(out, grid=SMALL, workers=1)
    return out


def read(folder):
    with (folder / "figure1.csv").open(newline="", encoding="utf-8") as file:
        return [
            {key: value if key == "accounting" else float(value) for key, value in row.items()}
            for row in csv.DictReader(file)
        ]


def table(rows, accounting):
    """The bounds of one accounting as an array over (Δ_c, ε, δ)."""
    chosen = {
        (r["center_sensitivity"], r["epsilon"], r["delta"]): r["bound"]
        for r in rows
        if r["accounting"] == accounting
    }
    axes = [sorted({key[i] for key in chosen}) for i in range(3)]
    return np.array([[[chosen[c, e, d] for d in axes[2]] for e in axes[1]] for c in axes[0]])


@pytest.mark.parametrize("accounting", ["paper", "paper_exact", "spectral", "directional"])
def test_bounds_are_monotone(folder, accounting):
    bounds = table(read(folder), accounting)
    assert (np.diff(bounds, axis=0) > 0).all()  # Δ_c
    assert (np.diff(bounds, axis=1) < 0).all()  # ε
    assert (np.diff(bounds, axis=2) < 0).all()  # δ, of which ours have one value here


def test_each_accounting_improves_on_the_one_before(folder):
    rows = read(folder)
    inexact, exact = table(rows, "paper"), table(rows, "paper_exact")
    spectral, directional = table(rows, "spectral"), table(rows, "directional")
    assert (exact < inexact).all()
    assert (spectral < exact[:, :, [2]]).all()
    assert (directional < spectral).all()


def test_parameters_come_with_the_bounds(folder):
    for row in read(folder):
        assert row["m"] > 13 and row["sigma0"] > 0 and row["sigma2"] > 0
        spent = [row[f"delta{i}"] for i in range(4)]
        if row["accounting"] in ("paper", "paper_exact"):
            assert sum(spent) == pytest.approx(row["delta"]) and sum(spent) <= row["delta"]
        else:
            assert np.isnan(spent).all()


def test_large_epsilon_is_left_to_the_accountings_that_prove_it():
    for point in Grid().points():
        assert point.epsilon < 1 or point.accounting in ("spectral", "directional")
    assert max(point.epsilon for point in Grid().points()) > 1


def test_pictures(folder):
    assert (folder / "figure1.png").read_bytes().startswith(b"\x89PNG")
    svg = (folder / "figure1.svg").read_text(encoding="utf-8")
    assert "<svg" in svg and len(svg) > 10_000


def test_interrupted_run_continues(folder, tmp_path):
    whole = (folder / "figure1.csv").read_text(encoding="utf-8")
    lines = whole.splitlines(keepends=True)
    kept = len(lines) - 9
    (tmp_path / "figure1.csv").write_text("".join(lines[:kept]) + lines[kept][:40], encoding="utf-8")
    seen = []
    figure1(tmp_path, grid=SMALL, workers=1, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (kept - 1, len(lines) - 1)  # the header and the torn line are not points
    assert seen[-1] == (len(lines) - 1, len(lines) - 1)
    assert (tmp_path / "figure1.csv").read_text(encoding="utf-8") == whole
