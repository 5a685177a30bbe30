"""Conformal repair of predictive distributions, and what it guarantees."""
