"""Privacy accounting. No data is needed or seen here."""
