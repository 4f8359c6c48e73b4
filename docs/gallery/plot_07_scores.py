"""
Private scores: what is noise, and what is chance
=================================================

In a field experiment in Malawi people could learn the result of their HIV test, and some were paid a
little for coming. A model predicts who came. How good is it? Scores on held-out people tell about them, so
they are released privately, with intervals for the noise and for the chance of so few people.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from causaldata import thornton_hiv
from sklearn.calibration import calibration_curve

from curvedp import Categorical, Ledger, Numeric, PrivateLogisticRegression, Schema, score

PRIVATE, PLAIN = "#1f6f78", "#b4552d"
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}

# %%
# What is known without the data
# ------------------------------
#
# The experiment was designed so: vouchers of 0 to 3 dollars, centres within 6 km, adolescents and adults.
# Who was not tested has no target, and contributes nothing.

schema = Schema(
    [
        Numeric("any", 0, 1),  # was there a voucher?
        Numeric("tinc", 0, 3),  # dollars
        Numeric("distvct", 0, 6),  # km
        Numeric("age", 10, 90),
        Categorical("got", ["0", "1"]),  # came for the result
    ],
    target="got",
    adjacency="add_remove",
)
people = thornton_hiv.load_pandas().data

# %%
# Fit on some, score on others
# ----------------------------
#
# A coin for every person, and a ledger for each part.

held_out = np.random.default_rng().random(len(people)) < 0.5
folder = tempfile.TemporaryDirectory()
for_fits, for_scores = (
    Ledger.create(f"{folder.name}/{part}.db", epsilon=1.0, delta=1e-5, adjacency="add_remove")
    for part in ("fits", "scores")
)
model = PrivateLogisticRegression(epsilon=1.0, delta=1e-5, schema=schema, ledger=for_fits)
model.fit(people[~held_out])
scores = score(model, people[held_out], epsilon=1.0, delta=1e-5, ledger=for_scores)
for name in ("accuracy", "auc", "brier"):
    print(f"{name:9s} {scores[name]}")

# %%
# Noise and chance
# ----------------
#
# An interval has two parts. Noise shrinks when ε grows. Chance does not: another thousand people would
# have given another number, private or not. Where chance is the larger part, more ε buys little.

found = {"accuracy": scores["accuracy"], "AUC": scores["auc"], "Brier score": scores["brier"]}
curve = scores.overall.curves["calibration"]
tested = people[held_out].dropna(subset=["got"])
likely = model.predict_proba(tested)[:, 1]
share, mean = calibration_curve(tested["got"] == 1, likely, n_bins=10, strategy="quantile")

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), width_ratios=[1, 1.1])
left.plot([0, 1], [0, 1], color="0.7", linewidth=1, zorder=0)
left.vlines(curve.x, curve.low, curve.high, color=PRIVATE, linewidth=2.5, alpha=0.6)
left.plot(curve.x, curve.y, "o", color=PRIVATE, label="private, ε = 1, 95 % interval")
left.plot(mean, share, "s", color=PLAIN, markersize=5, label="without privacy")
left.set(xlabel="probability by the model", ylabel="share that came", xlim=(0, 1), ylim=(0, 1.02))
left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, columnspacing=1)
place = np.arange(len(found))[::-1]
right.barh(place + 0.18, [s.noise for s in found.values()], 0.32, color=PRIVATE, label="noise, at ε = 1")
right.barh(place - 0.18, [s.sampling for s in found.values()], 0.32, color="0.6", label="chance")
right.set_yticks(place, list(found))
right.locator_params(axis="x", nbins=4)
right.set_xlabel("standard deviation of the score")
right.tick_params(axis="y", length=0)
right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
plt.show()

# %%
# Left: of people to whom the model gives about the same probability of coming, how many came; on the
# diagonal it would be right. Right: the two parts of the uncertainty of each score.
#
# What it cost
# ------------

for part, ledger in (("people of the fit", for_fits), ("people held out", for_scores)):
    print(f"{part:18s} left: {ledger.state().left}")
folder.cleanup()

# %%
# More in the how-to on :doc:`how good a model is </howto/quality>`.
