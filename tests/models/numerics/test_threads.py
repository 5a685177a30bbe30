"""Work in threads: the same results as in order, the settings of the caller, and errors."""

import sys

import pytest
import torch

import geogp
from geogp.models.numerics.threads import (
    aside,
    chunks,
    in_threads,
    one_core_each,
    seeded,
    threads_of,
)

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)


def test_results_keep_their_order_and_parts_may_be_many():
    assert list(in_threads(lambda k: k * k, range(50), CPU)) == [k * k for k in range(50)]
    assert not list(in_threads(lambda k: k, (), CPU))


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("gradients", [False, True])
def test_threads_have_one_core_and_the_settings_of_the_caller(flushed, gradients):
    def seen(_):
        inner = [threads_of(CPU), *in_threads(lambda k: k, [7], CPU)]
        return torch.is_grad_enabled(), sys.float_info.min / 2 == 0, torch.get_num_threads(), inner

    before = sys.float_info.min / 2 == 0
    torch.set_flush_denormal(flushed)
    try:
        with torch.set_grad_enabled(gradients):
            found = list(in_threads(seen, range(6), CPU))
    finally:
        torch.set_flush_denormal(before)
    assert found == 6 * [(gradients, flushed, 1, [1, 7])]


def test_inside_the_block_operations_have_one_core_and_threads_all():
    with one_core_each():
        assert (torch.get_num_threads(), threads_of(CPU)) == (1, 3)
        with one_core_each():
            assert threads_of(CPU) == 3
        assert list(in_threads(lambda k: -k, range(3), CPU)) == [0, -1, -2]
        assert (torch.get_num_threads(), threads_of(CPU)) == (1, 3)
    assert threads_of(torch.device("meta")) == 1


def test_work_aside_is_waited_for():
    with aside(lambda: 7, CPU) as found:
        beside = 1
    assert found() + beside == 8
    torch.set_num_threads(1)
    with aside(lambda: 7, CPU) as found:
        assert found() == 7
    torch.set_num_threads(3)


def test_the_error_of_a_part_is_raised():
    def work(k):
        if k == 3:
            raise ValueError("part 3 failed")
        return k

    with pytest.raises(ValueError, match="part 3 failed"):
        list(in_threads(work, range(9), CPU))
    with aside(lambda: work(3), CPU) as found, pytest.raises(ValueError, match="part 3 failed"):
        found()


def test_slices_contain_each_number_once():
    assert [k for part in chunks(11, 4) for k in range(11)[part]] == list(range(11))
    assert not chunks(0, 4)


def test_threads_have_the_precision_of_the_caller():
    with geogp.precision("single"):
        found = [*in_threads(lambda n: torch.ones(n).double(), range(1, 9), CPU)]
        with aside(lambda: torch.ones(1).double(), CPU) as result:
            found.append(result())
    assert {one.dtype for one in found} == {torch.float32}
    (other,) = in_threads(lambda n: torch.ones(n).double(), [1], CPU)
    assert other.dtype == torch.float64


def test_seeded_numbers_do_not_touch_other_generators(monkeypatch):
    """Neither the caller's numbers nor those of GPUs change."""
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda _: pytest.fail("seeded all GPUs"))
    before = torch.get_rng_state()
    with seeded(3):
        first = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
    with seeded(3, CPU):
        assert torch.equal(torch.rand(4), first)
    assert torch.equal(first, torch.rand(4, generator=torch.Generator().manual_seed(3)))
