"""The names of the methods of repair."""

NONE, MARGINAL, BY_STRATA, LOCAL = METHODS = ("none", "marginal", "strata", "local")
"""No repair; one repair for all rows; one for each stratum and class of tests; one for each
place.
"""
