"""
Wages: coefficients with intervals
==================================

Who earned how much in 1978, among 15,992 people of the Current Population Survey? A regression is
published with intervals. Here they hold the noise of privacy as well as chance, and stand beside the
intervals without privacy.
"""

# sphinx_gallery_thumbnail_number = 1
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm
from causaldata import cps_mixtape

from curvedp import Ledger, Numeric, PrivateLinearRegression, Schema
from curvedp.errors import BudgetExceeded

PRIVATE, PLAIN = "#1f6f78", "#b4552d"
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}

# %%
# What is known without the data
# ------------------------------
#
# People at work are 16 to 65 years old and have up to 20 years of schooling. Few earned more than $30,000
# in the 1970s; what lies beyond a bound is clipped to it.

schema = Schema(
    [
        Numeric("age", 16, 65),
        Numeric("educ", 0, 20),
        Numeric("black", 0, 1),
        Numeric("hisp", 0, 1),
        Numeric("marr", 0, 1),
        Numeric("re74", 0, 30_000),
        Numeric("re75", 0, 30_000),
        Numeric("re78", 0, 30_000),
    ],
    target="re78",
    adjacency="add_remove",
)

# %%
# One charge, one fit
# -------------------
#
# The budget for this table lies in a ledger. The fit takes ε = 1 from it before it reads a single row.

folder = tempfile.TemporaryDirectory()
ledger = Ledger.create(f"{folder.name}/budget.db", epsilon=3.0, delta=1e-5, adjacency="add_remove")
people = cps_mixtape.load_pandas().data
model = PrivateLinearRegression(epsilon=1.0, delta=1e-6, schema=schema, ledger=ledger)
model.fit(people)
print(model.summary())

# %%
# Private beside non-private
# --------------------------
#
# Coefficients have units of their own, so each is shown for a step that a reader can imagine: ten years of
# age, four years of school, a thousand dollars. The plain fit is ordinary least squares on the same
# clipped table, with robust intervals.

steps = {
    "ten years older": 10,
    "four more years of school": 4,
    "Black": 1,
    "Hispanic": 1,
    "married": 1,
    "$1,000 more in 1974": 1_000,
    "$1,000 more in 1975": 1_000,
}
step = np.array(list(steps.values()))
features = list(schema.feature_names)
clipped = people[features].clip(*schema.bounds, axis=1)
plain = sm.OLS(people["re78"].clip(0, 30_000), sm.add_constant(clipped)).fit(cov_type="HC1")

figure, axes = plt.subplots(figsize=(8, 4.4))
place = np.arange(len(steps))[::-1]
for shift, colour, marker, label, value, interval in (
    (0.14, PRIVATE, "o", "private, ε = 1", model.coef_, model.conf_int()),
    (-0.14, PLAIN, "s", "without privacy", plain.params[features], plain.conf_int().loc[features].to_numpy()),
):
    low, high = (interval * step[:, None]).T
    axes.hlines(place + shift, low, high, color=colour, linewidth=2.5)
    axes.plot(value * step, place + shift, marker, color=colour, markersize=7, label=label)
axes.axvline(0, color="0.6", linewidth=1, zorder=0)
axes.set_yticks(place, list(steps))
axes.set_xlabel("difference in earnings of 1978 (dollars), with 95 % intervals")
axes.legend(loc="upper left", frameon=False, bbox_to_anchor=(0.0, 1.12), ncols=2)
axes.xaxis.set_major_formatter("{x:,.0f}")
axes.tick_params(axis="y", length=0)
plt.show()

# %%
# Every row is one coefficient times its step. The private intervals are wider, since they hold the noise
# too; what is clear without privacy (earlier earnings, age) is clear with it.
#
# What it cost
# ------------
#
# The guarantee is that of the fit, and the ledger keeps the rest of the budget. It refuses what would cost
# more than that, before anything is computed.

state = ledger.state()
print(f"promised: ε = {model.privacy_.epsilon:g}, δ = {model.privacy_.delta:g} by {model.privacy_.theorem}")
print(f"left:     {state.left}")
try:
    PrivateLinearRegression(epsilon=4.0, delta=1e-6, schema=schema, ledger=ledger).fit(people)
except BudgetExceeded as refusal:
    print(f"refused:  {refusal}")
folder.cleanup()

# %%
# More in the how-to on :doc:`intervals </howto/intervals>`.
