"""A budget that two fits use up and a third cannot overspend."""

import tempfile
from pathlib import Path

import numpy as np

from curvedp import PrivateLogisticRegression
from curvedp.errors import BudgetExceeded
from curvedp.ledger import Ledger

random = np.random.default_rng(0)
X = random.uniform(-1, 1, (5_000, 3))
y = np.where(X @ [2.0, -1.0, 0.5] + random.logistic(size=5_000) > 0, "yes", "no")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "budget.db"
    ledger = Ledger.create(path, epsilon=2.0, delta=1e-5)
    model = PrivateLogisticRegression(
        epsilon=1.0, delta=1e-6, bounds=(-1, 1), classes=["no", "yes"], ledger=str(path)
    )
    for attempt in range(3):
        try:
            model.fit(X, y)
            print(f"fit {attempt + 1}: ε = {ledger.remaining().epsilon:g} left")
        except BudgetExceeded as refusal:
            print(f"fit {attempt + 1} refused: {refusal}")
