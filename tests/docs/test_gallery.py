"""Every example of docs/gallery runs as a script, draws a readable figure, and shows what its text says.

Private fits have no seed, so what is asked of them holds for all but a few draws in ten thousand.
"""

from __future__ import annotations

import ast
import runpy
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
CPU_SECONDS = 30.0
Namespace = dict[str, Any]

pytest.importorskip("causaldata")
pytest.importorskip("statsmodels")


def wages(found: Namespace) -> None:
    private = np.ptp(found["model"].conf_int(), axis=1)
    plain = np.ptp(found["plain"].conf_int().loc[found["features"]].to_numpy(), axis=1)
    assert np.all(private > 0.7 * plain)
    assert np.log(private / plain).mean() > 0
    assert found["model"].coef_[found["features"].index("re75")] > 0
    assert found["state"].charges == 1
    assert "refused:  the release at" in found["printed"]


def credit(found: Namespace) -> None:
    groups, customers, held_out = found["GROUPS"], found["customers"], found["held_out"]
    apart = []
    for group in groups:
        inside = (customers["group"][held_out] == group).to_numpy()
        for name, share in found["exact"].items():
            score = found["scores"].levels[group][name]
            apart.append(abs(score.value - share(inside)) / score.noise)
    assert len(apart) == 9
    assert max(apart) < 6.5
    assert found["for_fits"].path != found["for_scores"].path


def counts(found: Namespace) -> None:
    typical, plain = np.median(found["drawn"], axis=0), found["plain"].params[found["features"]].to_numpy()
    assert np.allclose(np.exp(typical * found["step"]), np.exp(plain * found["step"]), rtol=0.12)
    assert found["model"].coef_[0] < 0  # who pays, goes less often


def persons(found: Namespace) -> None:
    wider = found["by_person"].std(axis=0) / found["by_row"].std(axis=0)
    assert np.exp(np.log(wider).mean()) > 1.1
    assert found["model"].privacy_.neighbours.unit == "zper"
    assert found["state"].charges == 1
    assert "refused: this ledger counts all rows" in found["printed"]


def epsilon(found: Namespace) -> None:
    assert found["wanted"].epsilon <= found["chosen"] <= 2.0
    typical = np.median(found["reached"], axis=1)
    forecast = [spread.median for spread in found["expected"]]
    assert np.allclose(typical[2:], forecast[2:], atol=0.03)  # of an R² of 0.12, from ε = 0.5 on
    assert abs(found["best"] - 0.12) < 0.02
    assert found["charge"].epsilon == found["chosen"]


def paths(found: Namespace) -> None:
    path = found["path"]
    assert path.trusted.sum() >= 8
    ranges = np.ptp(found["schema"].bounds, axis=0)
    apart = (path.coefs * ranges - 4 * found["plain"])[path.trusted]
    assert np.abs(apart).mean() < 0.12  # of a rating from 1 to 5
    assert ("alpha = 1000 is refused" in found["printed"]) == (not path.trusted[-1])
    assert found["state"].charges == 1


def scores(found: Namespace) -> None:
    came, predicted = found["tested"]["got"].to_numpy() == 1, found["model"].predict(found["tested"]) == 1
    accuracy = found["scores"]["accuracy"]
    assert abs(accuracy.value - np.mean(came == predicted)) < 6.5 * accuracy.noise
    assert all(score.sampling > 0 and score.noise > 0 for score in found["found"].values())


def dask(found: Namespace) -> None:
    apart = np.abs(found["private"] - found["plain"])
    assert np.average(apart, weights=found["counts"]) < 3.0  # percentage points
    assert found["lazy"].npartitions == 8
    assert found["state"].charges == 1


def own_problem(found: Namespace) -> None:
    theta = found["theta"]
    assert np.all(theta >= found["LOW"])
    assert np.all(theta <= found["HIGH"])
    best, linear, output = (np.median(draws) for draws in found["excess"].values())
    assert 0 <= best < linear < output
    assert best < 0.01


