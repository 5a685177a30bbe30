"""Names that run.json has for what a map predicts, its inputs, and why variances differ."""

QUESTIONS = ("tile-mean", "single-test", "level")
"""Values of ``--for``: what a map predicts."""

LEVEL = QUESTIONS[2]
"""The question of a map of what measurements scatter around."""

COUNT = "count"
"""The question of a map of numbers of tests."""

INPUTS = ("place", "place-quarter")
"""What a model's inputs are made of."""

NOISE_IN_SPREAD, STEPS, POINT, FIELD = "noise in the spread", "steps", "point", "field"
"""Why the function variance that a model states differs from its closed form's."""
