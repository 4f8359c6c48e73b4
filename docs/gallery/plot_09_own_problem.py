"""
Your own problem, from parts
============================

No estimator has this model: wages of young men with a loss that outliers cannot pull, a penalty, and signs
that theory demands (school, experience and the city never lower a wage). It is put together from a loss, a
regularizer, a constraint and a public domain; a mechanism makes a plan of it, and the plan is executed
once.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from causaldata import close_college
from scipy.optimize import minimize

from curvedp import Budget, Domain, Ledger, Problem
from curvedp.data.mapping import ColumnMap
from curvedp.data.rows import make_rows
from curvedp.mechanisms import Recentered
from curvedp.problems.constraints import Box
from curvedp.problems.losses import Huber
from curvedp.problems.regularizers import L1, OnCoordinates
from curvedp.release.door import execute
from curvedp_studies.mechanisms.baselines import OutputPerturbation
from curvedp_studies.mechanisms.lop import LOP

PRIVATE, PLAIN = "#1f6f78", "#b4552d"
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}

# %%
# The problem holds no data
# -------------------------
#
# Young men have 0 to 20 years of school and at most 30 of work. `ColumnMap` maps each column onto [−1, 1]
# by these bounds and adds a constant, the last coordinate. The target is a logarithm of cents per hour,
# between 4 and 8 (half a dollar to thirty), mapped onto [−1, 1], too.

NAMES = ["educ", "exper", "black", "south", "smsa"]
columns = ColumnMap.from_bounds([0, 0, 0, 0, 0], [20, 30, 1, 1, 1])
LOW, HIGH = (0, 0, -1, -1, 0, -1), (1, 1, 1, 1, 1, 1)
problem = Problem(
    loss=Huber(0.1),
    regularizer=OnCoordinates(L1(1.0), range(5)),
    constraint=Box(low=LOW, high=HIGH),
    domain=Domain(x_norm=columns.norm_bound, y_bound=1.0, adjacency="add_remove"),
)

# %%
# A plan is calibrated and proved before it sees a row
# ----------------------------------------------------
#
# Three mechanisms cover this problem. Each plan says what it promises, and by which theorem.

BUDGET = Budget(1.0, 1e-5)
plans = {
    "recentered": Recentered().plan(problem, columns.d, BUDGET),
    "linear objective perturbation": LOP().plan(problem, columns.d, BUDGET),
    "output perturbation": OutputPerturbation().plan(problem, columns.d, BUDGET),
}
for name, plan in plans.items():
    print(
        f"{name:30s} ε = {plan.guarantee.epsilon:g}, δ = {plan.guarantee.delta:g}, {plan.guarantee.theorem}"
    )

# %%
# One of them is executed
# -----------------------
#
# `execute` is the one door to the rows: it checks, charges, and releases.

folder = tempfile.TemporaryDirectory()
ledger = Ledger.create(f"{folder.name}/budget.db", epsilon=1.0, delta=1e-4, adjacency="add_remove")
men = close_college.load_pandas().data
target = ((men["lwage"] - 6) / 2).clip(-1, 1).to_numpy()
rows = make_rows(men[NAMES].to_numpy(float), target, problem.domain, columns)
released = execute(plans["recentered"], rows, ledger=ledger, label="wages by Huber")
theta = released.value.theta[:, 0]

# %%
# How near is it?
# ---------------
#
# The same problem without privacy, solved by scipy. And twenty seeded runs of every plan: not private, no
# releases, only to see how much larger each leaves the objective.

mapped = columns.apply(men[NAMES].to_numpy(float))


def objective(theta):
    """Huber's loss and the penalty, summed over all men."""
    size = np.abs(mapped @ theta - target)
    return np.where(size <= 0.1, size**2 / 2, 0.1 * (size - 0.05)).sum() + np.abs(theta[:5]).sum()


plain = minimize(
    objective, np.full(columns.d, 0.1), bounds=list(zip(LOW, HIGH, strict=True)), method="L-BFGS-B"
)
excess = {
    name: [
        objective(execute(plan, rows, random_state=seed).value.theta[:, 0]) / plain.fun - 1
        for seed in range(20)
    ]
    for name, plan in plans.items()
}

steps = {
    "four more years of school": 4,
    "four more years of work": 4,
    "Black": 1,
    "in the South": 1,
    "in a city": 1,
}
percent = {
    label: 100 * np.expm1(2 * theta[:5] / columns.scale[:5] * list(steps.values()))
    for label, theta in (("private, ε = 1", theta), ("without privacy", plain.x))
}
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), width_ratios=[1.15, 1])
place = np.arange(len(steps))[::-1]
left.plot(percent["private, ε = 1"], place + 0.1, "o", color=PRIVATE, label="private, ε = 1")
left.plot(percent["without privacy"], place - 0.1, "s", color=PLAIN, label="without privacy")
left.axvline(0, color="0.6", linewidth=1, zorder=0)
left.set_yticks(place, list(steps))
left.set_xlabel("change of the wage (%)")
left.tick_params(axis="y", length=0)
left.set_ylim(-0.5, len(steps) - 0.5)
left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
for at, found in zip((2, 1, 0), excess.values(), strict=True):
    right.plot(100 * np.array(found), [at] * len(found), "|", color=PRIVATE, markersize=16, alpha=0.7)
right.set_xscale("log")
right.set_yticks((2, 1, 0), [name.replace(" perturbation", "\nperturbation") for name in excess])
right.set_ylim(-0.6, 2.6)
right.set_xlabel("objective above its minimum (%), 20 draws")
right.tick_params(axis="y", length=0)
plt.show()

# %%
# Left: what was released, beside the solution without privacy; the constrained signs hold in both. Right:
# the same promise, three mechanisms; the further left, the nearer to the solution.
#
# What it cost
# ------------

state, promise = ledger.state(), released.privacy
print(f"promised: ε = {promise.epsilon:g}, δ = {promise.delta:g} by {promise.theorem}")
print(f"left:     {state.left}")
folder.cleanup()

# %%
# More in the explanation of :doc:`the mechanism </explanation/mechanism>`.
