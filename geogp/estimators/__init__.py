"""Gaussian processes for points in space and time, with the interface of scikit-learn."""
