"""Names in run.json: predicted quantities, inputs, and reasons why variances differ."""

QUESTIONS = ("tile-mean", "single-test", "level")
"""Values of ``--for``: the quantity that a map predicts."""

LEVEL = QUESTIONS[2]
"""The question of a map of the level, around which measurements scatter."""

COUNT = "count"
"""The question of a map whose target is the number of tests."""

INPUTS = ("place", "place-quarter")
"""Kinds of a model's inputs."""

NOISE_IN_SPREAD, STEPS, POINT, FIELD = "noise in the spread", "steps", "point", "field"
"""Reasons why a model's function variance differs from the variance of its closed form."""
