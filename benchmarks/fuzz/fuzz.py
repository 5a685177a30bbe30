"""Damage valid files of every kind that geogp reads, and check what the readers return.

Each content must be read as data or raise a GeogpError, within limits of time and memory. Bytes
that a hash or a checksum covers must never be read as other data. Run from the folder of the
project:

    python -m benchmarks.fuzz.fuzz --seconds 600 --corpus tests/benchmarks/fuzz/fuzz_corpus

Files are read in a separate process. A crash or a hang of a C library ends this process; that is
counted, and the process is replaced.
"""

import hashlib
import platform
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyogrio

from benchmarks.fuzz.fuzz_mutations import Random, spoil_bytes
from benchmarks.fuzz.fuzz_pages import covered
from benchmarks.fuzz.fuzz_readers import ALWAYS, NEVER, PAGES, READERS
from benchmarks.fuzz.fuzz_worker import DATA, FAULT, MEMORY, TOO_MUCH, Answer, serve
from benchmarks.fuzz.fuzz_world import World, make_world
from benchmarks.trial import forking, parser, table, write_results
from geogp.files import write_bytes

SLOW_S = 20.0
"""Limit of the seconds for a content; a slower content is retried with three times the limit."""

SAME, OTHER, WRONG, CRASH, HANG = "same data", "other data", "wrong data", "crash", "hang"

FINDINGS = (FAULT, TOO_MUCH, WRONG, CRASH, HANG)
"""Outcomes that must not occur."""

BYTES, FORM = "bytes", "form"

LARGEST_KEPT = 40_000
"""Largest content stored in the corpus, in bytes; crashes and hangs of any size are stored."""


@dataclass(frozen=True)
class Case:
    """A damaged content.

    Attributes
    ----------
    reader, content
        Name of the reader, and the content that it reads.
    kind
        The kind of damage, ``bytes`` or ``form``.
    seed
        Number of the valid file among those of the reader.
    """

    reader: str
    content: bytes
    kind: str
    seed: int


@dataclass(frozen=True)
class Finding:
    """A content with an outcome that must not occur."""

    case: Case
    outcome: str
    where: str
    told: str


@dataclass
class Tally:
    """Outcomes of all contents.

    Attributes
    ----------
    counts
        Outcomes by reader and kind.
    findings
        One for each reader, outcome and place in the code; `times` is the number of each.
    slowest
        Longest seconds by reader.
    """

    counts: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    findings: dict[tuple[str, str, str], Finding] = field(default_factory=dict)
    times: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        """Number of all contents."""
        return sum(counter.total() for counter in self.counts.values())

    def add(self, case: Case, outcome: str, answer: Answer) -> None:
        """Count an outcome."""
        self.counts.setdefault((case.reader, case.kind), Counter())[outcome] += 1
        self.slowest[case.reader] = max(self.slowest.get(case.reader, 0), answer.seconds)
        if outcome in FINDINGS:
            key = (case.reader, outcome, answer.where)
            self.times[key] += 1
            best = self.findings.get(key)
            if best is None or len(case.content) < len(best.case.content):
                self.findings[key] = Finding(case, outcome, answer.where, answer.told)


class Worker:
    """A process that reads contents, and is replaced whenever it ends."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._context = forking("benchmarks.fuzz.fuzz_worker")
        self._start()

    def ask(self, reader: str, content: bytes, patience_s: float | None = None) -> Answer:
        """Let the process read a content, within `SLOW_S` or the given time."""
        started = time.monotonic()
        self._connection.send((reader, content))
        try:
            if self._connection.poll(patience_s or SLOW_S):
                answer: Answer = self._connection.recv()
                return answer
            outcome = HANG
        except (EOFError, ConnectionError):
            outcome = CRASH
        self.close()
        code = self._process.exitcode or 0
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        self._start()
        return Answer(outcome, name, name, time.monotonic() - started)

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(0.5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _start(self) -> None:
        self._connection: Connection
        self._connection, other = self._context.Pipe()
        self._process = self._context.Process(
            target=serve, args=(other, str(self._world.folder)), daemon=True
        )
        self._process.start()
        other.close()


class Fuzzer:
    """Makes damaged contents, lets a worker read them, and judges the answers."""

    def __init__(self, world: World, seed: int, readers: Sequence[str] = ()) -> None:
        self.tally = Tally()
        self._random: Random = np.random.default_rng(seed)
        self._names = list(readers) or list(READERS)
        shares = np.array([READERS[name].share for name in self._names])
        self._shares = shares / shares.sum()
        self._seeds = {name: world.seeds(name) for name in self._names}
        self._worker = Worker(world)
        self._truth = self._read_whole_files()
        self._covered = {
            name: [covered(one) for one in self._seeds[name]]
            for name in self._names
            if READERS[name].exact == PAGES
        }

    def run(self, seconds: float) -> Tally:
        """Read damaged contents for a number of seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.judge(self._case())
        return self.tally

    def judge(self, case: Case) -> str:
        """Let the worker read a content, and count the outcome."""
        answer = self._worker.ask(case.reader, case.content)
        if answer.outcome == HANG:  # the machine may only have been busy
            answer = self._worker.ask(case.reader, case.content, 3 * SLOW_S)
        outcome = answer.outcome
        if outcome == DATA:
            outcome = SAME if answer.told == self._truth[case.reader][case.seed] else OTHER
            if outcome == OTHER and self._must_be_same(case):
                outcome = WRONG
        self.tally.add(case, outcome, answer)
        return outcome

    def close(self) -> None:
        """End the process that reads."""
        self._worker.close()

    def _case(self) -> Case:
        random = self._random
        name = self._names[int(random.choice(len(self._names), p=self._shares))]
        seeds = self._seeds[name]
        seed = int(random.integers(len(seeds)))
        change = READERS[name].change
        if change is not None and random.random() < 0.5:
            return Case(name, change(random, seeds[seed]), FORM, seed)
        return Case(name, spoil_bytes(random, seeds[seed], seeds), BYTES, seed)

    def _must_be_same(self, case: Case) -> bool:
        """Return whether a hash or checksum covers all damaged bytes."""
        exact = READERS[case.reader].exact
        if case.kind == FORM or exact == NEVER:
            return False
        if exact == ALWAYS:  # the content of another valid file is valid
            return case.content not in self._seeds[case.reader]
        whole = self._seeds[case.reader][case.seed]
        if len(whole) != len(case.content):
            return False
        before, after = (np.frombuffer(one, np.uint8) for one in (whole, case.content))
        changed = np.flatnonzero(before != after)
        spans = self._covered[case.reader][case.seed]
        inside = [((changed >= first) & (changed < end)) for first, end in spans]
        return bool(inside) and bool(np.logical_or.reduce(inside).all())

    def _read_whole_files(self) -> dict[str, list[str]]:
        truth = {}
        for name in self._names:
            answers = [self._worker.ask(name, one) for one in self._seeds[name]]
            wrong = [one for one in answers if one.outcome != DATA]
            if wrong and name != "http":  # one of the answer sequences of http is an error
                raise SystemExit(f"{name} cannot read a whole file: {wrong[0].told}")
            truth[name] = [one.told for one in answers]
        return truth


