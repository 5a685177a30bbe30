"""A batch on a Dask cluster: many maps, by region, service, target and quarters."""
