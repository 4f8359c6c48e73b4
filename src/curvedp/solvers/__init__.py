"""Certified minimisers: an objective and a tolerance in, a point and its proved distance out. No privacy."""
