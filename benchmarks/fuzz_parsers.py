"""The parsers that are Python alone, fuzzed by what their branches do (atheris, libFuzzer).

Each must end as a value or as an error that it documents. Atheris is no dependency; from the folder
of the project:

    pip install atheris && python benchmarks/fuzz_parsers.py --seconds 60
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from geogp import files
from geogp.errors import GeogpError
from geogp.files import plain_names, read_json
from geogp.geodata.store import cache
from geogp.geodata.store.cache import read_note
from geogp.geodata.store.sources import relative_name
from geogp.geodata.tiles import quadkeys, quarters
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.maps.page import packing
from geogp.maps.page.packing import unpack
from geogp.records import checked_types, record_reading
from geogp.records.record_reading import complete_record, record_of
from geogp.records.run_record import FittedRecord, OpenedRecord

Parser = Callable[[bytes], object]

_PLACE = Path(tempfile.gettempdir()) / f"geogp-fuzz-{os.getpid()}"


def _held(content: bytes) -> Any:
    _PLACE.write_bytes(content)
    return read_json(_PLACE)


def parse_run(content: bytes) -> None:
    """Check the form of run.json."""
    run = _held(content)
    if isinstance(run, dict):
        for kind in (OpenedRecord, FittedRecord):
            with suppress(GeogpError):
                complete_record(_PLACE, record_of(run), kind)


def parse_note(content: bytes) -> None:
    """Read a note of the cache."""
    _PLACE.write_bytes(content)
    read_note(_PLACE)


def parse_text(content: bytes) -> None:
    """Read quadkeys, quarters and names."""
    text = content.decode("utf-8", "replace")
    for parse in (lambda one: quadkeys.parse_quadkeys([one]), parse_quarters, relative_name):
        with suppress(GeogpError):
            parse(text)


PARSERS: dict[str, Parser] = {
    "run.json": parse_run,
    "cache note": parse_note,
    "names": lambda content: plain_names(_held(content)),
    "packed array": lambda content: unpack(_held(content)),
    "text": parse_text,
}


def fuzz(name: str, seconds: int, seed: int) -> None:
    """Fuzz one parser; does not return."""
    import atheris  # noqa: PLC0415 - no dependency

    parse = PARSERS[name]

    def once(content: bytes) -> None:
        with suppress(GeogpError):
            parse(content)

    modules = (
        files,
        checked_types,
        record_reading,
        packing,
        quadkeys,
        quarters,
        cache,
    )
    for module in modules:
        for function in vars(module).values():
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                atheris.instrument_func(function)
    options = [f"-max_total_time={seconds}", f"-seed={seed}", "-max_len=4096", "-rss_limit_mb=3000"]
    atheris.Setup([sys.argv[0], *options], once)
    atheris.Fuzz()


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz each parser in a process of its own; the status says whether one failed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=int, default=60, help="in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=PARSERS)
    asked = parser.parse_args(arguments)
    if asked.only:
        fuzz(asked.only, asked.seconds, asked.seed)
    failed = {}
    for name in PARSERS:
        share = max(1, asked.seconds // len(PARSERS))
        options = ["--only", name, "--seconds", str(share), "--seed", str(asked.seed)]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, str(Path(__file__).resolve()), *options],
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
            )
        runs = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
        print(f"{name}: {runs[-1] if runs else f'status {done.returncode}'}", flush=True)
        if done.returncode:
            failed[name] = done.stderr[-1500:]
    print(json.dumps(failed, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
