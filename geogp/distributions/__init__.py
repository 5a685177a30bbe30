"""Predictive distributions and their shapes, scores and intervals; this package needs no torch."""
