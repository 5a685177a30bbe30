"""Evaluation of predictions: splits, scores, strata and conformal repair."""
