"""Simulated tiles whose true model is known."""
