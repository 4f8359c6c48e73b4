"""Which public rule of the recentered mechanism is the most accurate? The library's own fits, many tables."""
