"""Honest maps of network quality with scalable Gaussian processes."""

__version__ = "0.1.0"
