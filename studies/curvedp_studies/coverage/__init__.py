"""Do the intervals of `inference=True` cover? Known populations, many samples, every fit beside the truth."""
