"""The one door (`door.execute`), the ledger that it charges, and what is kept of a release."""
