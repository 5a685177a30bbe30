"""Many maps as one batch: regions, services, targets and quarters on a Dask cluster.

`batch_plan.py` lists the runs, `batch_place.py` stores them, `batch_work.py` makes one on a worker,
`cluster.py` starts the workers, `failures.py` tells which failures are transient, and
`batch_table.py` records the result of each. `make_batch.py` ties these together; `national.py` and
`mosaic.py` join the finished runs.
"""
