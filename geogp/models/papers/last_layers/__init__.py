"""Bayesian last layers, and tangent features (Calvo-Ordoñez et al.)."""
