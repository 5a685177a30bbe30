"""Figures for reports, print and papers."""
