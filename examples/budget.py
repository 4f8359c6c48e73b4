"""A budget that two fits use up and a third cannot overspend."""

import tempfile
from pathlib import Path

import numpy as np

from curvedp import Ledger, PrivateLogisticRegression
from curvedp.errors import BudgetExceeded

random = np.random.default_rng(0)
X = random.uniform(-1, 1, (5_000, 3))
y = np.where(X @ [2.0, -1.0, 0.5] + random.logistic(size=5_000) > 0, "yes", "no")

with tempfile.TemporaryDirectory() as folder:
    ledger = Ledger.create(Path(folder) / "budget.db", epsilon=2.0, delta=1e-5)
    model = PrivateLogisticRegression(
        epsilon=1.0, delta=1e-6, bounds=(-1, 1), classes=["no", "yes"], ledger=ledger
    )
    for attempt in range(3):
        try:
            model.fit(X, y)
            print(f"fit {attempt + 1}: ε = {ledger.state().remaining_epsilon:g} left")
        except BudgetExceeded as refusal:
            print(f"fit {attempt + 1} refused: {refusal}")
