"""The variants of the law of errors, and their gains."""

from dataclasses import replace

import numpy as np
import pytest
from benchmark_scripts import load
from field_worlds import make_field

from geogp.models.field.predictive_law import COVARIATES, SIMPLE, Errors, fit_law

script = load("accuracy.ablation")


@pytest.fixture
def seen() -> Errors:
    """Errors whose scale depends on the first covariate."""
    rng = np.random.default_rng(0)
    covariates = rng.standard_normal((600, len(COVARIATES)))
    errors = np.exp(0.8 * covariates[:, 0]) * rng.standard_normal(600)
    single, groups = np.zeros(600, bool), np.repeat(np.arange(200), 3)
    return Errors(errors, covariates, single, single, groups)


def test_variants_have_the_parts_that_their_names_say(seen):
    field = make_field(3, 40)
    networks = fit_law(seen, scale=SIMPLE)
    full = replace(field.errors, law=fit_law(seen), networks_law=networks, networks_share=0.4)
    found = script.variants_of(full, seen)
    assert set(found) == set(script.VARIANTS) - {"process"}
    shares = {name: one.networks_share for name, one in found.items()}
    assert shares == {"simple": 0, "linear": 0, "corrected": 0, "near": 0.4, "chosen": 0.4}
    assert not found["simple"].law.outputs.any()
    assert not found["linear"].law.outputs.any()
    assert found["corrected"].law is found["near"].law is full.law
    at = [name in ("log distance", "near scatter") for name in COVARIATES]
    slopes = found["simple"].law.coefficients[1, 1 : 1 + len(COVARIATES)]
    assert (slopes[~np.array(at)] == 0).all()
    assert found["linear"].law.coefficients[1, 1] > 0.5


def test_errors_of_several_seeds_of_a_window_are_averaged_first():
    def fit(window: int, before: float) -> dict:
        scores = {"process": {"log_score": before}, "simple": {"log_score": 0.5}}
        return {"window": window, "scores": scores}

    fits = [fit(0, 0.52), fit(0, 0.54), fit(1, 0.51)]
    # The gains of the windows are 0.03 and 0.01.
    assert script.gain(fits, "process", "simple") == "0.020 ± 0.010"


def test_the_page_pools_coverage_and_counts_windows():
    scores = {name: {"log_score": 0.5, "inside": 95} for name in script.VARIANTS}
    own = {
        "region": "PR",
        "target": "upload",
        "split": "random",
        "test_rows": 100,
        "scores": scores,
    }
    found = [{**own, "window": k, "seed": 10, "rows": 1500 + k} for k in range(2)]
    found.append(
        {
            "window": 3,
            "target": "upload",
            "split": "random",
            "seed": 10,
            "rows": 1600,
            "refused": "why",
        }
    )
    text = script.page(found)
    assert "| upload | random | 1,250 to 1,999 | 2 | 0.000 ± 0.000 |" in text
    assert "| upload | random | 1,250 to 1,999 | 200 | 95.0 % | 95.0 % |" in text
