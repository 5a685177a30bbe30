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
def shapes():
    return load("kernel_shapes")


@pytest.fixture(scope="module")
def study():
    return load("scenarios")


def uniform(draws, n: int, inputs: int = 5, seed: int = 0) -> np.ndarray:
    return draws.uniform_design(n, inputs, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("name", "stratified", "inputs", "paper"),
    [
        ("C1", False, 20, 2.132745),
        ("C2", False, 80, 3.769967),
        ("C7", True, 20, 2.132325),
        ("C8", True, 80, 3.772796),
    ],
)
def test_mean_variances_are_those_of_table_2(*, name, stratified, inputs, paper, draws, study):
    scenario = study.SCENARIOS[name]
    assert (scenario.inputs, scenario.stratified) == (inputs, stratified)
    design = draws.stratified_design if stratified else draws.uniform_design
    x = design(10_000, inputs, np.random.default_rng(0))
    assert abs(x).max() <= 0.5
    found = float(draws.truth().diagonal(torch.from_numpy(x)).mean())
    # 10,000 inputs give the mean to 0.002; our stratified design is not the paper's.
    assert found == pytest.approx(paper, abs=0.01 if stratified else 0.004)


def test_strata_spread_norms_and_angles(draws):
    rng = np.random.default_rng(0)
    plain, spread = draws.uniform_design(2000, 80, rng), draws.stratified_design(2000, 80, rng)
    norms = [np.square(x).sum(1) for x in (plain, spread)]
    assert norms[1].mean() == pytest.approx(norms[0].mean(), rel=0.01)
    assert norms[1].std() > 4 * norms[0].std()
    cosines = [
        x @ x.T / np.sqrt(np.outer(s, s)) for x, s in zip((plain, spread), norms, strict=True)
    ]
    largest = [np.quantile(c[np.triu_indices(2000, 1)], 0.99) for c in cosines]
    assert largest[1] > 1.5 * largest[0]


def test_neighbours_are_the_nearest_of_those_before(draws):
    x = uniform(draws, 700, 3)
    found = draws.near_earlier(x, 5)
    for i in (1, 4, 5, 300, 511, 512, 513, 699):
        distance = np.square(x[:i] - x[i]).sum(1)
        expected = set(np.argsort(distance)[:5].tolist())
        assert set(found[i][found[i] != draws.NO_ROW].tolist()) == expected
    assert (found[0] == draws.NO_ROW).all()


@pytest.mark.parametrize("shared", [0, 40])
def test_the_covariance_becomes_exact_as_m_grows(draws, shared):
    x, kernel = uniform(draws, 150), draws.truth()
    exact = kernel(torch.from_numpy(x), torch.from_numpy(x)).numpy()
    errors = [
        abs(draws.Vecchia.of(kernel, x, m, shared).covariance() - exact).max()
        for m in (5, 50, 149 - shared)
    ]
    assert errors[0] > errors[1] > 10 * errors[2]
    assert errors[2] < 1e-6


def test_shared_points_leave_less_out(draws):
    x, kernel = uniform(draws, 300, 20), draws.truth()
    exact = np.log(draws.exact_sd(kernel, x))
    excess = [
        (np.log(draws.Vecchia.of(kernel, x, 20, shared).sd) - exact).mean()
        for shared in (0, 100, 300)
    ]
    assert excess[0] > 2 * excess[1] > 0
    assert excess[2] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("shared", [0, 10, 40])
def test_draws_have_the_covariance_that_the_conditionals_imply(draws, shared):
    process = draws.Vecchia.of(draws.truth(), uniform(draws, 40), 4, shared)
    f = process.draw(np.random.default_rng(1), 20_000)
    expected = process.covariance()
    # The standard error of a covariance is at most sqrt(2 / 20,000) times the variance.
    np.testing.assert_allclose(f.T @ f / len(f), expected, atol=0.05 * expected.max())


def test_exact_predictions_are_the_conditionals(draws):
    x, new = uniform(draws, 60), uniform(draws, 7, seed=1)
    kernel, y = draws.truth(), np.random.default_rng(2).standard_normal((3, 60))
    mean, variance = draws.exact_means(kernel, 0.1, x, y, new)
    both = torch.from_numpy(np.concatenate([x, new]))
    C = kernel(both, both).numpy() + 0.1 * np.eye(67)
    weights = np.linalg.solve(C[:60, :60], C[:60, 60:])
    np.testing.assert_allclose(mean, y @ weights, atol=1e-9)
    left = C[60:, 60:] - C[60:, :60] @ weights
    np.testing.assert_allclose(variance, left.diagonal(), atol=1e-9)


def test_sigma_b_is_estimated_where_the_likelihood_is_largest(draws):
    """Against the likelihood on a grid, for one data set with the draws that the formula uses."""
    n, seed = 30, 3
    found = draws.bias_estimates(n, 5, 4, seed)
    rng = np.random.default_rng(seed)
    kernel, x = draws.truth(), torch.from_numpy(draws.uniform_design(n, 5, rng))
    K = kernel(x, x).numpy() - 1
    C = K + draws.NUGGET * float(kernel.diagonal(x).mean()) * np.eye(n)
    b, z = rng.standard_normal(4), rng.standard_normal((n, 4))
    y = np.linalg.cholesky(C) @ z + b
    grid = np.linspace(0, 20, 2001)
    for column in range(4):
        values = []
        for sigma in grid:
            full = C + sigma
            _, log_determinant = np.linalg.slogdet(full)
            values.append(-log_determinant - y[:, column] @ np.linalg.solve(full, y[:, column]))
        assert grid[np.argmax(values)] == pytest.approx(found[column], abs=0.011)


