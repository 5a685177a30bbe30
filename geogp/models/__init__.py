"""Gaussian processes with a learned kernel, on floors; a module imports only floors below its own.

The ground are the modules of this package: names of models, presets and settings, without PyTorch.
Then come `numerics`, `process` (mathematics, no training), `joint` (the level of many
places), `fitting`, `field`, `papers` (a folder or file a paper) and `catalogue`.
"""
