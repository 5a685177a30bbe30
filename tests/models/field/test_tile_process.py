"""The covariance of tiles in all its forms, against formulas written with NumPy and SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import expm
from scipy.special import gamma, kv

from geogp.errors import DataError
from geogp.models.catalogue.build import build
from geogp.models.catalogue.storage import load_model, save_model
from geogp.models.field.tile_process import Form, TileProcess
from geogp.models.numerics.tensor_files import read_tensors, write_tensors
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.matern import matern

STRETCH, POWERS = (0.3, -0.5), (0.7, 0.4)


def _matern(r: np.ndarray, nu: float) -> np.ndarray:
    """The correlation by Bessel functions, for r in ranges (Rasmussen and Williams, 4.14)."""
    r = np.maximum(r, 1e-10) * math.sqrt(2 * nu)
    return 2 ** (1 - nu) / gamma(nu) * r**nu * kv(nu, r)


def _form(smoothness: float, *, gneiting: bool = True, stretched: bool = True) -> Form:
    stretch = torch.tensor(STRETCH if stretched else (0.0, 0.0), dtype=torch.float64)
    powers = torch.tensor(POWERS if gneiting else (0.0, 0.0), dtype=torch.float64)
    return Form(stretch, powers, torch.tensor(smoothness, dtype=torch.float64))


def _points(n: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    points = random.uniform(0, 6, (n, 3))
    points[n // 2 :, :2] = points[: n - n // 2, :2]  # the same tiles at other times
    return points


def _expected(points: np.ndarray, process: TileProcess, form: Form) -> np.ndarray:
    s, ranges, memories = (
        value.detach().double().exp().numpy()
        for value in (process.log_sills, process.log_ranges, process.log_memories)
    )
    a, b = form.stretch.numpy()
    p, q = form.powers.numpy()
    mapped = points[:, :2] @ expm(np.array([[a, b], [b, -a]]))
    h = np.linalg.norm(mapped[:, None] - mapped, axis=2)
    t = np.abs(points[:, None, 2] - points[:, 2])
    nu = float(form.smoothness)
    if p:
        psi = 1 + (t / memories[0]) ** (2 * p)
        second = _matern(h / ranges[1] / psi ** (q / 2), nu) / psi
    else:
        second = _matern(h / ranges[1], nu) * np.exp(-t / memories[0])
    own = (h < 1e-9) * (s[2] + s[3] * np.exp(-t / memories[1]))
    return s[0] * _matern(h / ranges[0], nu) + s[1] * second + own


@pytest.mark.parametrize("smoothness", [0.5, 1.2, 2.5])
@pytest.mark.parametrize("gneiting", [False, True])
@pytest.mark.parametrize("stretched", [False, True])
def test_each_form_against_its_formula(smoothness, gneiting, stretched):
    process, points = TileProcess(3, torch.float64), _points(40)
    form = _form(smoothness, gneiting=gneiting, stretched=stretched)
    process.take_form(form)
    at = torch.from_numpy(points)
    with torch.no_grad():
        found = process(at, at).numpy()
    np.testing.assert_allclose(found, _expected(points, process, form), atol=1e-6)
    assert np.linalg.eigvalsh(found).min() > 0


@pytest.mark.parametrize("smoothness", [0.5, 1.2])
def test_providers_share_one_part_and_have_another(smoothness):
    shared, own = TileProcess(3, torch.float64), TileProcess(3, torch.float64)
    process = TileProcess(3, torch.float64, by_provider=True)
    for one in (shared, process):
        one.take_form(_form(smoothness, gneiting=smoothness != 0.5, stretched=False))
    start = torch.tensor([0.2, 0.3, 0.1, 0.05, 5.0, 2.0, 3.0, 1.0], dtype=torch.float64).log()
    with torch.no_grad():
        process.log_own.copy_(start)
        for name, part in zip(("sills", "ranges", "memories"), start.split([4, 2, 2]), strict=True):
            getattr(own, f"log_{name}").copy_(part)
        points = torch.from_numpy(_points(40))
        provider = torch.arange(40, dtype=torch.float64) % 3
        found = process(*(torch.cat([points, provider[:, None]], 1),) * 2)
        same = provider[:, None] == provider
        expected = shared(points, points) + same * own(points, points)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert float(process.variance()) == pytest.approx(float(found[0, 0]))
    assert np.linalg.eigvalsh(found).min() > 0


@pytest.mark.parametrize("n", [1, 16, 17, 50, 90])
@pytest.mark.parametrize("smoothness", [0.5, 1.3])
def test_the_lower_triangle_is_that_of_the_whole(n, smoothness):
    process = TileProcess(3, torch.float64)
    other = smoothness != 0.5
    process.take_form(_form(smoothness, gneiting=other, stretched=other))
    points = torch.from_numpy(np.stack([_points(n, seed) for seed in range(3)]))
    with torch.no_grad():
        found, whole = process.lower(points), process(points, points)
    torch.testing.assert_close(found.tril(), whole.tril(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("distinct", [1, 12, 40, 60])
def test_covariances_of_points_that_blocks_share_are_the_same(distinct, monkeypatch):
    process = TileProcess(3, torch.float64)
    points = torch.from_numpy(_points(60))
    at = torch.from_numpy(np.random.default_rng(0).integers(60 - distinct, 60, (9, 24)))
    sizes, lower = [], process.lower

    def counted(given: torch.Tensor) -> torch.Tensor:
        sizes.append(given.shape[:2].numel())
        return lower(given)

    monkeypatch.setattr(process, "lower", counted)
    with torch.no_grad():
        found, expected = process.lower_at(points, at), process(points[at], points[at])
    assert sizes == [len(at.unique()) if distinct < 60 else at.numel()]
    torch.testing.assert_close(found.tril(), expected.tril(), rtol=1e-12, atol=1e-14)


def test_the_usual_form_is_a_case_of_the_others():
    """Two routes: the fast one, and the general one with a stretch of nearly nothing."""
    process, at = TileProcess(3, torch.float64), torch.from_numpy(_points(30))
    with torch.no_grad():
        usual = process(at, at)
        process.take_form(Form(stretch=torch.full((2,), 1e-9, dtype=torch.float64)))
        general = process(at, at)
    torch.testing.assert_close(general, usual, rtol=1e-7, atol=1e-9)


def test_gradients_of_all_numbers_of_a_form():
    at = torch.from_numpy(_points(8))
    values = STRETCH, POWERS, 1.3
    sizes = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]

    def covariance(*parts: torch.Tensor) -> torch.Tensor:
        process = TileProcess(3, torch.float64)
        process.take_form(Form(*parts))
        return process(at, at)

    assert torch.autograd.gradcheck(covariance, sizes, atol=1e-6)


@pytest.mark.parametrize("n", [8, 140])
def test_the_separable_form_against_autograd_of_its_formula(n):
    """Two routes to the gradients of all numbers, in one part and in several."""
    points = torch.from_numpy(_points(n))
    weights = torch.from_numpy(np.random.default_rng(1).normal(size=(n, n)))
    process = TileProcess(3, torch.float64)
    numbers = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (STRETCH, 1.3)]
    stretch, nu = numbers
    process.take_form(Form(stretch=stretch, smoothness=nu))
    free = [process.log_sills, process.log_ranges, process.log_memories, *numbers]
    found = process(points, points)
    s, ranges, memories = (value.exp() for value in free[:3])
    a, b = stretch
    mapping = torch.linalg.matrix_exp(torch.stack([torch.stack([a, b]), torch.stack([b, -a])]))
    away = points[:, None] - points
    h2 = (away[..., :2] @ mapping).square().sum(-1)
    log_h, t = (h2 + 1e-30).log() / 2, away[..., 2].abs()
    near, fast = (matern(log_h - value.log(), nu) for value in ranges)
    own = (h2 < 1e-12) * (s[2] + s[3] * (-t / memories[1]).exp())
    expected = s[0] * near + s[1] * fast * (-t / memories[0]).exp() + own
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    gradients = [torch.autograd.grad((k * weights).sum(), free) for k in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("smoothness", [0.5, 1.3])
def test_the_lower_triangle_has_the_gradient_of_the_whole(smoothness):
    process = TileProcess(3, torch.float64)
    stretched = smoothness != 0.5
    process.take_form(_form(smoothness, gneiting=False, stretched=stretched))
    points = torch.from_numpy(np.stack([_points(20, seed) for seed in range(3)]))
    whole, triangle = process(points, points), process.within(points)
    torch.testing.assert_close(triangle.tril(), whole.tril(), rtol=1e-12, atol=1e-14)
    weights = torch.from_numpy(np.random.default_rng(1).normal(size=whole.shape))
    gradients = [
        torch.autograd.grad(k, process.log_ranges, weights, retain_graph=True)[0]
        for k in (whole, triangle)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_a_form_is_saved_and_older_files_have_the_usual_one(tmp_path):
    x = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    sizes = Architecture(d=2, h=8, r=4, blocks=1, dtype="float64", units=(30.0, 30.0))
    model = build("field", sizes, x, seed=0)
    model.tiles.take_form(_form(2.5))
    unfitted = model.make_fit(model)
    unfitted.start(model.as_rows(Data(x, x.sum(1))), 0, resumed=True)
    path = tmp_path / "m.safetensors"
    save_model(unfitted.field, path)
    same, _ = load_model(path)
    at = torch.from_numpy(_points(10))
    with torch.no_grad():
        torch.testing.assert_close(
            same.parameters.tiles(at, at), model.tiles(at, at), rtol=0, atol=0
        )
    tensors, described = read_tensors(path)
    added = {f"tiles.{part}" for part in ("stretch", "powers", "smoothness")}
    write_tensors(path, {k: v for k, v in tensors.items() if k not in added}, described)
    older, _ = load_model(path)
    assert older.parameters.tiles.form.usual
    # Earlier versions stored 0, 1 or 2 for the smoothness 1/2, 3/2 or 5/2.
    write_tensors(path, {**tensors, "tiles.smoothness": torch.tensor(2)}, described)
    assert float(load_model(path)[0].parameters.tiles.form.smoothness) == 2.5
    for wrong in (
        {"tiles.smoothness": torch.tensor(3.1)},
        {"tiles.powers": torch.tensor([0.5, 2])},
    ):
        changed = {name: wrong.get(name, value).to(value.dtype) for name, value in tensors.items()}
        write_tensors(path, changed, described)
        with pytest.raises(
            DataError, match=r"a stretch from -50 to 50, a smoothness from 0\.1 to 3, and powers"
        ):
            load_model(path)


@pytest.mark.parametrize("power", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("scale", [1e-7, 1.0, 1e6])
def test_the_variance_is_that_of_one_place_and_time(power, scale):
    """Whatever the unit of time, and however steep the correlation is at 0."""
    process = TileProcess(3, torch.float64)
    process.take_form(Form(powers=torch.tensor([power, 0.5], dtype=torch.float64)))
    with torch.no_grad():
        process.log_memories.fill_(math.log(3 * scale))
        at = torch.from_numpy(_points(40) * [1, 1, scale])
        k = process(at, at)
    torch.testing.assert_close(k.diagonal(), process.variance().expand(40))
    assert torch.linalg.eigvalsh(k).min() > 0


def test_the_form_moves_with_the_tensors():
    process = TileProcess(3, torch.float64)
    process.take_form(_form(1.5))
    form = process.to("meta").form
    parts = form.stretch, form.powers, form.smoothness
    assert {part.device.type for part in parts} == {"meta"}
