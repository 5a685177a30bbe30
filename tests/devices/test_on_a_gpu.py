"""The same fits on the CPU and on a GPU.

Without a GPU, the second device stands in for it with some models, so that this code is tried.
"""

import gc
import logging
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmark_scripts import load

from geogp.models.fit_settings import FitSettings
from geogp.models.fitting import recorded_steps
from geogp.models.fitting.loop import fit
from geogp.models.fitting.recorded_steps import cuda_graph
from geogp.models.joint.law import effective_rank, joint_posterior
from geogp.models.papers.deep_basis.exact_gp import ExactGP, ExactSettings, fit_exact

launches, device = load("speed.launches"), load("speed.second_device")

MODELS = launches.MODELS
AVERAGES = sorted(name for name, spec in MODELS.items() if spec.about.family != "class")
LEVELS = [name for name in AVERAGES if not MODELS[name].about.counts]
CLASSES = sorted(name for name, spec in MODELS.items() if spec.about.family == "class")
RECORDED = sorted(name for name, spec in MODELS.items() if spec.fit.func.same_kernels)

TRIED = {"bll", "class-dnn"}
"""Models on the second device, whose other tests have all models."""

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

QUICK = FitSettings(epochs=6, batch=40, learning_rate=1e-2)


def each(names: list[str]) -> pytest.MarkDecorator:
    """Call a test with every model on a GPU, and with some on the second device."""
    pairs = [("second", name) for name in names if name in TRIED]
    pairs += [pytest.param("cuda", name, marks=cuda) for name in names]
    return pytest.mark.parametrize(("gpu", "name"), pairs, indirect=["gpu"])


@pytest.fixture(params=["second", pytest.param("cuda", marks=cuda)])
def gpu(request, monkeypatch) -> Iterator[torch.device]:
    if request.param == "cuda":
        yield torch.device("cuda")
        return
    with device.second_device() as counts:
        monkeypatch.setitem(recorded_steps.RECORDERS, device.NAME, counts.record)
        monkeypatch.setattr(recorded_steps, "monotonic", counts.launches.total)
        yield device.DEVICE


@pytest.fixture
def rows():
    def made(name, repeats=1):
        return launches.world(name, 190, 1, repeats), launches.world(name, 60, 2)

    return made


@each(LEVELS)
def test_predictions_agree_to_a_small_part_of_the_prior(name, gpu, rows):
    train, validation = rows(name)
    model = launches.made(name, train)
    model, _ = fit(model, train, validation, QUICK)
    x = np.random.default_rng(3).uniform(-1, 1, (500, 2))
    here, spread = model.predict(x), MODELS[name].about.has_spread
    prior_sd = np.sqrt(np.diag(model.kernel(x, x)).max())
    joint, rank = joint_posterior(model, train).mean(x), effective_rank(model, x)
    there = model.to(gpu).predict(x)
    close = 1e-4 * prior_sd
    np.testing.assert_allclose(there.mean, here.mean, atol=close)
    np.testing.assert_allclose(there.sd, here.sd, atol=close)
    np.testing.assert_allclose(joint_posterior(model, train).mean(x), joint, atol=close)
    assert effective_rank(model, x) == pytest.approx(rank, rel=1e-3)
    assert spread == bool(here.function_variance.any())


@each(AVERAGES)
def test_a_fit_on_the_gpu_learns_what_one_on_the_cpu_does(name, gpu, rows):
    train, validation = rows(name)
    here, there = launches.made(name, train), launches.made(name, train).to(gpu)
    states = [fit(model, train, validation, QUICK)[1] for model in (here, there)]
    assert states[1].best_nll == pytest.approx(states[0].best_nll, abs=0.05)


@pytest.mark.parametrize("repeats", [1, 4])
@each(RECORDED)
def test_steps_are_recorded_on_the_gpu(name, repeats, gpu, rows, caplog):
    train, validation = rows(name, repeats)
    here, there = launches.made(name, train), launches.made(name, train).to(gpu)
    settings = replace(QUICK, epochs=12, learning_rate=1e-3)
    with caplog.at_level(logging.INFO, logger=recorded_steps.__name__):
        states = [fit(model, train, validation, settings)[1] for model in (here, there)]
    assert "recorded" in caplog.text
    assert "not recorded" not in caplog.text
    np.testing.assert_allclose(states[1].losses, states[0].losses, atol=0.02)


@each(CLASSES)
def test_models_of_classes_draw_from_their_seed_alone(name, gpu, rows):
    """Draws on a GPU differ from those of the CPU, and leave the caller's numbers as they were."""
    train, validation = rows(name)
    states = []
    for _ in range(2):
        model = launches.made(name, train).to(gpu)
        before = torch.get_rng_state()
        if gpu.type == "cuda":
            torch.cuda.manual_seed(7)
            there = torch.cuda.get_rng_state()
        states.append(fit(model, train, validation, QUICK)[1])
        assert torch.equal(torch.get_rng_state(), before)
        assert gpu.type != "cuda" or torch.equal(torch.cuda.get_rng_state(), there)
        torch.rand(5)
    np.testing.assert_allclose(states[1].losses, states[0].losses, rtol=1e-3)
    _, here = fit(launches.made(name, train), train, validation, QUICK)
    assert states[0].best_nll == pytest.approx(here.best_nll, abs=0.1)


@pytest.mark.parametrize("h", [None, 4])
def test_an_exact_process_on_the_gpu_has_the_numbers_of_the_cpu(h, gpu, rows):
    train, validation = rows("dbk-rbf")
    here, there = ExactGP(2, h=h), ExactGP(2, h=h).to(gpu)
    fits = [fit_exact(model, train, ExactSettings(10), validation) for model in (here, there)]
    np.testing.assert_allclose(fits[1].likelihood, fits[0].likelihood, rtol=1e-6)
    found, expected = (model.predict(validation.x) for model in (there, here))
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.sd, expected.sd, rtol=1e-5)


@cuda
def test_a_failed_recording_leaves_the_process_as_it_was_cuda():
    """Afterwards memory is freed, random numbers are drawn, and other steps are recorded."""
    values = torch.ones(1000, device="cuda")
    gc.collect()
    torch.cuda.empty_cache()
    before, stream = torch.cuda.memory_reserved(), torch.cuda.current_stream()

    def waiting() -> torch.Tensor:
        large = torch.rand(2**24, device="cuda") * values[0]
        return large * large.sum().item()

    with pytest.raises(RuntimeError, match="captur"):
        cuda_graph(waiting)
    assert torch.cuda.current_stream() == stream
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before
    assert torch.rand(3, device="cuda").isfinite().all()
    found, replay = cuda_graph(values.sum)
    replay()
    assert float(found) == 1000.0
