"""
Big data: a folder of Parquet files, read by Dask
=================================================

Who owned a home in the United States in 1960? The table holds 214,144 men with the state they were born
in. It is no big table, but it is fitted as one: it lies in a folder of files, Dask reads them in pieces,
and only sums leave the workers. On a cluster the same lines run; open a client first.
"""

import tempfile

import dask.dataframe as dd
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from causaldata import mortgages
from sklearn.linear_model import LogisticRegression

from curvedp import Categorical, Ledger, Numeric, PrivateLogisticRegression, Schema

PRIVATE, PLAIN = "#1f6f78", "#b4552d"
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}

# %%
# What is known without the data
# ------------------------------
#
# The fifty states and the capital are known to everybody; a man born elsewhere counts as one without a
# state. Quarters of birth are counted from the one that made men eligible for a mortgage subsidy, for
# fifteen years before and after it.

# fmt: off
STATES = [
    "Alabama", "Alaska", "Arizona", "Arkansas", "California", "Colorado", "Connecticut", "Delaware",
    "District of Columbia", "Florida", "Georgia", "Hawaii", "Idaho", "Illinois", "Indiana", "Iowa",
    "Kansas", "Kentucky", "Louisiana", "Maine", "Maryland", "Massachusetts", "Michigan", "Minnesota",
    "Mississippi", "Missouri", "Montana", "Nebraska", "Nevada", "New Hampshire", "New Jersey",
    "New Mexico", "New York", "North Carolina", "North Dakota", "Ohio", "Oklahoma", "Oregon",
    "Pennsylvania", "Rhode Island", "South Carolina", "South Dakota", "Tennessee", "Texas", "Utah",
    "Vermont", "Virginia", "Washington", "West Virginia", "Wisconsin", "Wyoming",
]
# fmt: on
schema = Schema(
    [
        Categorical("bpl", STATES),
        Numeric("qob_minus_kw", -60, 60),
        Numeric("nonwhite", 0, 1),
        Numeric("vet_wwko", 0, 1),  # veteran
        Categorical("home_ownership", ["0", "1"]),
    ],
    target="home_ownership",
    adjacency="add_remove",
)

# %%
# A folder of files
# -----------------

folder = tempfile.TemporaryDirectory()
men = mortgages.load_pandas().data
dd.from_pandas(men, npartitions=8).to_parquet(f"{folder.name}/men")

# %%
# One private fit of the folder
# -----------------------------
#
# Nothing is read before the charge but the names and types of the columns. With so many men δ is smaller
# than usual.

ledger = Ledger.create(f"{folder.name}/budget.db", epsilon=1.0, delta=1e-7, adjacency="add_remove")
lazy = dd.read_parquet(f"{folder.name}/men")
model = PrivateLogisticRegression(epsilon=0.5, delta=1e-8, schema=schema, ledger=ledger).fit(lazy)
print(f"{len(schema.feature_names)} columns from {lazy.npartitions} files")

# %%
# Owners by state of birth
# ------------------------
#
# What the model expects of white men who were no veterans and were born in the middle quarter, beside an
# ordinary logistic regression on the whole table.

one_each = pd.DataFrame({"bpl": STATES, "qob_minus_kw": 0.0, "nonwhite": 0, "vet_wwko": 0})
private = 100 * model.predict_proba(one_each)[:, 1]
plain_model = LogisticRegression(C=np.inf, solver="newton-cholesky")
plain_model.fit(np.nan_to_num(schema.read(men)), men["home_ownership"])
plain = 100 * plain_model.predict_proba(schema.read(one_each))[:, 1]
counts = men["bpl"].value_counts().reindex(STATES).to_numpy()

figure, axes = plt.subplots(figsize=(6.5, 5.2))
ends = [min(plain.min(), private.min()) - 2, max(plain.max(), private.max()) + 2]
axes.plot(ends, ends, color=PLAIN, linewidth=1.5, zorder=0, label="the same as without privacy")
axes.scatter(
    plain,
    private,
    s=6 + counts / 60,
    color=PRIVATE,
    alpha=0.55,
    linewidth=0,
    label="a state, private at ε = 0.5",
)
for state in ("New York", "Texas", "Michigan", "Nevada", "Alaska"):
    j = STATES.index(state)
    left = plain[j] > np.mean(ends)
    axes.annotate(
        state,
        (plain[j], private[j]),
        xytext=(-8 if left else 8, 6 if left else -10),
        textcoords="offset points",
        ha="right" if left else "left",
        fontsize=9,
    )
axes.set(xlim=ends, ylim=ends, xlabel="own a home, without privacy (%)", ylabel="own a home, private (%)")
axes.set_aspect("equal")
figure.legend(loc="outside upper center", ncols=2, frameon=False)
plt.show()

# %%
# Each disc is a state, its area the number of men. Large states lie near the line; the noise moves small
# ones most.
#
# What it cost
# ------------

state = ledger.state()
print(f"{state.charges} charge of ε = {ledger.history()[0].epsilon:g}; left: {state.left}")
folder.cleanup()

# %%
# More in the how-to on :doc:`big data </howto/big-data>`.
