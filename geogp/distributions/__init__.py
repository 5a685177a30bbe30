"""Predictive distributions and their shapes, scores and intervals, computed without torch."""
