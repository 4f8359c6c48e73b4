"""
Breaking a broken mechanism
===========================

A promise is only as good as the code that keeps it. Here somebody makes a mistake that no fit shows: the
noise is ten times too small, and the promise still says ε = 1. The audit runs both mechanisms on tables that
it makes itself, and refutes the broken one.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from curvedp import Budget, Domain, Problem, audit
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import make_rows
from curvedp.problems.losses import Squared
from curvedp.release.door import execute
from curvedp_studies.mechanisms.baselines import NoisyGradient

PRIVATE, PLAIN = "#1f6f78", "#b4552d"
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}

# %%
# The mistake
# -----------
#
# A plan of noisy gradient descent knows how far one record may shift a round, `mu_round`; the noise is the
# inverse of it. One factor too much, and the guarantee stays as it was.


class Hasty(NoisyGradient):
    """Noise ten times too small."""

    def plan(self, problem, d, budget):
        sound = super().plan(problem, d, budget)
        return replace(sound, mu_round=10 * sound.mu_round)


sound, hasty = NoisyGradient(rounds=20), Hasty(rounds=20)

# %%
# Nothing to see in a fit
# -----------------------
#
# The table has 442 patients with diabetes: how much does the illness progress with the body mass index?
# Both mechanisms claim the same promise. Bounds: an index of 15 to 45, a measure of progression from 0 to
# 350.

columns = ColumnMap.from_bounds([15], [45], intercept=0.0)
problem = Problem(Squared(), domain=Domain(x_norm=columns.norm_bound, adjacency="add_remove"))
patients = load_diabetes(scaled=False, as_frame=True).frame
index, progression = patients[["bmi"]].to_numpy(), (patients["target"].to_numpy() - 175) / 175
plans = {
    "sound": sound.plan(problem, 1, Budget(1.0, 1e-5)),
    "ten times too little noise": hasty.plan(problem, 1, Budget(1.0, 1e-5)),
}
for name, plan in plans.items():
    print(f"{name:27s} claims ε = {plan.guarantee.epsilon:g}, δ = {plan.guarantee.delta:g}")

# %%
# One patient fewer
# -----------------
#
# What an attacker sees: hundreds of releases with one patient, and hundreds without. The patient is the
# one whose answer is furthest from the others'. Seeds make the runs repeatable; nothing is released here.

x = (index[:, 0] - 30) / 15
slope = (x @ progression) / (x @ x)
patient = np.argmax(np.abs(x * (progression - slope * x)))
tables = {
    "with the patient": make_rows(index, progression, problem.domain, columns),
    "without that patient": make_rows(
        np.delete(index, patient, 0), np.delete(progression, patient), problem.domain, columns
    ),
}
seen = {
    (mechanism, table): [
        execute(plan, rows, random_state=1_000 * at + seed).value.theta[0, 0] for seed in range(250)
    ]
    for mechanism, plan in plans.items()
    for at, (table, rows) in enumerate(tables.items())
}

# %%
# The audit
# ---------
#
# It needs no table. It runs the shipped code on a table that theory says is among the worst, and again on a
# neighbouring one with the same noisy answers. How far one record moves an answer, in units of its noise, is
# then known exactly. More than the promise pays for refutes it.

BUDGET = Budget(1.0, 1e-3)
reports = {
    name: audit(mechanism, budget=BUDGET, features=1, problem=problem)
    for name, mechanism in zip(plans, (sound, hasty), strict=True)
}
for name, report in reports.items():
    print(f"{name}: {report.sentence}")

# %%
# The picture
# -----------

figure, panels = plt.subplots(1, 3, figsize=(10, 3.6), width_ratios=[1, 1, 0.9])
for panel, mechanism in zip(panels, plans, strict=False):
    both = np.concatenate([seen[mechanism, table] for table in tables])
    bins = np.linspace(both.min(), both.max(), 26)
    for table, colour in zip(tables, (PRIVATE, "0.5"), strict=True):
        panel.hist(seen[mechanism, table], bins, color=colour, alpha=0.6, label=table)
    panel.set_title(mechanism, fontsize=10)
    panel.set_xlabel("released slope")
    panel.set_yticks([])
    panel.locator_params(axis="x", nbins=4)
    panel.spines["left"].set_visible(False)
panels[0].legend(loc="upper left", bbox_to_anchor=(-0.05, -0.2), ncols=2, frameon=False)
found = [report.total for report in reports.values()]
panels[2].barh([1, 0], found, 0.45, color=[PRIVATE, "#b3261e"])
panels[2].axvline(1, color="0.3", linestyle="--", linewidth=1.2)
panels[2].text(1.3, 1.5, "allowed", fontsize=9, va="center")
for at, report in zip([1, 0], reports.values(), strict=True):
    colour = "white" if report.problems else "black"
    panels[2].text(1.3, at, report.verdict, va="center", color=colour, fontsize=10)
panels[2].set_yticks([1, 0], ["sound", "too little\nnoise"])
panels[2].set_ylim(-0.5, 1.65)
panels[2].set_xlabel("shift found / shift that ε allows")
panels[2].tick_params(axis="y", length=0)
plt.show()

# %%
# Left and middle: what is released with and without one patient. The sound mechanism hides the patient,
# the hasty one gives the patient away. Right: how far one record
# moves all answers together, in units of what both promises allow.
#
# What it cost
# ------------
#
# No table was needed, so no budget was spent. With tables of your own, run `curvedp audit` before the
# first release, not after it.

print(f"{sum(report.replays for report in reports.values())} replays on made-up tables; nothing was charged")

# %%
# More in the page on :doc:`the audit </audit>`.
