"""Processes with Student-t noise."""
