"""Before any data: how many rows does a private regression on 10 features need?"""

from curvedp.planning import plan_table

table = plan_table(
    rows=5_000, features=10, epsilon=1.0, delta=1e-6, candidates=[("auto", "auto"), ("qop", "auto")]
)
for row in table.rows:
    print(f"{row.label:12s} expected {table.score_name} {row.score:.2f}, rows needed {row.rows_needed:,}")
print(table.verdict.sentence)
