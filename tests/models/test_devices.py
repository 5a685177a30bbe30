"""The same model on the CPU and on a GPU, where there is one."""

import logging

import numpy as np
import pytest
import torch

from geogp.models.catalogue.build_model import CATALOGUE
from geogp.models.families.exact_gp import ExactGP, ExactSettings, fit_exact
from geogp.models.joint.joint_law import effective_rank, joint_posterior
from geogp.models.training.schedule import FitSettings
from geogp.models.training.training_loop import fit

NAMES = sorted(name for name, spec in CATALOGUE.items() if not spec.about.counts)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("name", NAMES)
def test_predictions_agree_to_a_small_part_of_the_prior(name, train, validation, quick, make_model):
    model = make_model(name)
    fit(model, train, validation, quick)
    x = np.random.default_rng(3).uniform(-1, 1, (500, 2))
    here = model.predict(x)
    prior_sd = np.sqrt(np.diag(model.kernel(x, x)).max())
    joint, rank = joint_posterior(model, train).mean(x), effective_rank(model, x)
    there = model.to("cuda").predict(x)
    close = 1e-4 * prior_sd
    np.testing.assert_allclose(there.mean, here.mean, atol=close)
    np.testing.assert_allclose(there.sd, here.sd, atol=close)
    np.testing.assert_allclose(joint_posterior(model, train).mean(x), joint, atol=close)
    assert effective_rank(model, x) == pytest.approx(rank, rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_on_the_gpu_learns_what_one_on_the_cpu_does(
    name, train, validation, quick, make_model
):
    here, there = make_model(name), make_model(name).to("cuda")
    states = [fit(model, train, validation, quick) for model in (here, there)]
    assert states[1].best_nll == pytest.approx(states[0].best_nll, abs=0.05)


@pytest.mark.parametrize("name", [name for name in NAMES if CATALOGUE[name].step.same_kernels])
def test_steps_are_recorded_on_the_gpu(name, train, validation, make_model, caplog):
    here, there = make_model(name), make_model(name).to("cuda")
    settings = FitSettings(epochs=12, batch=40)
    with caplog.at_level(logging.INFO, logger="geogp.models.training.recorded_steps"):
        states = [fit(model, train, validation, settings) for model in (here, there)]
    assert "recorded" in caplog.text
    assert "not recorded" not in caplog.text
    np.testing.assert_allclose(states[1].losses, states[0].losses, atol=0.02)


@pytest.mark.parametrize("h", [None, 5])
def test_an_exact_fit_on_the_gpu_has_nearly_the_numbers_of_the_cpu(h, train, validation):
    models, settings = [ExactGP(2, h=h), ExactGP(2, h=h).to("cuda")], ExactSettings(steps=5)
    states = [fit_exact(model, train, settings, validation) for model in models]
    np.testing.assert_allclose(states[1].likelihood, states[0].likelihood, rtol=1e-6)
    here, there = (model.predict(validation.x) for model in models)
    np.testing.assert_allclose(there.mean, here.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(there.sd, here.sd, rtol=1e-5)
