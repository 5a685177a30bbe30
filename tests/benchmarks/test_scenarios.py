"""The simulation study: its inputs, its draws against exact covariances, and one tiny study."""

import json

import numpy as np
import pytest
import torch
from benchmark_scripts import SCRIPTS, load


@pytest.fixture(scope="module")
def draws():
    return load("scenario_draws")


@pytest.fixture(scope="module")
def study():
    return load("scenarios")


def uniform(n: int, inputs: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, (n, inputs))


@pytest.mark.parametrize(("inputs", "paper"), [(20, 2.132745), (80, 3.769967)])
def test_mean_variances_are_those_of_table_2(inputs, paper, draws, study):
    assert (10_000, inputs) in study.SCENARIOS.values()
    found = float(draws.truth().diagonal(torch.from_numpy(uniform(10_000, inputs))).mean())
    assert found == pytest.approx(paper, abs=0.004)  # 10,000 inputs give the mean to 0.002


def test_draws_have_the_covariance_of_the_kernel(draws):
    x = uniform(40)
    f = draws.draw(x, np.random.default_rng(1), 20_000)
    points = torch.from_numpy(x)
    expected = draws.truth()(points, points).numpy()
    # The standard error of a covariance is at most sqrt(2 / 20,000) times the variance.
    np.testing.assert_allclose(f.T @ f / len(f), expected, atol=0.05 * expected.max())


def test_exact_predictions_are_the_conditionals(draws):
    x, new = uniform(60), uniform(7, seed=1)
    kernel, y = draws.truth(), np.random.default_rng(2).standard_normal((3, 60))
    mean, variance = draws.exact_means(kernel, 0.1, x, y, new)
    both = torch.from_numpy(np.concatenate([x, new]))
    C = kernel(both, both).numpy() + 0.1 * np.eye(67)
    weights = np.linalg.solve(C[:60, :60], C[:60, 60:])
    np.testing.assert_allclose(mean, y @ weights, atol=1e-9)
    left = C[60:, 60:] - C[60:, :60] @ weights
    np.testing.assert_allclose(variance, left.diagonal(), atol=1e-9)


def test_the_error_of_a_kernel(draws):
    x, kernel = uniform(50), draws.truth()
    assert draws.kernel_errors(kernel, 1.0, x) == pytest.approx((0, 0), abs=1e-12)
    assert draws.kernel_errors(kernel, 1.5, x) == pytest.approx((0.5, 0.5))
    with torch.no_grad():
        kernel.log_output_bias += 1
    plain, centred = draws.kernel_errors(kernel, 1.0, x)
    assert plain > 0.5
    assert centred == pytest.approx(0, abs=1e-9)


def test_a_start_is_what_it_says(study):
    """At the truth the kernel of the target is the true one, whatever the target's spread."""
    world = study.World(np.random.default_rng(0).uniform(-0.5, 0.5, (80, 4)), None, 0.1, 2.0)
    train = study.Data(2 * world.x, 3 * np.random.default_rng(1).standard_normal(80))
    model = study.make_model(study.Case("C1", r=80, start="truth"), train, world)
    model.y_sd.fill_(train.y.std())
    scale, points = float(model.y_sd.square()), torch.from_numpy(world.x)
    with torch.no_grad():
        found = scale * study.kernel_of(model)(points, points)
    torch.testing.assert_close(found, study.truth()(points, points))
    assert scale * model.noise().item() == pytest.approx(0.1)
    # The inputs of the model are those of the kernel times two.
    np.testing.assert_allclose(model.kernel(2 * world.x, 2 * world.x), found, atol=1e-4)


def test_parts_are_the_same_in_every_replicate_and_noise_is_not(study):
    world = study.World(np.zeros((1000, 2)), np.zeros((3, 1000)), 0.25, 2.0)
    parts = world.parts()
    assert [len(rows) for rows in parts.values()] == [850, 50, 100]
    assert sorted(np.concatenate(list(parts.values()))) == list(range(1000))
    first, second = world.targets(0), world.targets(1)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.15
    assert first.var() == pytest.approx(0.25, rel=0.15)


def test_the_committed_table_is_that_of_its_figures(study):
    committed = SCRIPTS / "results" / "scenarios"
    held = json.loads((committed / "results.json").read_text())
    assert study.page(held) == (committed / "table.md").read_text()


def test_a_tiny_study_is_kept_and_makes_the_table(study, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "SCENARIOS", dict.fromkeys(("C1", "C2"), (150, 3)))
    out = ["--out", str(tmp_path / "out"), "--table", str(tmp_path / "made"), "--seeds", "2"]
    sizes = ["--r", "10", "--batch", "60", "--epochs", "1"]
    options = [*out, *sizes]
    assert study.main(options) == 0
    figures = json.loads((tmp_path / "made" / "results.json").read_text())
    assert {f["scenario"] for f in figures["replicates"]} == {"C1", "C2"}
    # The process that made the data is no worse than a model that must learn it.
    fitted = [f["rmse"] for f in figures["replicates"] if f["scenario"] == "C1"]
    exact = [f["rmse"] for f in figures["oracle"][0]["per_seed"]]
    assert len(fitted) == len(exact) == 2
    assert np.mean(exact) < 1.2 * np.mean(fitted)
    text = (tmp_path / "made" / "table.md").read_text()
    shown = f"{np.mean(fitted):.3f} ± {np.std(fitted, ddof=1):.3f} | 0.332"
    assert shown in text
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.json")}
    assert study.main(options) == 0
    assert stamps == {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.json")}
