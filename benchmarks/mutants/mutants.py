"""Break geogp on purpose in many small ways, and count the faults that the tests detect.

Each mutant replaces one piece of code by wrong code, such as a wrong sign, factor or bound, half a
pixel, or a row of another part. The tests that should detect the fault run on a copy of the source
tree. A mutant survives if these tests pass.

    python -m benchmarks mutants.mutants                  # all, writes results/mutants.md
    python -m benchmarks mutants.mutants --layer field    # some, writes nothing
"""

import os
import shutil
import subprocess  # runs pytest on the copy
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from benchmarks.markdown import table
from benchmarks.mutants.mutant_list import MUTANTS, Mutant
from benchmarks.script import RESULTS, machine, parser
from geogp.files import write_text

ROOT = Path(__file__).parents[2]
COPIED = ("geogp", "apps", "tests", "benchmarks", "docs", "data", "README.md", "pyproject.toml")
PYTEST = ("-q", "-x", "-p", "no:cacheprovider", "-m", "not trial and not real and not browser")


@dataclass(frozen=True)
class Trial:
    """A mutant, whether the tests detected it, and the seconds of the tests."""

    mutant: Mutant
    killed: bool
    seconds: float


def mutated(text: str, mutant: Mutant) -> str:
    """Return a file's text with the fault; the replaced code must occur exactly once."""
    found = text.count(mutant.code)
    if found != 1:
        raise ValueError(f"{mutant.name}: expected its code once in {mutant.path}, found {found}")
    return text.replace(mutant.code, mutant.fault)


@contextmanager
def broken(tree: Path, mutant: Mutant) -> Iterator[None]:
    """Break a file of a tree inside the ``with`` block."""
    path = tree / mutant.path
    text = path.read_text("utf-8")
    path.write_text(mutated(text, mutant), "utf-8")
    try:
        yield
    finally:
        path.write_text(text, "utf-8")


def copy_tree(place: Path) -> Path:
    """Copy the files that the tests need, without downloaded data."""
    place.mkdir(parents=True)
    for name in COPIED:
        path = ROOT / name
        if path.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "node_modules", "_build", "artefacts")
            shutil.copytree(path, place / name, ignore=ignore)
        else:
            shutil.copy2(path, place / name)
    return place


def run_tests(tree: Path, tests: tuple[str, ...]) -> int:
    """Return the exit code of pytest: 0 all passed, 1 some failed."""
    environment = os.environ | {
        "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'apps'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", *PYTEST, *tests]
    done = subprocess.run(  # noqa: S603 (our own tests)
        command, cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in {0, 1}:
        raise RuntimeError(f"pytest did not run {' '.join(tests)}:\n{done.stdout[-2000:]}")
    return done.returncode


def tried(tree: Path, mutant: Mutant) -> Trial:
    """Try one mutant."""
    started = time.perf_counter()
    with broken(tree, mutant):
        code = run_tests(tree, mutant.tests)
    return Trial(mutant, code == 1, time.perf_counter() - started)


def check_tests_pass(tree: Path, mutants: list[Mutant]) -> None:
    """Refuse tests that fail without a fault, because they would kill every mutant."""
    tests = tuple(sorted({path for mutant in mutants for path in mutant.tests}))
    if run_tests(tree, tests):
        raise SystemExit("the tests fail without a mutant; repair them first")


def page(trials: list[Trial], minutes: float, workers: int) -> str:
    """Return the table of a whole run, with the names of the faults that no test saw."""
    killed, made = sum(trial.killed for trial in trials), machine()
    layers: dict[str, list[Trial]] = {}
    for trial in trials:
        layers.setdefault(trial.mutant.layer, []).append(trial)
    lines = []
    for layer, found in layers.items():
        survived = [one.mutant.name for one in found if not one.killed]
        lines.append((layer, len(found), len(found) - len(survived), ", ".join(survived)))
    return f"""# Mutants

    python -m benchmarks mutants.mutants --workers {workers}

{len(trials)} faults were put into geogp, one at a time, and {killed} of them were seen
by the tests that `benchmarks/mutants/mutant_list.py` names with each.
{made["processor"]}, Python {made["python"]}, {made["date"]}; {minutes:.0f} minutes.

{table(("layer", "faults", "seen", "not seen"), lines, left=(0, 3))}"""


def main() -> None:
    """Try the mutants and print the survivors."""
    asked = parser(__doc__, workers=2, layer=str)
    options = asked.parse_args()
    mutants = [one for one in MUTANTS if options.layer in {None, one.layer}]
    if not mutants:
        asked.error(f"expected a layer of {sorted({one.layer for one in MUTANTS})}")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        trees: Queue[Path] = Queue()
        for number in range(options.workers):
            trees.put(copy_tree(Path(folder) / str(number)))
        check_tests_pass(Path(folder) / "0", mutants)

        def one(mutant: Mutant) -> Trial:
            tree = trees.get()
            try:
                trial = tried(tree, mutant)
            finally:
                trees.put(tree)
            told = "seen" if trial.killed else "SURVIVED"
            print(f"{told:9}{trial.seconds:6.0f} s  {mutant.layer}: {mutant.name}", flush=True)
            return trial

        with ThreadPoolExecutor(options.workers) as pool:
            trials = list(pool.map(one, mutants))
    survived = [trial for trial in trials if not trial.killed]
    print(f"{len(trials) - len(survived)} of {len(trials)} seen")
    if options.layer is None:
        minutes = (time.perf_counter() - started) / 60
        write_text(RESULTS / "mutants.md", page(trials, minutes, options.workers))
    if survived:
        raise SystemExit(1)
