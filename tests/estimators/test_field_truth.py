"""The field model with its usual schedule, against the truth."""

import numpy as np
import pytest
from estimator_worlds import made_points

from geogp import FieldGP, evaluate

NOISE = 0.2
"""Standard deviation of the noise of the values."""


@pytest.fixture(scope="module", autouse=True)
def _quick() -> None:
    """Leave the fits of this module as they are, in place of the short ones of the others."""


@pytest.mark.trial
def test_the_field_is_found_and_intervals_hold():
    """Errors are near the noise's, and 95 % of the new values of four fields are inside."""
    covered = []
    for seed in range(4):
        points = made_points(1500, seed=seed, noise=NOISE)
        known, new = points[:1200], points[1200:]
        model = FieldGP(x="east", y="north", crs=None, time="date", tests="tests")
        predicted = model.fit(known, known.value).predict_distribution(new)
        scores = evaluate(predicted, new.value).loc["all"]
        assert scores.rmse < 1.2 * NOISE
        covered.append(scores.coverage_95)
    assert 0.93 < np.mean(covered) < 0.97
