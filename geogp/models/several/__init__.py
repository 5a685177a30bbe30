"""Several targets of the same rows: independent factors, laws of the targets, and their copula."""
