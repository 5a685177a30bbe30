"""Questions about a finished run: levels of areas, thresholds, where to measure next."""
