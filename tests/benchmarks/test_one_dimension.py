"""The benchmark in one dimension: its world, its oracle, and one tiny study."""

import json
import math

import numpy as np
import pytest
from benchmark_scripts import load

TINY = ["target", "--n", "300", "--r", "4", "--h", "8", "--steps", "40"]


@pytest.fixture(scope="module")
def bench():
    return load("one_dimension")


@pytest.fixture(scope="module")
def world():
    return load("one_dimension_world")


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
    cases = bench.cases(bench.parse(["scaling", "--models", "dbk-silu", "dbk-mml"]))
    for case in cases:
        per_epoch = 1 if case.whole else math.ceil(case.n / case.batch)
        steps = case.settings().epochs * per_epoch
        if case.whole and case.n > bench.EXACT_LIMIT:
            assert case.steps == 0
        else:
            assert 0 < case.steps <= steps < case.steps + per_epoch


def test_a_result_is_written_once_and_then_read(bench, tmp_path, capsys, monkeypatch):
    out = ["--out", str(tmp_path), "--json"]
    assert bench.main([*TINY, *out]) == 0
    first = json.loads(capsys.readouterr().out)
    assert len(list(tmp_path.glob("dbk-silu-n300-r4-*.json"))) == 1
    assert not list(tmp_path.glob("*.safetensors"))
    assert first[0]["nll"] > first[0]["oracle_nll"]
    assert first[0]["gap"] == pytest.approx(first[0]["nll"] - first[0]["oracle_nll"])
    assert 0 < first[0]["coverage_90"] <= 1

    def refuse(*_args, **_options):
        pytest.fail("the model is fitted again")

    monkeypatch.setattr(load("one_dimension_fits"), "fit", refuse)
    assert bench.main([*TINY, *out]) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_the_table_is_written_from_the_results(bench, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out"), "--results", str(tmp_path / "results"), "--json"]
    bench.main([*TINY, *out, "--n", "20000", "--r", "128"])
    (found,) = json.loads(capsys.readouterr().out)
    assert bench.main(["table", *out]) == 0
    text = (tmp_path / "results" / "table.md").read_text()
    assert f"| {found['nll']:.4f} | {found['gap']:.4f} |" in text


def test_the_commands_in_the_table_make_the_same_cases_again(bench):
    first = bench.cases(bench.parse(["models", "--steps", "50", "--n", "1000"]))
    second = bench.cases(bench.parse(["scaling", "--models", "dbk-silu", "exact-dkl"]))
    held = [*first, *second, *bench.cases(bench.parse(["rank", "--seed", "3"]))]
    fitted = {case for case in held if case.steps}
    again = [
        bench.cases(bench.parse(line.split())) for line in bench.commands(sorted(fitted, key=str))
    ]
    assert {case for made in again for case in made} == fitted
    assert sum(map(len, again)) == len(fitted)


def test_a_table_of_nothing_is_refused(bench, tmp_path, capsys):
    assert bench.main(["table", "--out", str(tmp_path)]) == 2
    assert "found none" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--n", "1"], ["--n", "100001"], ["--models", "dbk"]])
def test_an_argument_out_of_range_is_refused(bench, wrong, capsys):
    with pytest.raises(SystemExit):
        bench.parse(["scaling", *wrong])
    said = capsys.readouterr().err
    assert "expected" in said or "invalid choice" in said
