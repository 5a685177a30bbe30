"""Every content that once found something, some seconds of others, and the fuzzer itself."""

import os
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import load

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "fuzz_corpus"

SECONDS = 8
"""For each of two seeds; `benchmarks/fuzz/fuzz.py` takes hours."""


@pytest.fixture(scope="module")
def tools() -> SimpleNamespace:
    """Return the modules of the fuzzer."""
    parts = {name: load(f"fuzz.fuzz_{name}") for name in ("pages", "readers", "worker", "world")}
    return SimpleNamespace(fuzz=load("fuzz.fuzz"), **parts)


@pytest.fixture(scope="module")
def world(tools, tmp_path_factory) -> Any:
    return tools.world.make_world(tmp_path_factory.mktemp("world"))


def test_the_corpus_is_small():
    sizes = [path.stat().st_size for path in CORPUS.iterdir()]
    assert len(sizes) >= 10
    assert sum(sizes) < 200_000


def test_what_once_found_something_finds_nothing(tools, world):
    found = tools.fuzz.replay(world, CORPUS)
    assert len(found) == len(list(CORPUS.iterdir()))
    wrong = {path.name: answer for path, answer in found if answer.outcome in tools.fuzz.FINDINGS}
    assert wrong == {}


@pytest.mark.parametrize("seed", [1, 2])
def test_spoilt_files_end_as_data_or_as_our_errors(tools, world, seed):
    """The same contents in every run: new ones are for the benchmark."""
    fuzzer = tools.fuzz.Fuzzer(world, seed)
    try:
        tally = fuzzer.run(SECONDS)
    finally:
        fuzzer.close()
    told = [
        f"{reader}: {outcome}, {where}\n{finding.told}"
        for (reader, outcome, where), finding in tally.findings.items()
    ]
    assert not told, f"seed {seed}\n" + "\n".join(told)
    assert tally.cases > 20
    outcomes = sum(tally.counts.values(), Counter())
    assert outcomes["DataError"] > outcomes.total() / 4


def test_spoilt_pages_with_a_checksum_are_never_read(tools, world, tmp_path):
    """Each byte of their bodies that matters is seen; all columns but the outline are used."""
    whole = world.seeds("tiles")[0]
    spans = tools.pages.covered(whole)
    assert sum(end - first for first, end in spans) > len(whole) / 3
    read = tools.readers.read_tiles
    truth = read(world, whole, tmp_path / "whole")
    random = np.random.default_rng(0)
    refused = 0
    for number in range(60):
        first, end = spans[int(random.integers(len(spans)))]
        spoilt = bytearray(whole)
        spoilt[int(random.integers(first, end))] ^= 1 << int(random.integers(8))
        answer = tools.worker.read_one("tiles", bytes(spoilt), world)
        assert answer.outcome == "DataError" or answer.told == truth, number
        refused += answer.outcome == "DataError"
    assert refused > 30


def test_without_a_checksum_other_values_can_be_read(tools, world):
    """What cannot hold: a file of a writer that stores no checksums."""
    whole = world.seeds("tiles")[3]
    assert tools.pages.covered(whole) == []


@pytest.mark.parametrize(
    ("error", "outcome"), [(KeyError("a"), "fault"), (MemoryError(), "memory")]
)
def test_other_errors_are_findings(tools, world, monkeypatch, error, outcome):
    def read(*_: object) -> str:
        raise error

    monkeypatch.setitem(tools.worker.READERS, "tiles", tools.readers.Reader(read))
    answer = tools.worker.read_one("tiles", b"", world)
    assert answer.outcome == outcome
    assert type(error).__name__ in answer.where


@pytest.mark.parametrize(("sign", "outcome"), [(signal.SIGKILL, "crash"), (signal.SIGSTOP, "hang")])
def test_a_process_that_ends_or_hangs_is_counted_and_replaced(
    tools, world, monkeypatch, sign, outcome
):
    worker = tools.fuzz.Worker(world)
    content = world.seeds("packed")[0]
    try:
        assert worker.ask("packed", content).outcome == "data"
        os.kill(worker._process.pid, sign)
        monkeypatch.setattr(tools.fuzz, "SLOW_S", 1.0)
        assert worker.ask("packed", content).outcome == outcome
        monkeypatch.undo()
        assert worker.ask("packed", content).outcome == "data"
    finally:
        worker.close()


def test_data_that_a_hash_covers_must_be_the_same(tools, world, monkeypatch, tmp_path):
    """A reader that takes spoilt bytes for another model is found out."""
    fuzzer = tools.fuzz.Fuzzer(world, 0, ["cache-file"])
    try:
        whole = world.seeds("cache-file")[0]
        case = tools.fuzz.Case("cache-file", whole + b"x", "bytes", 0)
        assert fuzzer.judge(case) == "DataError"
        answer = tools.worker.Answer("data", "other", "", 0.0)
        monkeypatch.setattr(fuzzer._worker, "ask", lambda *_: answer)
        assert fuzzer.judge(case) == "wrong data"
        (finding,) = fuzzer.tally.findings.values()
        assert finding.case == case
        told = tools.fuzz.described(fuzzer.tally, 1.0, 0)
        assert told["cases"] == 2
        assert told["readers"][0]["outcomes"] == {"DataError": 1, "wrong data": 1}
        text = tools.fuzz.page(told)
        assert "| cache-file | bytes | 2 | 1 DataError, 1 wrong data | 0.0 |" in text
        assert "- cache-file: wrong data" in text
        (kept,) = tools.fuzz.keep(fuzzer.tally, tmp_path)
        assert kept.name.startswith("cache-file--wrong-data-")
        assert kept.read_bytes() == case.content
    finally:
        fuzzer.close()
