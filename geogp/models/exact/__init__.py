"""Exact Gaussian processes of few rows."""
