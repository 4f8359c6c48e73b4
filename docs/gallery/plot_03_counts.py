"""
Counts: visits to a doctor, by years observed
=============================================

In the RAND Health Insurance Experiment families were given insurance that paid for all of a visit to a
doctor, or for a part of it. Do people go less often when they pay more? People were observed for different
times, so what is compared is a rate: visits per year.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.api as sm
from statsmodels.datasets import randhie

from curvedp import Ledger, Numeric, PrivatePoissonRegressor, Schema

PRIVATE, PLAIN = "#1f6f78", "#b4552d"
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}

# %%
# One row for each person
# -----------------------
#
# The file that comes with statsmodels, from version 0.15 on, has a row for each person and year. Adding up
# the years of a person uses that person's rows alone; afterwards a person is one row, and protecting rows
# protects people.

years = pd.read_csv(Path(randhie.__file__).parent / "src" / "randhie.csv")
people = years.groupby("zper").agg(
    visits=("mdvis", "sum"),
    years=("time", "sum"),
    copay=("coins", "max"),
    age=("xage", "min"),
    female=("female", "max"),
    limited=("physlm", "max"),
    disease=("disea", "max"),
)

# %%
# What is known without the data
# ------------------------------
#
# By design the experiment took people below 62 for up to five years, and they paid 0 to 100 percent. The
# index of chronic disease goes from 0 to about 60. Twenty visits a year, for five years, is a generous
# bound. Half of that is the largest number that the model should have to expect.

schema = Schema(
    [
        Numeric("copay", 0, 100),
        Numeric("age", 0, 65),
        Numeric("female", 0, 1),
        Numeric("limited", 0, 1),
        Numeric("disease", 0, 60),
        Numeric("years", 0.05, 5),
        Numeric("visits", 0, 100),
    ],
    target="visits",
    exposure="years",
    adjacency="add_remove",
)
folder = tempfile.TemporaryDirectory()
ledger = Ledger.create(f"{folder.name}/budget.db", epsilon=2.0, delta=1e-5, adjacency="add_remove")
model = PrivatePoissonRegressor(epsilon=1.0, delta=1e-6, schema=schema, max_rate=50.0, ledger=ledger).fit(
    people
)

# %%
# What changes the rate
# ---------------------
#
# A coefficient acts on the logarithm, so that exp(coefficient × step) multiplies the visits per year.
# There are no intervals for counts. To show what the noise does, twenty more fits are drawn with seeds:
# they are not private, and are no releases.

steps = {
    "pays all instead of nothing": 100,
    "ten years older": 10,
    "female": 1,
    "physically limited": 1,
    "ten more points of disease": 10,
}
step, features = np.array(list(steps.values())), list(schema.feature_names)
for_the_picture = PrivatePoissonRegressor(epsilon=1.0, delta=1e-6, schema=schema, max_rate=50.0)
drawn = [for_the_picture.set_params(random_state=seed).fit(people).coef_ for seed in range(20)]
clipped = people[features].clip(*schema.bounds, axis=1)
poisson = sm.families.Poisson()
plain = sm.GLM(
    people["visits"].clip(0, 100), sm.add_constant(clipped), poisson, exposure=people["years"]
).fit()

figure, axes = plt.subplots(figsize=(8, 3.8))
place = np.arange(len(steps))[::-1]
for again in drawn:
    axes.plot(np.exp(again * step), place + 0.12, "|", color=PRIVATE, alpha=0.35, markersize=12)
axes.plot([], [], "|", color=PRIVATE, alpha=0.5, markersize=12, label="other draws of its noise")
axes.plot(np.exp(model.coef_ * step), place + 0.12, "o", color=PRIVATE, label="private, ε = 1")
axes.plot(np.exp(plain.params[features] * step), place - 0.12, "s", color=PLAIN, label="without privacy")
axes.axvline(1, color="0.6", linewidth=1, zorder=0)
axes.set_xscale("log")
axes.set_xlim(0.5, 1.7)
axes.set_ylim(-0.5, len(steps) - 0.5)
ticks = [0.6, 0.8, 1.0, 1.25, 1.5]
axes.set_xticks(ticks, [f"× {tick:g}" for tick in ticks])
axes.minorticks_off()
axes.set_yticks(place, list(steps))
axes.set_xlabel("visits to a doctor per year are multiplied by")
axes.tick_params(axis="y", length=0)
figure.legend(loc="outside upper center", ncols=3, frameon=False)
plt.show()

# %%
# Each row is one column of the model. People who pay for a visit go less often; the marks around the
# circle show how far another draw of the noise would have put it.
#
# What it cost
# ------------

state = ledger.state()
print(f"promised: ε = {model.privacy_.epsilon:g}, δ = {model.privacy_.delta:g} for every person")
print(f"left:     {state.left}")
folder.cleanup()

# %%
# More in the page on :doc:`weights, counts and rates </weights>`.
