"""Gaussian processes for points in space and time, with the manners of scikit-learn."""
