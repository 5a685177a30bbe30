"""A batch on a Dask cluster: many maps, by region, service, target and quarters.

`batch_plan.py` lists the runs, `batch_place.py` stores them, `batch_work.py` makes one run on a
worker, `cluster.py` starts the workers, `failures.py` decides which failures may be temporary, and
`batch_table.py` records the result of each run. `make_batch.py` uses all of these; `national.py`
and `mosaic.py` join the finished runs.
"""
