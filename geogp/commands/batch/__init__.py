"""Batches: maps of many regions, services, targets and quarters, made on a Dask cluster."""
