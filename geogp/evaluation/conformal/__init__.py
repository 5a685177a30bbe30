"""Conformal repair of predictive distributions, and checks of the coverage after the repair."""
