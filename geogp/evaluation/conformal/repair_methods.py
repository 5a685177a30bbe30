"""The ways of repairing intervals, by name."""

NONE, MARGINAL, BY_STRATA, LOCAL = METHODS = ("none", "marginal", "strata", "local")
"""No repair; the same for all rows; one by stratum and class of tests; one for each place."""
