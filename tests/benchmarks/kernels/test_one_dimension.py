"""The benchmark in one dimension: its world, its oracle, and one tiny study."""

import json
import math

import numpy as np
import pytest
from benchmark_scripts import SCRIPTS, load, told

BENCH = "kernels.one_dimension"


@pytest.fixture(scope="module")
def world():
    return load("kernels.one_dimension_fits")


def test_the_mean_has_four_levels_and_is_halfway_on_a_step(world):
    # Far from the steps the logistic functions are 0 or 1; at a step one of them is 1/2.
    x = np.array([-0.9, -0.3, 0.2, 0.9, -0.6, 0.0, 0.4])
    expected = [0.3, 0.9, -0.6, 0.0, 0.15 + 0.45, 0.45 - 0.3, -0.3]
    np.testing.assert_allclose(world.true_mean(x), expected, atol=1e-12)


def test_the_noise_is_a_sine_that_vanishes_at_its_zeros(world):
    x = np.array([0.0, math.pi / 20, -math.pi / 20, math.pi / 10])
    np.testing.assert_allclose(world.true_sd(x), [0, 0.4, 0.4, 0], atol=1e-12)


def test_the_oracle_is_as_sharp_as_the_paper_says(world):
    # 1.368 + ln(s / 2) for a standard deviation of |s sin 10x|
    found = world.oracle_nll(world.draw(400_000, 7))
    assert found == pytest.approx(1.368 + math.log(0.2), abs=0.008)


def test_steps_are_the_same_for_every_n(bench):
    for case in bench.cases():
        per_epoch = 1 if case.whole else math.ceil(case.n / case.batch)
        steps = case.settings().epochs * per_epoch
        assert case.steps == 0 or case.steps <= steps < case.steps + per_epoch


def test_the_committed_results_are_those_of_the_study(bench):
    held = json.loads((SCRIPTS / "results" / "one-dimension" / "results.json").read_text())
    names = [case.name for case in bench.cases()]
    assert len(names) == len(set(names))
    stored = {bench.Case(**one["case"]).name for one in held}
    assert {case.name for case in bench.cases() if case.seed == 0} <= stored <= set(names)


@pytest.fixture
def tiny(bench, monkeypatch):
    sizes = {"steps": 4, "h": 8}
    monkeypatch.setattr(
        bench,
        "STUDY",
        (
            ("dbk-silu dbk-exact", (300,), (128,), sizes),
            ("dbk-silu", (20_000,), (4,), sizes | {"seed": 2}),
        ),
    )


@pytest.mark.usefixtures("tiny")
def test_a_result_is_written_once_and_then_read(tmp_path, monkeypatch):
    options = ["--out", str(tmp_path), "--table", str(tmp_path / "made")]
    told(BENCH, *options)
    found = json.loads((tmp_path / "made" / "results.json").read_text())
    assert len(list(tmp_path.glob("*-n*-r*.json"))) == len(found) == 3
    for one in found:
        assert one["gap"] == pytest.approx(one["nll"] - one["oracle_nll"])
        assert 0 < one["coverage_90"] <= 1
    text = (tmp_path / "made" / "table.md").read_text()
    assert f"| {found[0]['nll']:.4f} | {found[0]['gap']:.4f} |" in text

    # The third case has another seed: it is in the tables because its file exists.
    told(BENCH, *options, "--seeds", "0")
    assert json.loads((tmp_path / "made" / "results.json").read_text()) == found

    def refuse(*_args, **_options):
        pytest.fail("the model is fitted again")

    monkeypatch.setattr(load("kernels.one_dimension_fits"), "fit", refuse)
    told(BENCH, *options)
    assert json.loads((tmp_path / "made" / "results.json").read_text()) == found


@pytest.mark.usefixtures("tiny")
def test_the_second_device_gives_the_figures_of_the_cpu(on_both):
    for one, other in zip(*on_both(BENCH), strict=True):
        rank = one.pop("effective_rank")  # from chunks of another size
        assert other.pop("effective_rank") == pytest.approx(rank, rel=1e-9)
        assert other == one
