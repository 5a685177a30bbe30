"""Allowed values of some entries of run.json."""

from geogp.choices import CLASS, COUNT

QUESTIONS = ("tile-mean", "single-test", "level")
"""Values of ``--for``: the quantity that a map predicts."""

LEVEL = QUESTIONS[2]
"""Value of ``--for`` for maps of the level, without measurement noise."""

OTHER_QUESTIONS = (COUNT, CLASS)
"""Predicted quantity of a map whose target is the number of tests, or a class."""

INPUTS = ("place", "place-quarter")
"""Inputs of a model: the place, or the place and the quarter."""

NOISE_IN_SPREAD, STEPS, POINT, FIELD = "noise in the spread", "steps", "point", "field"
"""Reasons why a model's own variance of the level differs from its closed-form variance."""
