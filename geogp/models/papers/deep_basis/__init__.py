"""Exact processes, for comparison with deep basis kernels (Zhu, Yuchi and Xie)."""
