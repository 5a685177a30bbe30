"""Scores, splits, strata and reports."""
