"""Conformal repair of predictive distributions, and checks of the promised coverage."""
