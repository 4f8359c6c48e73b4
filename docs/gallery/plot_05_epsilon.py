"""
Which ε? A plan before any data
===============================

Do people gain weight when they stop smoking? The answer lies in a survey of about 1,500 people (NHEFS).
Before anybody opens it, a forecast says what each ε would leave of the answer. It needs the shape of the
table, nothing of what is in it, and costs nothing.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from causaldata import nhefs_complete
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from curvedp import Budget, Categorical, Ledger, Numeric, PrivateLinearRegression, Schema
from curvedp_studies.forecasts import forecast, reach

PRIVATE, PLAIN = "#1f6f78", "#b4552d"
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}

# %%
# What is known without the data
# ------------------------------
#
# The codebook says who was asked: adults of 25 to 74 years. Weights of adults lie between 35 and 150 kg;
# in ten years hardly anybody gains or loses more than 40 kg. A packet holds 20 cigarettes, four packets a
# day are many.

schema = Schema(
    [
        Categorical("qsmk", ["0", "1"]),  # stopped smoking
        Categorical("sex", ["0", "1"]),
        Numeric("age", 25, 75),
        Numeric("wt71", 35, 150),
        Numeric("smokeintensity", 0, 80),
        Numeric("smokeyrs", 0, 60),
        Numeric("wt82_71", -40, 40),  # weight gained, kg
    ],
    target="wt82_71",
    adjacency="add_remove",
)

# %%
# The forecast
# ------------
#
# It takes a guess of how good the answer is without privacy, here R² = 0.12: people differ in much that no
# survey asks. (This guess was made with the table at hand; with your own, take it from a similar study.)
# From which ε on is R² = 0.1 left of that? Twenty fits of a synthetic table with 1,500 rows and the
# declared columns, at one ε after the other, say it.

DELTA = 1e-5
EPSILONS = [0.1, 0.2, 0.5, 1.0, 2.0]
wanted = reach(0.1, 1_500, schema, DELTA, "add_remove", best=0.12, epsilons=EPSILONS)
print(wanted.sentence)
chosen = wanted.sure_epsilon

# %%
# The whole curve, for the picture below.

default = [("recentered", "auto")]
expected = [
    forecast(1_500, schema, Budget(ε, DELTA), "add_remove", best=0.12, candidates=default).rows[0].scores
    for ε in EPSILONS
]

# %%
# One fit at the ε that was chosen
# --------------------------------
#
# The forecast did not look at the table, so that the choice itself costs nothing.

folder = tempfile.TemporaryDirectory()
ledger = Ledger.create(f"{folder.name}/budget.db", epsilon=2.0, delta=1e-4, adjacency="add_remove")
people = nhefs_complete.load_pandas().data
model = PrivateLinearRegression(epsilon=chosen, delta=DELTA, schema=schema, ledger=ledger).fit(people)
stopped = dict(zip(schema.feature_names, model.coef_, strict=True))
print(f"who stopped smoking gained {stopped['qsmk=1'] - stopped['qsmk=0']:+.1f} kg more")

# %%
# Was the forecast right?
# -----------------------
#
# Nobody could draw this for a private table: R² on the table itself, for seven seeded fits at every ε that
# the forecast tried.

encoded, gained = np.clip(schema.read(people), *schema.bounds), people["wt82_71"].clip(-40, 40)
best = LinearRegression().fit(encoded, gained).score(encoded, gained)
trial = PrivateLinearRegression(delta=DELTA, schema=schema)
reached = np.array(
    [
        [
            r2_score(gained, trial.set_params(epsilon=ε, random_state=seed).fit(people).predict(people))
            for seed in range(7)
        ]
        for ε in EPSILONS
    ]
)

figure, axes = plt.subplots(figsize=(8, 4))
low, middle, high = np.array([(found.low, found.median, found.high) for found in expected]).T
axes.fill_between(
    EPSILONS, low, high, color=PRIVATE, alpha=0.2, linewidth=0, label="forecast, eight of ten fits"
)
axes.plot(EPSILONS, middle, color=PRIVATE, linewidth=2.5, label="forecast, half of the fits above")
axes.plot(EPSILONS, reached[:, 0], ".", color="0.35", label="what fits of the table reached")
axes.plot(EPSILONS, reached[:, 1:], ".", color="0.35")
axes.axhline(best, color=PLAIN, linewidth=1.5, label="the table without privacy")
axes.axvline(chosen, color="0.85", linewidth=7, zorder=0, label="chosen ε")
axes.set_xscale("log")
axes.set_xticks(EPSILONS, [f"{ε:g}" for ε in EPSILONS])
axes.minorticks_off()
axes.set_ylim(-0.05, 0.14)
axes.set_xlabel("ε")
axes.set_ylabel("R²")
axes.legend(loc="lower right", frameon=False)
plt.show()

# %%
# The band and the line were there before the table was opened; dots are fits of it. A fit that does worse
# than the picture reaches is not drawn.
#
# What it cost
# ------------

state = ledger.state()
(charge,) = ledger.history()
print(f"charged: ε = {charge.epsilon:g}, δ = {charge.delta:g}; the forecast: nothing")
folder.cleanup()

# %%
# More in the how-to on :doc:`which ε </howto/epsilon>`.
