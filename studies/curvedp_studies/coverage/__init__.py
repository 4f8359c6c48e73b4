"""Do the intervals of a default fit cover? Known populations, many samples, every fit beside the truth."""