def audit(found: Namespace) -> None:
    sound, hasty = found["reports"].values()
    assert sound.verdict == "held" and 0.95 < sound.total <= 1.0
    assert hasty.verdict == "refuted" and hasty.total > 9.0
    shift = {
        name: abs(np.mean(found["seen"][name, "with the patient"]) - np.mean(found["seen"][name, other]))
        / np.std(found["seen"][name, other])
        for name in found["plans"]
        for other in ["without that patient"]
    }
    assert shift["ten times too little noise"] > 1.5 > 0.7 > shift["sound"]


CHECKS: dict[str, Callable[[Namespace], None]] = {
    "plot_01_wages": wages,
    "plot_02_credit": credit,
    "plot_03_counts": counts,
    "plot_04_persons": persons,
    "plot_05_epsilon": epsilon,
    "plot_06_paths": paths,
    "plot_07_scores": scores,
    "plot_08_dask": dask,
    "plot_09_own_problem": own_problem,
    "plot_10_audit": audit,
}


def test_there_are_ten() -> None:
    assert sorted(path.stem for path in GALLERY.glob("plot_*.py")) == sorted(CHECKS)
    assert (GALLERY / "GALLERY_HEADER.rst").is_file()


@pytest.fixture
def plain_matplotlib() -> Iterator[None]:
    import matplotlib.pyplot as plt

    with mpl.rc_context():
        plt.switch_backend("Agg")
        yield
        plt.close("all")


LONG = {
    "plot_04_persons",
    "plot_05_epsilon",
    "plot_08_dask",
    "plot_10_audit",
}  # `make docs` runs all of them, too


@pytest.mark.usefixtures("plain_matplotlib")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name in LONG else []) for name in CHECKS]
)
def test_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    import matplotlib.pyplot as plt

    started = time.process_time()
    found = runpy.run_path(str(GALLERY / f"{name}.py"), run_name="__main__")
    assert time.process_time() - started < CPU_SECONDS
    found["printed"] = capsys.readouterr().out
    assert plt.get_fignums() == [1]
    assert found["PRIVATE"] == "#1f6f78"
    assert found["PLAIN"] == "#b4552d"
    is_readable(found["figure"])
    CHECKS[name](found)


def is_readable(figure: Any) -> None:
    """Every panel says what its axis is, no text is cut off or lies on another tick, no legend on data."""
    figure.canvas.draw()
    drawn = figure.canvas.get_renderer()
    page = figure.bbox
    for axes in figure.axes:
        if not axes.axison:
            continue
        assert axes.get_xlabel() or figure.get_supxlabel()
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [
                t for t in axis.get_major_ticks() if low <= t.get_loc() <= high and t.label1.get_visible()
            ]
            boxes = [t.label1.get_window_extent(drawn) for t in ticks if t.label1.get_text()]
            for box in boxes:
                assert page.x0 - 1 <= box.x0 and box.x1 <= page.x1 + 1
                assert page.y0 - 1 <= box.y0 and box.y1 <= page.y1 + 1
            assert not any(a.overlaps(b) for a, b in pairwise(boxes)), "ticks overlap"
        legend = axes.get_legend()
        if legend is not None:
            box = legend.get_window_extent(drawn)
            lines = [line for line in axes.lines if line.get_marker() in ("o", "s", ".", "|")]
            points = [p for line in lines for p in line.get_transform().transform(line.get_xydata())]
            assert not any(box.contains(*point) for point in points), "the legend covers data"


@pytest.mark.parametrize("name", CHECKS)
def test_text_of_an_example(name: str) -> None:
    """A title underlined to its length, a cell on what it cost, a last sentence that leads on."""
    source = (GALLERY / f"{name}.py").read_text(encoding="utf-8")
    title, rule = (ast.get_docstring(ast.parse(source)) or "").splitlines()[:2]
    assert rule == "=" * len(title)
    assert "# What it cost\n# ------------\n" in source
    last = source.rstrip().rpartition("# %%\n")[2]
    assert last.startswith("# More in the ")
    seeded = source.count("random_state=") > 0
    assert not seeded or " seed" in source.lower().replace("random_state=seed", "")
