"""Conformal repair of predictive distributions, and its guarantees."""
