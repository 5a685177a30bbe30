"""The Wheel bandit: its world, its models' bookkeeping, and a tiny run."""

import json

import numpy as np
import pytest
from benchmark_scripts import load


@pytest.fixture(scope="module")
def bench():
    return load("wheel")


@pytest.fixture(params=["rich-bll", "vbll", "dbk-silu"])
def case(bench, request):
    return bench.Case(request.param, 0.5, 1, horizon=80, gradient_steps=4, width=10)


def test_contexts_fill_the_disk(bench):
    x = bench.draw_contexts(np.random.default_rng(0), 40_000)
    radius = np.linalg.norm(x, axis=1)
    assert radius.max() <= 1
    for r in (0.3, 0.5, 0.95):
        assert np.mean(radius <= r) == pytest.approx(r**2, abs=0.01)
    np.testing.assert_allclose(x.mean(0), 0, atol=0.01)


def test_the_jackpot_is_outside_and_in_the_quadrant_of_its_action(bench):
    x = np.array([[0.1, 0.2], [0.8, 0.5], [0.8, -0.5], [-0.8, 0.5], [-0.8, -0.5]])
    found = bench.mean_rewards(x, 0.9)
    np.testing.assert_array_equal(found[0], [1.2, 1, 1, 1, 1])
    expected = np.full((4, 5), 1.0)
    expected[:, 0] = 1.2
    expected[np.arange(4), [1, 2, 3, 4]] = 50
    np.testing.assert_array_equal(found[1:], expected)
    assert bench.mean_rewards(x, 0.99).max() == 1.2


def test_inputs_name_the_action(bench):
    x = np.array([[0.1, 0.2], [0.3, 0.4]])
    found = bench.every_action(x)
    np.testing.assert_array_equal(found[7], [0.3, 0.4, 0, 0, 1, 0, 0])
    assert found.shape == (10, 7)


def test_regret_is_that_of_the_actions_taken(bench, case):
    run = bench.Run(case)
    found = run.play()
    played = run.played
    means = bench.mean_rewards(played.contexts, 0.5)[15:]
    got = means[np.arange(80), played.actions[15:]]
    np.testing.assert_allclose(played.regret, means.max(1) - got)
    np.testing.assert_allclose(played.uniform, means.max(1) - means.mean(1))
    np.testing.assert_allclose(played.rewards[15:], got, atol=0.06)
    assert found["cumulative"] == pytest.approx(100 * played.regret.sum() / played.uniform.sum())
    assert found["by_quarter"][-1] == found["cumulative"]
    assert np.bincount(played.actions[:15]).tolist() == [3, 3, 3, 3, 3]


def test_another_target_leaves_the_function_as_it_is(bench, case):
    run = bench.Run(case)
    run.step()
    x = bench.every_action(bench.draw_contexts(np.random.default_rng(5), 20))
    before = run.model.predict(x)
    y = np.concatenate([run.played.rewards, [50.0, 50.0]])
    bench.rebase(run.model, y)
    run.model.y_mean.fill_(y.mean())
    run.model.y_sd.fill_(y.std())
    after = run.model.predict(x)
    np.testing.assert_allclose(after.mean, before.mean, rtol=1e-4, atol=1e-4)
    if case.model != "rich-bll":  # whose closed form the next fit works out anew
        np.testing.assert_allclose(after.function_variance, before.function_variance, rtol=1e-3)
        floor = 1.1e-6 * y.var()  # of the noise, for a standardised target
        np.testing.assert_allclose(after.noise_variance, before.noise_variance, atol=floor)


def test_the_table_and_its_files(bench, tmp_path, monkeypatch, capsys):
    options = ["--horizon", "20", "--seeds", "2", "--gradient-steps", "2", "--deltas", "0.5"]
    options += ["--models", "rich-bll", "--json"]
    options += ["--out", str(tmp_path / "out"), "--table", str(tmp_path / "made")]
    assert bench.main(options) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "made" / "results.json").read_text())
    assert [row["seed"] for row in printed] == [0, 1]
    text = (tmp_path / "made" / "table.md").read_text()
    assert "Run here: 20 steps, 2 seeds, 2 gradient" in text
    assert text.rstrip().endswith("0.48 ± 0.01 |")
