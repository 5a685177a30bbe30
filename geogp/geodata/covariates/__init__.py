"""Covariates: quantities of other sources at the places of measurements."""
