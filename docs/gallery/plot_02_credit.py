"""
Credit: a classifier and its scores by group
============================================

A bank wants to know in April who will be late with a card payment in September, and whether its model
treats young and old customers alike. Both answers are released privately: the model, and its scores by age
group. The table holds 30,000 card holders in Taiwan, 2005.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from causaldata import credit_cards
from matplotlib.ticker import MaxNLocator

from curvedp import Categorical, Ledger, Numeric, PrivateLogisticRegression, Schema, score

PRIVATE, PLAIN = "#1f6f78", "#b4552d"
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}

# %%
# What is known without the data
# ------------------------------
#
# Card holders are adults, few bills exceed 500,000 dollars of Taiwan, and a payment is late or not. The
# age groups are the bank's own. A group is read off the customer's own row, so that it needs no look at
# others.

GROUPS = ["under 30", "30 to 44", "45 and over"]
schema = Schema(
    [
        Numeric("LateApril", 0, 1),
        Numeric("BillApril", 0, 500),  # thousands
        Numeric("AGE", 18, 80),
        Categorical("September", ["on time", "late"]),
    ],
    target="September",
    adjacency="add_remove",
)
customers = credit_cards.load_pandas().data
customers["September"] = np.where(customers["LateSept"] == 1, "late", "on time")
customers["group"] = np.select([customers["AGE"] < 30, customers["AGE"] < 45], GROUPS[:2], GROUPS[2])

# %%
# Two parts, two ledgers
# ----------------------
#
# A coin for every customer decides who is held out. No customer is in both parts, so a ledger for each of
# them counts what a customer can lose: never the sum, only the dearer of the two.

held_out = np.random.default_rng().random(len(customers)) < 0.3
folder = tempfile.TemporaryDirectory()
for_fits, for_scores = (
    Ledger.create(f"{folder.name}/{part}.db", epsilon=1.0, delta=1e-6, adjacency="add_remove")
    for part in ("fits", "scores")
)
model = PrivateLogisticRegression(epsilon=1.0, delta=1e-6, schema=schema, ledger=for_fits)
model.fit(customers[~held_out])
print(f"log-odds of {model.classes_[1]}:")
for name, coefficient in zip(schema.feature_names, model.coef_[0], strict=True):
    print(f"{name:10s} {coefficient:+.4f}")

# %%
# All scores of all groups are one charge.

scores = score(
    model,
    customers[held_out],
    by=Categorical("group", GROUPS),
    epsilon=1.0,
    delta=1e-6,
    ledger=for_scores,
)
for group, found in scores.levels.items():
    print(f"{group:12s} AUC {found['auc']}")

# %%
# Are the groups treated alike?
# -----------------------------
#
# Three shares say it: how many of a group the model flags, how many of the late ones it finds, and how
# many of the flagged ones were late. The squares are the exact shares, which only a public table allows to
# show.

flagged, late = model.predict(customers[held_out]) == "late", customers["LateSept"][held_out] == 1
exact = {
    "predicted late": lambda inside: flagged[inside].mean(),
    "recall of late": lambda inside: flagged[inside & late].mean(),
    "precision of late": lambda inside: late[inside & flagged].mean(),
}
titles = ["flagged, of all", "flagged, of the late", "late, of the flagged"]
place = np.arange(len(GROUPS))[::-1]
figure, panels = plt.subplots(1, 3, figsize=(9, 3.2), sharey=True)
for panel, title, (name, count) in zip(panels, titles, exact.items(), strict=True):
    found = [scores.levels[group][name] for group in GROUPS]
    panel.hlines(place + 0.1, [s.low for s in found], [s.high for s in found], color=PRIVATE, linewidth=2.5)
    panel.plot(
        [s.value for s in found], place + 0.1, "o", color=PRIVATE, label="private, ε = 1, 95 % interval"
    )
    without = [count((customers["group"][held_out] == group).to_numpy()) for group in GROUPS]
    panel.plot(without, place - 0.1, "s", color=PLAIN, label="without privacy")
    panel.set_xlim(left=0)
    panel.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    panel.xaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    panel.set_xlabel(title)
    panel.tick_params(axis="y", length=0)
panels[0].set_yticks(place, GROUPS)
panels[0].set_ylim(-0.6, len(GROUPS) - 0.4)
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
plt.show()

# %%
# Each panel is one share by age group. Where two intervals overlap widely, the release shows no difference
# between the groups; it does not prove that there is none. The smallest group has the widest intervals.
#
# What it cost
# ------------

for part, ledger in (("customers of the fit", for_fits), ("customers held out", for_scores)):
    state = ledger.state()
    print(f"{part:22s} {state.charges} charge of ε = {ledger.history()[0].epsilon:g}; left: {state.left}")
folder.cleanup()

# %%
# More in the how-to on :doc:`how good a model is </howto/quality>`.
