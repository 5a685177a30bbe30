"""The mean of the weights, solved for at the end of a fit."""

import numpy as np
import pytest
import torch

from geogp.errors import RequestError
from geogp.models.fitting.loop import fit
from geogp.models.process.data import Data
from geogp.models.process.lowrank import LowRankProcess


def _ridge(model, data, *, spread_is_noise) -> np.ndarray:
    """Return the mean of the weights given the rows, with NumPy and in the target's unit."""
    sd, phi = float(model.y_sd), model.features(data.x) / float(model.y_sd)
    found = model.predict(data.x)
    shown = found.noise_variance + model.added_variance(data.x)
    if spread_is_noise:
        shown = found.noise_variance + found.function_variance
    residual = (data.y - float(model.y_mean)) / sd - float(model.mean_constant.detach())
    weighted = phi / (shown / sd**2)[:, None]
    return np.linalg.solve(np.eye(phi.shape[1]) + weighted.T @ phi, weighted.T @ residual)


@pytest.mark.parametrize(
    ("name", "noisy"), [("sv-dbk", False), ("sv-rbf", False), ("dbk-rbf", True)]
)
def test_it_is_that_given_the_rows(*, name, noisy, train, validation, with_settings, make_model):
    rough, solved = (make_model(name, dtype="float64") for _ in range(2))
    fit(rough, train, validation, with_settings())
    _, state = fit(solved, train, validation, with_settings(solve_mean=True))
    expected = _ridge(rough, train, spread_is_noise=noisy)
    np.testing.assert_allclose(solved.posterior.m.detach().numpy(), expected, rtol=1e-6, atol=1e-8)
    assert np.abs(rough.posterior.m.detach().numpy() - expected).max() > 1e-2
    assert state.best_nll < min(state.validation_nll)
    score = solved.predict(validation.x).log_score(validation.y).mean()
    assert score == pytest.approx(state.best_nll, abs=1e-12)


@pytest.mark.parametrize("name", ["dbk-rbf", "pp-dkl", "dbk-silu"])
def test_where_the_validation_rows_do_not_agree_nothing_changes(
    *, name, train, validation, with_settings, make_model, monkeypatch
):
    before, after = make_model(name), make_model(name)
    _, expected = fit(before, train, validation, with_settings())
    monkeypatch.setattr(
        LowRankProcess, "conditioned", lambda *_, **__: (torch.full((8,), 9.0), None)
    )
    _, found = fit(after, train, validation, with_settings(solve_mean=True))
    assert found.best_nll == expected.best_nll
    for one, other in zip(before.parameters(), after.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["field", "dbk-exact", "nystrom-mixed", "cox-nb"])
def test_other_posteriors_are_refused(name, train, validation, with_settings, make_model):
    counts = Data(train.x, np.abs(np.round(train.y)))
    with pytest.raises(RequestError, match="expected solve_mean=False"):
        fit(make_model(name), counts, validation, with_settings(solve_mean=True))


def test_a_solution_that_is_not_finite_leaves_the_fit(
    *, train, validation, with_settings, make_model, monkeypatch, caplog
):
    before, after = make_model(), make_model()
    _, expected = fit(before, train, validation, with_settings())
    monkeypatch.setattr(
        LowRankProcess, "conditioned", lambda *_, **__: (torch.full((8,), torch.nan), None)
    )
    _, found = fit(after, train, validation, with_settings(solve_mean=True))
    assert found.best_nll == expected.best_nll
    assert torch.equal(before.posterior.m, after.posterior.m)
    assert "is not replaced" in caplog.text
