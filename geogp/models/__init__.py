"""Gaussian processes that need torch and numpy only."""
