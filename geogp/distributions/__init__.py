"""Predictive distributions, without torch: their shapes, scores and intervals."""
