"""The steps from settings to a finished run: read, split, fit, predict, draw, write."""
