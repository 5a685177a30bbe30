"""Matérn correlations from tables, against Bessel functions, closed forms and differences."""

import math

import numpy as np
import pytest
import torch
from scipy.special import gamma, kv

import geogp
from geogp.models.process.matern import LEAST_SMOOTHNESS, LOW, MOST_SMOOTHNESS, matern


def _number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("smoothness", [LEAST_SMOOTHNESS, 0.37, 1.0, 1.9, MOST_SMOOTHNESS])
def test_values_are_those_of_bessel_functions(smoothness):
    r = np.exp(np.random.default_rng(0).uniform(-12, 5, 3_000))
    x = math.sqrt(2 * smoothness) * r
    expected = 2 ** (1 - smoothness) / gamma(smoothness) * x**smoothness * kv(smoothness, x)
    found = matern(torch.from_numpy(np.log(r)), _number(smoothness)).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_closed_forms_of_half_integers():
    r = np.linspace(1e-6, 20, 500)
    polynomials = {0.5: np.ones(500), 1.5: 1 + np.sqrt(3) * r}
    polynomials[2.5] = 1 + np.sqrt(5) * r + 5 / 3 * r**2
    for smoothness, polynomial in polynomials.items():
        found = matern(torch.from_numpy(np.log(r)), _number(smoothness)).numpy()
        expected = polynomial * np.exp(-math.sqrt(2 * smoothness) * r)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_places_that_are_far_apart_have_no_correlation(precision):
    with geogp.precision(precision):
        log_r = torch.tensor([300.0, 1e9, 1e-20], dtype=torch.float64).log()
        found = matern(log_r, _number(1.5))
    np.testing.assert_allclose(found, [0, 0, 1], atol=1e-6)


def test_gradients_of_both_inputs():
    log_r = torch.linspace(-5, 2, 9, dtype=torch.float64, requires_grad=True)
    smoothness = _number(0.8).requires_grad_()
    assert torch.autograd.gradcheck(matern, (log_r, smoothness), atol=1e-6)


@pytest.mark.parametrize("smoothness", [LEAST_SMOOTHNESS, MOST_SMOOTHNESS])
def test_distances_near_0_and_far_away(smoothness):
    found = matern(torch.tensor([-math.inf, LOW - 9, 9.0, math.inf]).double(), _number(smoothness))
    np.testing.assert_allclose(found, [1, 1, 0, 0], rtol=0, atol=1e-30)


@pytest.mark.parametrize("smoothness", [LEAST_SMOOTHNESS, 1.2, MOST_SMOOTHNESS])
def test_a_matrix_of_correlations_is_positive_definite(smoothness):
    places = np.random.default_rng(1).uniform(0, 3, (150, 2))
    h = np.linalg.norm(places[:, None] - places, axis=2) + 1e-12
    k = matern(torch.from_numpy(np.log(h)), _number(smoothness))
    assert torch.linalg.eigvalsh(k).min() > -1e-9