def test_more_rows_do_not_teach_sigma_b(draws):
    few, many = (draws.bias_estimates(n, 20, 2000, 0) for n in (100, 1000))
    assert many.std() > 0.8 * few.std()
    assert (many == 0).mean() > 0.3


def test_the_error_of_a_kernel(draws):
    x, kernel = uniform(draws, 50), draws.truth()
    assert draws.kernel_errors(kernel, 1.0, x) == pytest.approx((0, 0), abs=1e-12)
    assert draws.kernel_errors(kernel, 1.5, x) == pytest.approx((0.5, 0.5))
    with torch.no_grad():
        kernel.log_output_bias += 1
    plain, centred = draws.kernel_errors(kernel, 1.0, x)
    assert plain > 0.5
    assert centred == pytest.approx(0, abs=1e-9)


def test_where_fifty_steps_of_adam_end():
    """The paper's estimates at I = 80, tables 3 and 6, are these ends."""
    table = load("scenarios_table")
    assert table.softplus_ends() == "0.9687 or 1.0319"
    assert table.logit_ends() == "0.4875 or 0.5125"


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
    other = study.make_model(study.Case("C1", r=9, start="smooth"), train, world)
    assert study.kernel_of(other).logit_w.sigmoid().item() == pytest.approx(0.95)


def test_parts_are_the_same_in_every_replicate_and_noise_is_not(study):
    world = study.World(np.zeros((1000, 2)), np.zeros((3, 1000)), 0.25, 2.0)
    parts = world.parts()
    assert [len(rows) for rows in parts.values()] == [850, 50, 100]
    assert sorted(np.concatenate(list(parts.values()))) == list(range(1000))
    first, second = world.targets(0), world.targets(1)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.15
    assert first.var() == pytest.approx(0.25, rel=0.15)


def test_shapes_are_as_alike_as_in_table_1(shapes, study):
    """The paper's figures, from formulas of its own written out again."""
    paper = load("scenarios_table").PAPER_SHAPES
    found = shapes.shape_figures()
    assert [round(line["whole"], 4) for line in found["lines"]] == list(paper)
    rho = np.linspace(-1, 1, found["points"])
    ramp = (np.sqrt(1 - rho**2) + rho * (np.pi - np.arccos(rho))) / (2 * np.pi)
    tanh = np.arcsin(np.pi * rho / (2 + np.pi))
    sigmoid = np.arcsin(np.pi * rho / (8 + np.pi))
    leaky = [a * rho + (1 - a) ** 2 * ramp for a in (0.1, 0.3)]
    pairs = [(tanh, sigmoid), (ramp, leaky[0]), (ramp, leaky[1])]
    expected = [np.corrcoef(*pair)[0, 1] for pair in pairs]
    assert [line["whole"] for line in found["lines"]] == pytest.approx(expected, abs=1e-9)
    finer = shapes.shape_figures(2 * found["points"])["lines"]
    for line, other in zip(found["lines"], finer, strict=True):
        assert line["whole"] == pytest.approx(other["whole"], abs=1e-6)
        assert (line["half"] > line["whole"]) == line["pair"].startswith("ReLU")
    coarse = shapes.shape_figures(21)["lines"]
    assert [round(line["whole"], 4) for line in coarse[1:]] == [0.9981, 0.9909]


def test_curves_are_expectations(shapes):
    """At rho = 0 and 1 they are E[ψ]² and E[ψ²] of one standard normal variable."""
    z, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    leaky = np.maximum(z, 0.3 * z)
    found = shapes.curve(shapes.LeakyReluKernel(alpha=0.3), np.array([0.0, 1.0]))
    assert found == pytest.approx([(weights @ leaky) ** 2, weights @ leaky**2], abs=1e-3)


def test_the_shapes_are_added_to_the_table_that_is_there(study, tmp_path):
    committed = SCRIPTS / "results" / "scenarios"
    held = json.loads((committed / "results.json").read_text())
    options = ["shapes", "--out", str(tmp_path / "out"), "--table", str(tmp_path / "made")]
    assert study.main(options) == 2
    (tmp_path / "made").mkdir()
    without = {name: found for name, found in held.items() if name != "shapes"}
    (tmp_path / "made" / "results.json").write_text(json.dumps(without))
    assert study.main(options) == 0
    made = json.loads((tmp_path / "made" / "results.json").read_text())
    lines = [line.pop("lines") for line in (made["shapes"][0], held["shapes"][0])]
    for one, other in zip(*lines, strict=True):
        assert one == pytest.approx(other)
    assert made == held
    text = (tmp_path / "made" / "table.md").read_text()
    assert text == (committed / "table.md").read_text()


def test_a_tiny_study_is_kept_and_makes_the_table(study, tmp_path, monkeypatch):
    tiny = {name: study.Scenario(150, 3, name == "C7") for name in ("C1", "C2", "C7")}
    monkeypatch.setattr(study, "SCENARIOS", tiny)
    monkeypatch.setattr(study, "draw_figures", study_draws)
    out = ["--out", str(tmp_path / "out"), "--table", str(tmp_path / "made"), "--seeds", "2"]
    sizes = ["--r", "10", "--batch", "60", "--epochs", "1", "--adam-epochs", "2"]
    options = [*out, *sizes, "--scenarios", "C1", "C2", "C7"]
    assert study.main(options) == 0
    figures = json.loads((tmp_path / "made" / "results.json").read_text())
    assert {f["scenario"] for f in figures["replicates"]} == set(tiny)
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


def study_draws(inputs: int) -> dict:
    line = {"shared": 0, "nearest": 5, "excess": 0.1, "seconds": 1.0}
    return {"inputs": inputs, "n": 9, "last": 3, "lines": [line], "linear_share": 0.5}
