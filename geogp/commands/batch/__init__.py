"""Many maps as one batch: regions, services, targets and quarters on a Dask cluster.

`batch_plan.py` says which runs there are, `batch_place.py` where they go, `batch_work.py` how a
worker makes one, `cluster.py` who works, `failures.py` what may be tried again, and
`batch_table.py` what became of each. `make_batch.py` ties these together; `national.py` and
`mosaic.py` join the finished runs.
"""
