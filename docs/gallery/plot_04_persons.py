"""
Several rows per person
=======================

In the RAND Health Insurance Experiment a person has a row for every year, up to five. A promise about rows
protects one year of a person; the others still speak. `unit` names the column that says whose row it is,
and the promise is then about a person with all rows.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.api as sm
from statsmodels.datasets import randhie

from curvedp import Ledger, Numeric, PrivateLinearRegression, Schema
from curvedp.errors import LedgerRefused

PRIVATE, PLAIN = "#1f6f78", "#b4552d"
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}

# %%
# What is known without the data
# ------------------------------
#
# The table comes with statsmodels, from version 0.15 on. People below 62 took part and paid 0 to 100
# percent of a visit. More than 25 visits a year are counted as 25.

persons = Schema(
    [
        Numeric("coins", 0, 100),
        Numeric("xage", 0, 65),
        Numeric("female", 0, 1),
        Numeric("physlm", 0, 1),
        Numeric("disea", 0, 60),
        Numeric("mdvis", 0, 25),
    ],
    target="mdvis",
    adjacency="add_remove",
    unit="zper",
    record="one row is one year of a person",
)
rows = replace(persons, unit=None)
years = pd.read_csv(Path(randhie.__file__).parent / "src" / "randhie.csv")

# %%
# A budget for persons
# --------------------
#
# The ledger is made for the same unit. A fit that protects single rows is refused, and nothing is charged
# for it.

folder = tempfile.TemporaryDirectory()
ledger = Ledger.create(
    f"{folder.name}/budget.db", epsilon=2.0, delta=1e-5, adjacency="add_remove", unit="zper"
)
try:
    PrivateLinearRegression(epsilon=1.0, delta=1e-6, schema=rows, ledger=ledger).fit(years)
except LedgerRefused as refusal:
    print(f"refused: {refusal}")
model = PrivateLinearRegression(epsilon=1.0, delta=1e-6, schema=persons, ledger=ledger).fit(years)

# %%
# What it costs to protect a person
# ---------------------------------
#
# At the same ε a person needs more noise than a row, since a person adds up to five rows. Twenty fits of
# each kind show how much more; they have seeds, are not private, and are for this picture only.

steps = {
    "pays all instead of nothing": 100,
    "ten years older": 10,
    "female": 1,
    "physically limited": 1,
    "ten more points of disease": 10,
}
step, features = np.array(list(steps.values())), list(persons.feature_names)


def repeated(schema):
    """Coefficients of twenty seeded fits, times their steps."""
    one = PrivateLinearRegression(epsilon=1.0, delta=1e-6, schema=schema)
    return np.array([one.set_params(random_state=seed).fit(years).coef_ * step for seed in range(20)])


by_row, by_person = repeated(rows), repeated(persons)
clipped = years[features].clip(*persons.bounds, axis=1)
plain = sm.OLS(years["mdvis"].clip(0, 25), sm.add_constant(clipped)).fit()

figure, axes = plt.subplots(figsize=(8, 4.2))
place = np.arange(len(steps))[::-1]
for shift, colour, found, label in (
    (0.24, PRIVATE, by_person, "persons protected, 20 draws"),
    (0.0, "0.55", by_row, "single years protected, 20 draws"),
):
    axes.plot(found.T, np.tile(place[:, None] + shift, 20), "|", color=colour, alpha=0.5, markersize=11)
    axes.plot([], [], "|", color=colour, markersize=11, label=label)
axes.plot(model.coef_ * step, place + 0.24, "o", color=PRIVATE, label="private release, ε = 1 for a person")
axes.plot(plain.params[features] * step, place - 0.24, "s", color=PLAIN, label="without privacy")
axes.axvline(0, color="0.6", linewidth=1, zorder=0)
axes.set_ylim(-0.5, len(steps) - 0.5)
axes.set_yticks(place, list(steps))
axes.set_xlabel("difference in visits to a doctor per year")
axes.tick_params(axis="y", length=0)
figure.legend(loc="outside upper center", ncols=2, frameon=False)
plt.show()

# %%
# Each row is one coefficient times its step. On the whole the draws that protect persons spread more than
# those that protect single years. They may also lie a little to one side: what a person adds in all years
# together is clipped.
#
# What it cost
# ------------

state = ledger.state()
print(f"promised: ε = {model.privacy_.epsilon:g} for every {model.privacy_.neighbours.unit} with all rows")
print(f"left:     {state.left}, after {state.charges} charge")
folder.cleanup()

# %%
# More in the how-to on :doc:`several rows per person </howto/persons>`.
