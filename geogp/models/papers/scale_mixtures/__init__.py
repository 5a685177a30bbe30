"""Processes with a random scale (Lee et al.)."""
