"""Processes and networks of classes."""
