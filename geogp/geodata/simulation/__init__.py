"""Simulated regions whose truth is known."""
