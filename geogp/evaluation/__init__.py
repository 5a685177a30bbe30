"""How good predictions are: splits, scores, strata, conformal repair."""