def replay(world: World, corpus: Path) -> list[tuple[Path, Answer]]:
    """Read every content of a corpus; its file name begins with the name of the reader."""
    worker = Worker(world)
    try:
        return [
            (path, worker.ask(path.name.partition("--")[0], path.read_bytes()))
            for path in sorted(corpus.glob("*--*"))
        ]
    finally:
        worker.close()


def keep(tally: Tally, corpus: Path) -> list[Path]:
    """Write the contents of findings to the corpus if they are small."""
    kept = []
    for finding in tally.findings.values():
        content = finding.case.content
        if len(content) <= LARGEST_KEPT or finding.outcome in {CRASH, HANG}:
            name = hashlib.sha256(content).hexdigest()[:12]
            path = corpus / f"{finding.case.reader}--{finding.outcome.replace(' ', '-')}-{name}"
            write_bytes(path, content)
            kept.append(path)
    return kept


def described(tally: Tally, seconds: float, seed: int) -> dict[str, Any]:
    """Return the results as a dictionary for JSON."""
    return {
        "seconds": round(seconds),
        "seed": seed,
        "cases": tally.cases,
        "limits": {"seconds": SLOW_S, "memory_bytes": MEMORY},
        "versions": {
            "python": platform.python_version(),
            "gdal": ".".join(map(str, pyogrio.__gdal_version__)),
            **{
                name: version(name)
                for name in ("numpy", "pyarrow", "shapely", "safetensors", "h5py")
            },
        },
        "readers": [
            {
                "reader": reader,
                "spoilt": kind,
                "cases": counter.total(),
                "outcomes": dict(counter.most_common()),
                "slowest_s": round(tally.slowest[reader], 2),
            }
            for (reader, kind), counter in sorted(tally.counts.items())
        ],
        "findings": [
            {
                "reader": reader,
                "outcome": outcome,
                "where": where,
                "times": tally.times[reader, outcome, where],
                "told": finding.told[-1500:],
            }
            for (reader, outcome, where), finding in sorted(tally.findings.items())
        ],
    }


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    versions = ", ".join(f"{name} {found}" for name, found in content["versions"].items())
    command = (
        f"python -m benchmarks.fuzz.fuzz --seconds {content['seconds']} --seed {content['seed']}"
    )
    lines = [
        (
            *(row["reader"], row["spoilt"], row["cases"]),
            ", ".join(f"{times} {name}" for name, times in row["outcomes"].items()),
            row["slowest_s"],
        )
        for row in content["readers"]
    ]
    header = ("reader", "spoilt", "contents", "outcomes", "slowest, s")
    found = [f"- {one['reader']}: {one['outcome']}, {one['where']}" for one in content["findings"]]
    listed = "\n".join(found or ["- none"])
    return f"""# Outcomes of reading damaged files

`{command}`: {content["cases"]:,} contents, one process, {versions}.

`bytes`: damaged at any place; `form`: a valid format with unexpected content. Same and other data:
equal to the undamaged file or not, if no checksum covers the damaged part.

{table(header, lines, left=(0, 1, 3))}
Findings:

{listed}
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz for a while; the exit status tells whether there were findings."""
    given = parser(__doc__, seconds=600.0, seed=secrets.randbelow(2**31))
    given.add_argument("--corpus", type=Path, help="folder for contents of findings")
    given.add_argument("--readers", nargs="*", default=(), choices=READERS, metavar="READER")
    given.add_argument("--out", type=Path, help="a folder for table.md and results.json")
    asked = given.parse_args(arguments)
    print(f"seed {asked.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="geogp-fuzz-world-") as folder:
        fuzzer = Fuzzer(make_world(Path(folder)), asked.seed, asked.readers)
        try:
            tally = fuzzer.run(asked.seconds)
        finally:
            fuzzer.close()
    content = described(tally, asked.seconds, asked.seed)
    if asked.out:
        write_results(asked.out, page(content), content)
    if asked.corpus:
        keep(tally, asked.corpus)
    for row in content["readers"]:
        print(f"{row['reader']:20} {row['spoilt']:5} {row['cases']:6} {row['outcomes']}")
    for row in content["findings"]:
        print(f"\n{row['reader']}: {row['outcome']}, {row['times']} times, {row['where']}")
        print(row["told"])
    return 1 if content["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
