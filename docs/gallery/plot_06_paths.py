"""
Free paths: many penalties from one release
===========================================

A lasso needs a penalty, and one tries several. Each try on private rows would be a release of its own. One
private fit already holds a model of the objective around its answer, and other penalties follow from that:
they cost nothing. The table holds how 6,366 women rated their marriage, from 1 to 5, in a survey of 1974.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Lasso
from statsmodels.datasets import fair

from curvedp import Ledger, Numeric, PrivateLasso, Schema
from curvedp.errors import NotCovered

PRIVATE, PLAIN = "#1f6f78", "#b4552d"
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}

# %%
# What is known without the data
# ------------------------------
#
# All bounds are those of the questionnaire.

schema = Schema(
    [
        Numeric("age", 16, 45),
        Numeric("yrs_married", 0, 25),
        Numeric("children", 0, 6),
        Numeric("religious", 1, 4),
        Numeric("educ", 9, 20),
        Numeric("occupation", 1, 6),
        Numeric("occupation_husb", 1, 6),
        Numeric("rate_marriage", 1, 5),
    ],
    target="rate_marriage",
    adjacency="add_remove",
)

# %%
# One release
# -----------

folder = tempfile.TemporaryDirectory()
ledger = Ledger.create(f"{folder.name}/budget.db", epsilon=1.0, delta=1e-5, adjacency="add_remove")
women = fair.load_pandas().data
model = PrivateLasso(alpha=10.0, epsilon=1.0, delta=1e-6, schema=schema, ledger=ledger).fit(women)

# %%
# A path, a submodel, a refusal
# -----------------------------
#
# A refit is trusted as long as it moves typical predictions by no more than four deviations of the noise:
# that far it was measured to match a fresh fit. The path says which points are, and a single refit beyond
# is refused.

alphas = np.geomspace(1, 1_000, 25)
path = model.path(alphas)
print(f"trusted up to alpha = {max(alphas[path.trusted]):.0f}")
without = model.refit(columns=[name for name in schema.feature_names if name != "occupation_husb"])
print("without the husband's occupation:", np.round(without.coef_, 3))
try:
    model.refit(alpha=1_000.0)
except NotCovered as refusal:
    print(f"alpha = 1000 is refused: {refusal}")

# %%
# Beside the path without privacy
# -------------------------------
#
# Coefficients are shown for the whole range of their column: how far the rating moves from one end to the
# other.

low, high = schema.bounds
middle, half = (high + low) / 2, (high - low) / 2
mapped = (women[list(schema.feature_names)].clip(low, high, axis=1) - middle) / half  # what the penalty sees
rating = (women["rate_marriage"] - 3) / 2
plain = np.array([Lasso(alpha / len(women)).fit(mapped, rating).coef_ for alpha in alphas])

names = ["age", "years married", "children", "religious", "education", "her occupation", "his occupation"]
figure, panels = plt.subplots(2, 4, figsize=(9.5, 4.6), sharex=True, sharey=True)
for j, (panel, name) in enumerate(zip(panels.flat, names, strict=False)):
    panel.axvspan(alphas[path.trusted].max(), alphas.max(), color="0.93", label="beyond what is trusted")
    panel.axhline(0, color="0.6", linewidth=1)
    panel.plot(alphas, path.coefs[:, j] * 2 * half[j], color=PRIVATE, linewidth=2.5, label="private, ε = 1")
    panel.plot(alphas, plain[:, j] * 4, "--", color=PLAIN, label="without privacy")
    panel.set_title(name, fontsize=10)
    panel.set_xscale("log")
figure.supxlabel("weight of the penalty, alpha", fontsize=10)
figure.supylabel("change of the rating", fontsize=10)
panels[0, -1].tick_params(labelbottom=True)
panels.flat[-1].set_axis_off()
panels.flat[-1].legend(*panels.flat[0].get_legend_handles_labels(), loc="center", frameon=False)
plt.show()

# %%
# Each panel is one coefficient along the penalty; 25 penalties, one release. In the grey part the release
# cannot promise to match a fresh fit.
#
# What it cost
# ------------

state = ledger.state()
print(f"{state.charges} charge of ε = {ledger.history()[0].epsilon:g}; the path and the refit: nothing")
folder.cleanup()

# %%
# More in the page on :doc:`habits that cost privacy </habits>`, also on how to choose among penalties.
