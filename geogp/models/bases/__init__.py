"""Basis functions, and the kernels that they come from."""
