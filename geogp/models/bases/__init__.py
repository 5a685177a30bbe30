"""Basis functions and their kernels."""
