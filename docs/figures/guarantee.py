"""The pictures of docs/explanation/guarantee.md, from the library's own code.

python docs/figures/guarantee.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.linear_model import LinearRegression

from curvedp import PrivateLinearRegression
from curvedp.cli.workflow import _tables
from curvedp.privacy.gaussian import calibrate_mu

FOLDER = Path(__file__).parent
BLUE, ORANGE, GREY = "#0a7d91", "#e07b00", "#6b7280"
DELTA = 1e-6
EPSILONS = (0.1, 1.0, 3.0, 10.0)
PEOPLE, RUNS = 1_000, 1_200

plt.rcParams.update(
    {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "savefig.dpi": 150}
)


def people() -> tuple[np.ndarray, np.ndarray]:
    """Schooling and earnings of a thousand people of the demo's public table; the first one earned most."""
    train, _ = _tables()
    educ, pay = np.array(train["educ"][:PEOPLE], float), np.array(train["re78"][:PEOPLE], float)
    educ[0], pay[0] = 20.0, 30_000.0
    return educ.reshape(-1, 1), np.clip(pay, 0, 30_000)


def neighbours() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X, y, y'): in the second table the first person earned nothing."""
    X, y = people()
    other = y.copy()
    other[0] = 0.0
    return X, y, other


def released(X: np.ndarray, y: np.ndarray, first_seed: int) -> np.ndarray:
    """The slope of earnings in schooling, released many times; seeds make it repeatable, not private."""
    return np.array(
        [
            PrivateLinearRegression(
                epsilon=1.0, delta=DELTA, bounds=(0, 20), target_bounds=(0, 30_000), random_state=seed
            )
            .fit(X, y)
            .coef_[0]
            for seed in range(first_seed, first_seed + RUNS)
        ]
    )


def one_record() -> None:
    X, y, other = neighbours()
    exact = [LinearRegression().fit(X, t).coef_[0] for t in (y, other)]
    private = [released(X, y, 0), released(X, other, 10_000)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.2), sharex=True)
    names = ("the last one earned $30,000", "the last one earned nothing")
    for value, colour, name in zip(exact, (BLUE, ORANGE), names, strict=True):
        left.axvline(value, color=colour, lw=3, label=name)
    left.set(title="Without privacy", yticks=[], ylim=(0, 1))
    low, high = np.quantile(np.concatenate(private), [0.002, 0.998])
    bins = np.linspace(low, high, 36)
    for values, colour, name in zip(private, (BLUE, ORANGE), names, strict=True):
        right.hist(values, bins, density=True, histtype="stepfilled", color=colour, alpha=0.25)
        right.hist(values, bins, density=True, histtype="step", color=colour, lw=2, label=name)
    right.set(title=f"Private: {RUNS:,} releases each", yticks=[])
    for axes in (left, right):
        axes.set_xlabel("dollars for a year of school")
        axes.spines["left"].set_visible(False)
    figure.legend(*left.get_legend_handles_labels(), loc="upper center", ncols=2, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.92))
    figure.savefig(FOLDER / "guarantee-one-record.png")


def hardest_pair() -> None:
    figure, panels = plt.subplots(2, 2, figsize=(6.4, 4.6), sharex=True, sharey=True)
    x = np.linspace(-4, 6, 400)
    for axes, epsilon in zip(panels.flat, EPSILONS, strict=True):
        mu = calibrate_mu(epsilon, DELTA)
        for shift, colour in ((0.0, BLUE), (mu, ORANGE)):
            axes.fill_between(x, norm.pdf(x - shift), color=colour, alpha=0.2)
            axes.plot(x, norm.pdf(x - shift), color=colour, lw=2)
        right = 100 * norm.cdf(mu / 2)
        axes.set_title(f"ε = {epsilon:g}: the best guess\nis right {right:.0f} times of 100", fontsize=11)
        axes.set(yticks=[], xticks=[], xlim=(-4, 6))
        axes.spines["left"].set_visible(False)
    figure.tight_layout()
    figure.savefig(FOLDER / "guarantee-hardest-pair.png")


def belief() -> None:
    figure, axes = plt.subplots(figsize=(6, 4.2))
    before = np.linspace(0, 1, 301)
    for epsilon, shade in zip((3.0, 1.0, 0.5, 0.1), np.linspace(1.0, 0.3, 4), strict=True):
        odds = np.exp(epsilon)
        after = odds * before / (1 - before + odds * before)
        axes.plot(before, after, color=BLUE, alpha=shade, lw=2.5, label=f"ε = {epsilon:g}")
    axes.plot(before, before, color=GREY, ls="--", lw=1.5, label="nothing is released")
    axes.legend(frameon=False, loc="lower right")
    axes.set(xlabel="belief before", ylabel="belief after, at most", xlim=(0, 1), ylim=(0, 1))
    figure.tight_layout()
    figure.savefig(FOLDER / "guarantee-belief.png")


def curve() -> None:
    X, y = people()
    promise = (
        PrivateLinearRegression(
            epsilon=1.0, delta=DELTA, bounds=(0, 20), target_bounds=(0, 30_000), random_state=0
        )
        .fit(X, y)
        .privacy_
    )
    epsilons = np.linspace(0.02, 2.0, 60)
    figure, axes = plt.subplots(figsize=(6, 3.6))
    axes.semilogy(epsilons, [promise.delta_at(e) for e in epsilons], color=BLUE, lw=2)
    axes.plot([1.0], [DELTA], "o", color=ORANGE)
    axes.annotate(
        "what the ledger was charged:\nε = 1, δ = 10⁻⁶", (1.0, DELTA), (12, 18), textcoords="offset points"
    )
    axes.set(xlabel="ε", ylabel="δ: the chance that ε fails", ylim=(1e-13, 1))
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(FOLDER / "guarantee-curve.png")


if __name__ == "__main__":
    for draw in (hardest_pair, belief, curve, one_record):
        draw()
        print(draw.__name__, flush=True)
