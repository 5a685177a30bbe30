"""Many maps as one batch: regions, services, targets and quarters on a Dask cluster.

`batch_plan.py` lists the runs, `batch_place.py` stores them, `batch_work.py` makes one run on a
worker, `cluster.py` starts the workers, `failures.py` decides which failures are transient, and
`batch_table.py` records the result of each run. `make_batch.py` uses all of these; `national.py`
and `mosaic.py` join the finished runs.
"""
