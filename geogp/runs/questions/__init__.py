"""Questions that a finished run answers: levels of areas, thresholds, where to measure next."""
