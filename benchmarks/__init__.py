"""Benchmarks: ratios measured in one run. `python -m benchmarks` prints the tables and writes results.md."""
