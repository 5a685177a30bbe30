"""The Wheel bandit: its world, its models' bookkeeping, and a tiny run."""

import json

import numpy as np
import pytest
from benchmark_scripts import load, told

BENCH = "networks.wheel"


@pytest.fixture(scope="module")
def policies():
    return load("networks.wheel_policies")


@pytest.fixture(params=["uniform", "linear", "neural-linear", "rich-bll-s", "vbll", "dbk-silu"])
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
    found = load("networks.wheel_policies").every_action(x)
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


def test_phases_grow_and_end_at_the_horizon(bench):
    run = bench.Run(bench.Case("uniform", 0.5, 1, horizon=300, growth=0.5))
    ends = []
    while run.played.steps < 300:
        run.step()
        ends.append(run.played.steps)
    assert ends == [20, 40, 60, 90, 135, 202, 300]


def test_a_model_keeps_the_scale_of_the_largest_reward(bench, case):
    run = bench.Run(case)
    run.step()
    if hasattr(run.policy, "model"):
        assert (run.policy.model.y_mean.item(), run.policy.model.y_sd.item()) == (0, 50)


@pytest.mark.parametrize("delta", [0.5, 0.9])
def test_the_uniform_policy_has_the_regret_of_its_own(bench, delta):
    found = bench.Run(bench.Case("uniform", delta, 1, horizon=20_000, growth=0.5)).play()
    assert found["cumulative"] == pytest.approx(100, abs=3)
    assert found["simple"] == pytest.approx(100, abs=12)


def test_a_linear_policy_learns_linear_rewards(policies):
    rng = np.random.default_rng(0)
    contexts, actions = rng.uniform(-1, 1, (4000, 2)), rng.integers(0, 5, 4000)
    slopes = rng.standard_normal((5, 3))
    mean = np.einsum("nk,ak->na", np.column_stack([np.ones(4000), contexts]), slopes)
    y = mean[np.arange(4000), actions] + 0.1 * rng.standard_normal(4000)
    policy = policies.POLICIES["linear"](10, contexts)
    policy.learn(policies.Data(policies.inputs(contexts, actions), y), 0, 0)
    np.testing.assert_allclose(policy.guess(contexts), mean, atol=0.05)
    drawn = policy.draw(contexts, 1)
    assert 0.001 < (drawn - policy.guess(contexts)).std() < 0.05


def test_the_regression_has_the_moments_of_its_student_law(policies):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    y = X @ [1.0, -2.0] + 0.5 * rng.standard_normal(30)
    one = policies.Regression(X, y)
    # The marginal law of y is Student-t with scale b/a (I + X X' / precision), so b is known.
    S = np.eye(30) + X @ X.T / 0.25
    assert one.rate == pytest.approx(6 + 0.5 * y @ np.linalg.solve(S, y), rel=1e-9)
    place = np.array([[0.3, 2.0]])
    drawn = one.draw(np.repeat(place[None], 40_000, axis=0), rng)[:, 0]
    P = X.T @ X + 0.25 * np.eye(2)
    spread = one.rate / (one.shape - 1) * (place @ np.linalg.solve(P, place.T)).item()
    assert drawn.mean() == pytest.approx((place @ one.m).item(), abs=0.01)
    assert drawn.var() == pytest.approx(spread, rel=0.05)


def test_all_rows_in_the_subsample_give_rich_bll(policies, monkeypatch):
    rng = np.random.default_rng(0)
    contexts, actions = rng.uniform(-0.7, 0.7, (120, 2)), rng.integers(0, 5, 120)
    rows = policies.Data(policies.inputs(contexts, actions), rng.uniform(0, 50, 120))
    monkeypatch.setattr(policies, "SHARE", 1.0)
    made = {}
    for name in ("rich-bll", "rich-bll-s"):
        made[name] = policies.POLICIES[name](10, rows.x)
        made[name].learn(rows, 5, 3)
    x = policies.every_action(contexts[:20])
    one, other = (made[name].joint for name in made)
    np.testing.assert_allclose(one.mean(x), other.mean(x), rtol=1e-5)
    np.testing.assert_allclose(one.variance(x), other.variance(x), rtol=1e-5)
    monkeypatch.setattr(policies, "SHARE", 0.3)
    made["rich-bll-s"].condition(rows, 3)
    fewer = made["rich-bll-s"].joint.variance(x)
    assert 0.3 < np.median(fewer / one.variance(x)) < 3  # the sums count n/k times
    assert not np.allclose(fewer, one.variance(x), rtol=1e-3)


def test_rewards_are_drawn_from_the_predictive_distribution_of_each_action(policies):
    rng = np.random.default_rng(0)
    contexts, actions = rng.uniform(-0.7, 0.7, (120, 2)), rng.integers(0, 5, 120)
    rows = policies.Data(policies.inputs(contexts, actions), rng.uniform(0, 50, 120))
    policy = policies.POLICIES["bll"](10, rows.x, "rewards")
    policy.learn(rows, 5, 3)
    places = contexts[:2]
    drawn = np.array([policy.draw(places, seed) for seed in range(4000)]).reshape(4000, 10)
    x = policies.every_action(places)
    noise = policy.model.predict(x).noise_variance
    variance = policy.joint.variance(x) + noise
    np.testing.assert_allclose(
        drawn.mean(0), policy.joint.mean(x), atol=4 * variance.max() ** 0.5 / 60
    )
    np.testing.assert_allclose(drawn.var(0), variance, rtol=0.12)
    assert np.abs(np.corrcoef(drawn.T) - np.eye(10)).max() < 0.1


def test_runs_of_other_phases_stand_side_by_side_over_their_common_seeds(bench):
    def run(seed, growth, cumulative):
        case = bench.Case("bll", 0.5, seed, horizon=100, growth=growth)
        held = {"by_quarter": [1.0] * 4, "phases": 5, "cpu_seconds": 1.0, "simple": 1.0}
        return {**bench.asdict(case), "cumulative": cumulative, **held}

    text = bench.page([run(0, 0.0, 2.0), run(1, 0.0, 4.0), run(0, 0.1, 7.0), run(5, 0.1, 90.0)])
    assert "| 100 | 0.5 | `bll` | 1 | 2.00 | 7.00 |" in text
    assert "| 0.5 | `bll` | 2 | 3.00 ± 1.00 | 3.00 |" in text


def test_the_second_device_gives_the_figures_of_the_cpu(on_both):
    options = ["--horizon", "40", "--gradient-steps", "2", "--deltas", "0.5", "--models", "linear"]
    here, there = on_both(BENCH, *options, "neural-linear", "rich-bll-s", "vbll", "dbk-silu")
    assert there == here


def test_the_table_and_its_files(tmp_path):
    options = ["--horizon", "20", "--seeds", "2", "--gradient-steps", "2", "--deltas", "0.5"]
    options += ["--models", "rich-bll", "--json"]
    options += ["--out", str(tmp_path / "out"), "--table", str(tmp_path / "made")]
    printed = json.loads(told(BENCH, *options))
    assert printed == json.loads((tmp_path / "made" / "results.json").read_text())
    assert [row["seed"] for row in printed] == [0, 1]
    text = (tmp_path / "made" / "table.md").read_text()
    assert text.rstrip().endswith("0.48 ± 0.01 |")
