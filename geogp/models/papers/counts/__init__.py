"""Processes of counts."""
