"""The faults that are put into the code: each can be put there, and is seen where it is seen."""

import ast

import pytest
from benchmark_scripts import ROOT, load


@pytest.fixture(scope="module")
def bench():
    return load("mutants.mutants")


def test_each_fault_replaces_code_that_stands_once_and_has_tests(bench):
    names = [(one.layer, one.name) for one in bench.MUTANTS]
    assert len(set(names)) == len(names) >= 60
    for mutant in bench.MUTANTS:
        broken = bench.mutated((ROOT / mutant.path).read_text("utf-8"), mutant)
        ast.parse(broken)
        assert mutant.code != mutant.fault
        for test in mutant.tests:
            file, _, name = test.partition("::")
            found = {
                getattr(node, "name", "") for node in ast.parse((ROOT / file).read_text()).body
            }
            assert not name or name in found, f"{mutant.name}: no {test}"


def test_code_that_moved_is_an_error(bench):
    with pytest.raises(ValueError, match=r"expected its code once in .*, found 0"):
        bench.mutated("nothing of it", bench.MUTANTS[0])


@pytest.mark.parametrize(
    ("right", "killed"), [("assert double(2) == 4", True), ("assert 1", False)]
)
def test_a_fault_is_seen_by_a_test_of_it_alone(bench, tmp_path, right, killed):
    (tmp_path / "doubling.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "test_it.py").write_text(
        f"from doubling import double\ndef test_it():\n    {right}\n"
    )
    fault = bench.Mutant("own", "halved", "doubling.py", "2 * x", "x / 2", ("test_it.py",))
    assert bench.run_tests(tmp_path, fault.tests) == 0
    assert bench.tried(tmp_path, fault).killed is killed
    assert "2 * x" in (tmp_path / "doubling.py").read_text()


def test_tests_that_cannot_run_are_no_kill(bench, tmp_path):
    with pytest.raises(RuntimeError, match="pytest did not run"):
        bench.run_tests(tmp_path, ("test_of_nothing.py",))


def test_the_table_counts_by_layer_and_names_the_survivors(bench):
    one, other = bench.MUTANTS[0], bench.MUTANTS[-1]
    trials = [bench.Trial(one, killed=True, seconds=1), bench.Trial(other, killed=False, seconds=1)]
    text = bench.page(trials, 9.6, 1)
    assert "2 faults were put into geogp, one at a time, and 1 of them" in text
    assert "; 10 minutes." in text
    assert f"| {one.layer} | 1 | 1 |  |" in text
    assert f"| {other.layer} | 1 | 0 | {other.name} |" in text
