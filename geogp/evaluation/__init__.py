"""How good predictions are: splits, scores, strata and conformal repair."""
