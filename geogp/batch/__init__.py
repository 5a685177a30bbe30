"""Many maps as one batch: regions, services, targets and quarters on a Dask cluster.

`geogp.batch.plan` says which runs there are, `geogp.batch.place` where they go,
`geogp.batch.fingerprints` which of them need not be made, `geogp.batch.work` how a worker makes
one, `geogp.batch.cluster` who works, `geogp.batch.ledger` what became of each,
`geogp.batch.failures` what may be tried again. `geogp.batch.running` ties these together, and
`geogp.batch.national` joins the finished runs.
"""
