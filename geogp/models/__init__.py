"""Gaussian process models: their parts, training, storage and joint predictions."""
