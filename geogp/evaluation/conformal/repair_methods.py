"""Names of the methods of conformal repair."""

NONE, MARGINAL, BY_STRATA, LOCAL = METHODS = ("none", "marginal", "strata", "local")
"""The methods: no repair; one repair for all rows; one repair for each stratum and class of tests;
one repair for each place.
"""
