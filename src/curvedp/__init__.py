"""Convex models of sensitive tables, released under (ε, δ)-differential privacy.

The verbs of the command line are functions here. In the order of an analysis:

    schema = Schema.load("schema.toml")              what is public: columns, bounds, levels, who is protected
    table = dummy(schema, rows=1000)                 made-up cells, to write the rest on; no data are opened
    ledger = Ledger.create("budget.db", epsilon=3, delta=1e-5)           a budget that cannot be overspent
    plan(20_000, schema, Budget(1, 1e-6))            how wide will intervals be? A formula: no data, no charge
    check(schema, table, epsilon=0.1, ledger=ledger)                     are the cells what is declared?
    bounds(table, ["wage"], epsilon=0.1, ledger=ledger)                  how far do its numbers reach?
    describe(table, schema, epsilon=0.5, ledger=ledger)                  what do its columns hold?
    model = PrivateRidge(epsilon=1, schema=schema, ledger=ledger).fit(table)
    PrivateSearch(PrivateRidge(schema=schema), {"alpha": [1, 10]}).fit(table)    which penalty? In one charge
    score(model, test, epsilon=0.2, delta=1e-6, ledger=ledger)           how good is it, on private rows?
    model.save("model.json"); load("model.json")     the file of a release
    report(model, "report.html")                     its record, for whoever relies on it
    inspect(pipeline)                                what in a pipeline does its promise not cover?
    audit(model)                                     does the code do what its theorems assume?

Estimators: PrivateLinearRegression, PrivateRidge, PrivateLasso, PrivateElasticNet, PrivateHuberRegressor,
PrivateQuantileRegressor, PrivatePoissonRegressor, PrivateMultiTaskRidge; PrivateLogisticRegression,
PrivateLinearSVC. They follow scikit-learn: `help(PrivateRidge)`.

A schema is made of Numeric, Categorical, Boolean, Date and Ignored columns, or is written to be filled in by
`schema_template`. Whatever charges a ledger is charged before the table is touched.

One level down is the research core: `Problem` (one of `losses`, with `regularizers`, `constraints` and a
`Domain`), the `mechanisms` that plan its release, `private_fit`, which makes it, and its `Guarantee`.

Names are imported when first used, so that `import curvedp` and the command line start at once. They are
written once, in `__init__.pyi`.
"""

from curvedp.lazy import attached

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = attached(__name__, __file__)
