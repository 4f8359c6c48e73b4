"""Before any data: how many rows does a private regression on 10 features need?"""

from curvedp import Budget
from curvedp.forecast import forecast

expected = forecast(
    rows=5_000, features=10, budget=Budget(1.0, 1e-6), candidates=[("auto", "auto"), ("qop", "auto")]
)
for row in expected.rows:
    print(f"{row.label:12s} expected {expected.score_name} {row.score:.2f}, rows needed {row.rows_needed:,}")
print(expected.verdict.sentence)
