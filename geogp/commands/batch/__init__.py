"""Many maps as one batch: regions, services, targets and quarters on a Dask cluster.

`batch_plan.py` says which runs there are, `batch_place.py` where they go,
`fingerprints.py` which of them need not be made, `batch_work.py` how a worker makes
one, `cluster.py` who works, `ledger.py` what became of each,
`failures.py` what may be tried again. `make_batch.py` ties these together, and
`national.py` joins the finished runs.
"""
