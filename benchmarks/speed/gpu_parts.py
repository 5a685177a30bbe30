"""The parts of `gpu_suite.py`, each a function that returns figures; needs no geopandas.

A part gets the device and the sizes of a GPU, or the second device and small sizes.
"""

import argparse
import importlib.util
import logging
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import geogp
from benchmarks.kernels.uci import Benchmark, make_parser
from benchmarks.number_tables import Table
from benchmarks.peak_memory import peak_bytes
from benchmarks.script import HERE, Figures, clock, machine, search_path
from benchmarks.speed import launches, paper_scale, speed
from benchmarks.speed.second_device import DEVICE, NAME, second_device
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting import recorded_steps
from geogp.models.fitting.loop import FitState, fit
from geogp.models.fitting.optimisers import AdamW, make_optimiser
from geogp.models.fitting.recorded_steps import RECORDERS, TIMED, WARM_UP, RecordedStep
from geogp.models.fitting.steps import Batch
from geogp.models.numerics.linalg import deferred_checks
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data

Action = Callable[[], Tensor]

REPEATS = 20
"""Number of times that an operation is timed."""

CLOSE = 1e-5
"""Relative tolerance of a recorded operation, whose sums may have another order."""

ALIKE = 1e-3
"""Largest relative difference of the loss of the first epoch on two devices."""

MOST_THREADS = 4

HALF_KM = 250.0
"""Half of Georgia's width in km; the stored places are from -1 to 1."""

SEED = 0


@dataclass(frozen=True)
class Sizes:
    """Sizes of the parts: those of the papers on a GPU, small ones in a dry run.

    `factors` are sizes of single factorisations, `batches` number and size of those in batches.
    `h`, `r`, `batch`, `epochs` and `share` (of the rows) are of the fits to the simulated state.
    `tested` is the number of its rows that `field` predicts. `uci_epochs` is the length of a fit to
    protein. `selected` chooses tests by name, and `measured` are the sizes of `speed.py`.
    """

    factors: tuple[int, ...] = (8, 128, 1024)
    batches: tuple[tuple[int, int], ...] = ((4096, 8), (1024, 32), (64, 128))
    h: int = 256
    r: int = 1024
    batch: int = 1024
    epochs: int = 24
    share: float = 1.0
    tested: int = 10_000
    side: int = 8192
    repeated: int = 4000
    uci_epochs: int = 400
    selected: str = "cuda"
    measured: speed.Sizes = speed.Sizes()  # noqa: RUF009 - frozen


SMALL = Sizes(
    factors=(8, 64),
    batches=((16, 8),),
    h=8,
    r=16,
    batch=64,
    epochs=2,
    share=1.0,
    tested=50,
    side=64,
    repeated=400,
    uci_epochs=2,
    selected="(second and bll and on_the_gpu) or (without_a_search and cpu)",
    measured=speed.QUICK,
)


@dataclass(frozen=True)
class Asked:
    """What a part gets: its device and sizes, the folder with data, and the folder of results."""

    device: str
    sizes: Sizes
    pack: Path
    out: Path

    @property
    def dry(self) -> bool:
        """Whether the second device stands in for a GPU."""
        return self.device == str(DEVICE)

    def rows(self, share: float) -> dict[str, Data]:
        """Return training, validation and test rows of the simulated state."""
        return paper_scale.parts_of(self.pack / "georgia.npz", share)


def probe(asked: Asked) -> Figures:
    """Record single operations of training steps; return which ones a graph refuses, and times."""
    found = {}
    for name, make in _operations(asked):
        found[name] = recorded(make(), asked.device)
        print(name, found[name], flush=True)
    name = "clip_grad_norm_ and fused AdamW with a rate on the device"
    return {"operations": {**found, name: adamw(asked.device)}}


def recorded(action: Action, device: str) -> Figures:
    """Record an operation, and return its times and the gap between both results."""
    expected, alone = action().clone(), _milliseconds(action, device)
    try:
        result, replay = RECORDERS[torch.device(device).type](action)
    except RuntimeError as error:
        return {"ms": alone, "refused": str(error).splitlines()[0]}
    result.fill_(torch.nan)
    replay()
    gap = float((result - expected).abs().max() / expected.abs().max())
    return {"ms": alone, "recorded_ms": _milliseconds(replay, device), **_compared(gap)}


def adamw(device: str) -> Figures:
    """Record steps of AdamW whose rate changes, and compare them with steps made one by one."""
    rates = (0.1, 0.01, 0.05)
    dtype = torch.float32 if torch.device(device).type == "cuda" else torch.float64
    values = [torch.ones(64, 64).to(device).requires_grad_() for _ in range(2)]
    groups = [
        {"params": [value], "lr": torch.full((), rates[0], dtype=dtype).to(device)}
        for value in values
    ]
    optimisers = [AdamW([group], fused=True) for group in groups]

    def step(number: int) -> Tensor:
        value = values[number]
        value.grad = value.detach() * 3
        torch.nn.utils.clip_grad_norm_([value], 1.0)
        optimisers[number].step()
        return value.detach()

    step(0), step(1)
    group = optimisers[1].param_groups[0]
    group["capturable"] = True
    try:
        _, replay = RECORDERS[torch.device(device).type](lambda: step(1))
    except RuntimeError as error:
        return {"ms": _milliseconds(lambda: step(0), device), "refused": str(error).splitlines()[0]}
    for rate in rates[1:]:
        optimisers[0].param_groups[0]["lr"].fill_(rate)
        group["lr"].fill_(rate)
        step(0), replay()
    gap = float((values[1] - values[0]).detach().abs().max())
    alone = _milliseconds(lambda: step(0), device)
    return {"ms": alone, "recorded_ms": _milliseconds(replay, device), **_compared(gap)}


def _compared(gap: float) -> Figures:
    return {"gap": gap, "equal": gap < CLOSE}


def _operations(asked: Asked) -> Iterator[tuple[str, Callable[[], Action]]]:
    """Yield names of operations, and functions that make one with its inputs."""
    device = asked.device

    def normal(*shape: int) -> Tensor:
        random = torch.Generator().manual_seed(SEED)
        return torch.randn(*shape, dtype=torch.float64, generator=random).to(device)

    def matrix(*shape: int) -> Tensor:
        root = normal(*shape)
        return root @ root.mT + shape[-1] * torch.eye(shape[-1], dtype=root.dtype, device=device)

    def factor(*shape: int) -> Action:
        K = matrix(*shape)
        return lambda: torch.linalg.cholesky_ex(K)[0]

    def solve(*shape: int) -> Action:
        L, right = torch.linalg.cholesky(matrix(*shape)), normal(*shape)
        return lambda: torch.linalg.solve_triangular(L, right, upper=False)

    def summed() -> Action:
        numbers = (torch.arange(asked.sizes.batch) % 7).to(device)
        values = normal(asked.sizes.batch, 16)
        zeros = torch.zeros(asked.sizes.batch, 16, dtype=torch.float64, device=device)
        return lambda: torch.index_put(zeros, (numbers,), values, accumulate=True)

    def chosen() -> Action:
        numbers, x = torch.arange(asked.sizes.batch).to(device), normal(asked.sizes.batch, 16)
        x.requires_grad_()

        def action() -> Tensor:
            x.grad = None
            x[numbers].square().sum().backward()
            return x.grad

        return action

    def drawn() -> Action:
        shape = torch.full((64,), 1e14, dtype=torch.float64, device=device)
        return lambda: torch._standard_gamma(shape)  # noqa: SLF001

    sizes = [*((n, n) for n in asked.sizes.factors), *((b, n, n) for b, n in asked.sizes.batches)]
    for shape in sizes:
        text = " by ".join(map(str, shape))
        yield f"cholesky_ex, {text}", lambda shape=shape: factor(*shape)
        yield f"solve_triangular, {text}", lambda shape=shape: solve(*shape)
    yield "index_put with sums", summed
    yield "index and its gradient", chosen
    yield "gamma draws", drawn


def tests(asked: Asked, folder: str) -> Figures:
    """Run the tests of a folder on the GPU; return their number, and names of the failed ones.

    Files of tests that import geopandas cannot be read without it, and are named too.
    """
    with TemporaryDirectory() as made:
        path = Path(made) / "tests.xml"
        options = ["-q", "-p", "no:cacheprovider", f"--confcutdir={folder}", "-W", "default"]
        options += ["-k", asked.sizes.selected, f"--junitxml={path}", folder]
        options += ["--continue-on-collection-errors"]
        if importlib.util.find_spec("xdist") and not asked.dry:
            options += ["-p", "xdist.plugin", "-n", "8"]
        # Other plugins of pytest than those of the project would only be in the way.
        own = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "pytest", *options],
            cwd=HERE.parent,
            check=False,
            env={**os.environ, **own, "PYTHONPATH": search_path()},
            stdout=sys.stdout,
            stderr=sys.stderr,
        )
        cases = list(ET.parse(path).iter("testcase")) if path.exists() else []  # noqa: S314
    unread = [c for c in cases if c.find("error[@message='collection failure']") is not None]
    ran = [c for c in cases if c.find("skipped") is None and c not in unread]
    if not ran:
        raise RuntimeError(f"no test of {folder} ran; pytest ended with {done.returncode}")
    bad = [c.get("name") for c in ran if {e.tag for e in c} & {"failure", "error"}]
    names = [c.get("name") for c in unread]
    return {"passed": len(ran) - len(bad), "failed": bad, "unread": names}


def repeats(asked: Asked) -> Figures:
    """Fit models to four rows at each input, on the device and on the CPU.

    The losses of the first epoch agree to rounding errors; later, small differences grow.
    """
    found, n = {}, asked.sizes.repeated
    names = [name for name, spec in launches.MODELS.items() if spec.fit.func.same_kernels]
    settings = FitSettings(epochs=8, batch=n // 10, learning_rate=1e-3, seed=SEED)
    for name in ("dbk-rbf", "cox-nb", "class-dnn") if asked.dry else names:
        if name == "field":
            continue  # it does not combine rows, and has a part of its own
        train, validation = launches.world(name, n, 1, repeats=4), launches.world(name, n // 4, 2)
        states = {}
        with _log() as lines:
            for device in ("cpu", asked.device):
                model = launches.made(name, train, min(128, asked.sizes.r)).to(device)
                _, states[device] = fit(model, train, validation, settings)
        here, there = states["cpu"], states[asked.device]
        gap = abs(there.losses[0] / here.losses[0] - 1)
        found[name] = {
            "nll": there.best_nll,
            "nll_cpu": here.best_nll,
            "gap": gap,
            "alike": gap < ALIKE,
            "log": lines,
        }
        print(name, found[name], flush=True)
    return {"models": found}


def steps(asked: Asked) -> Figures:
    """Time steps of dbk-rbf on a tenth of the rows, recorded and not, and products of matrices."""
    sizes, train = asked.sizes, asked.rows(0.1 * asked.sizes.share)["train"]
    shape = Architecture(d=train.x.shape[1], h=sizes.h, r=sizes.r)
    model = build("dbk-rbf", shape, train.x, placement="farthest", seed=SEED)
    model.take_target(train.y)
    model.to(asked.device)
    settings = FitSettings(epochs=1, batch=sizes.batch)
    training = model.make_fit(model)
    training.start(model.as_rows(train), SEED)
    optimiser = make_optimiser(training, settings)

    def make(batch: Batch) -> Tensor:
        optimiser.zero_grad(set_to_none=True)
        loss: Tensor = training.step(batch, settings.weights)
        optimiser.step()
        return loss

    trial = RecordedStep(optimiser, torch.device(asked.device))
    batch = training.batches(sizes.batch, np.random.default_rng(SEED), 1.0)[0]
    with _log() as lines, deferred_checks():
        losses = [float(trial(make, batch)) for _ in range(WARM_UP + 2 * TIMED)]
        kept = _milliseconds(lambda: trial(make, batch), asked.device)
    seconds, refused = next(iter(trial.trials.values())).seconds, trial.recorder is None
    count = speed.operations("dbk-rbf", speed.Sizes(b=sizes.batch, r=sizes.r, h=sizes.h))
    peaks = {str(t): _peak(asked, t) for t in (torch.float32, torch.float64)}
    return {
        "alone_ms": 1e3 * seconds[0] / TIMED,
        "recorded_ms": None if refused else 1e3 * seconds[1] / TIMED,
        "kept_ms": kept,
        "last_loss": losses[-1],
        "operations": count,
        "peaks": peaks,
        "shares": {name: count / (kept / 1e3) / peak for name, peak in peaks.items()},
        "log": lines,
    }


def beside_gpytorch(asked: Asked) -> Figures:
    """Return the figures of `speed.py`."""
    rows = speed.rows_of(asked.pack / "georgia.npz")
    bench = speed.Bench(asked.device, rows, peers="cpu" if asked.dry else "")
    return speed.measure(bench, asked.sizes.measured)


def whole_state(asked: Asked) -> Figures:
    """Fit dbk-rbf to all rows of the simulated state by our schedule."""
    sizes = asked.sizes
    given = argparse.Namespace(
        h=sizes.h, r=sizes.r, batch=sizes.batch, rate=5e-3, device=asked.device
    )
    parts = asked.rows(sizes.share)
    with _log() as lines:
        found = paper_scale.run("ours", sizes.epochs, parts, SEED, given)
    rows = sum(len(part.y) for part in parts.values())
    return {**found, "rows": rows, "epochs": sizes.epochs, "log": lines, **_memory(asked)}


def field(asked: Asked) -> Figures:
    """Fit `FieldGP` with preset quick to all rows of the simulated state."""
    parts = asked.rows(asked.sizes.share)
    known, test = parts["train"].joined(parts["validation"]), parts["test"]
    held = np.arange(len(known.y)) >= len(parts["train"].y)
    model = geogp.FieldGP(
        x="x",
        y="y",
        crs=None,
        tests="tests",
        devices=None,
        validation=held,
        preset="quick",
        device=_named(asked),
    )
    started = clock(asked.device)
    with _log() as lines:
        model.fit_watched(_table(known), known.y, progress=_told)
    fitted = clock(asked.device)
    few = test.at(np.arange(len(test.y)) < asked.sizes.tested)
    law = model.predict_distribution(_table(few))
    lower, upper = law.interval(0.95)
    return {
        "rows": sum(len(part.y) for part in parts.values()),
        "seconds": fitted - started,
        "prediction_seconds": clock(asked.device) - fitted,
        "predicted": len(few.y),
        "test_nll": float(law.log_score(few.y).mean()),
        "coverage_95": float(((lower <= few.y) & (few.y <= upper)).mean()),
        "epochs": len(model.history_.losses),
        "log": lines,
        **_memory(asked),
    }


def protein(asked: Asked, alpha: float) -> Figures:
    """Fit dbk-rbf to protein by the paper's recipe, with one seed."""
    table = asked.pack / "protein.parquet"
    options = [f"--data={table}", "--model=dbk-rbf", "--recipe=paper", f"--weights={alpha:g},0.01"]
    options += [f"--epochs={asked.sizes.uci_epochs}", "--seeds=1", f"--out={asked.out / 'uci'}"]
    given = make_parser().parse_args(options)
    given.device = asked.device
    with _log() as lines:
        found = Benchmark(Table(table), given).run()
    return {**found, "epochs": given.epochs, "log": lines}


@contextmanager
def on(asked: Asked) -> Iterator[None]:
    """Make the device of a part available; in a dry run, its clock counts started kernels."""
    if not asked.dry:
        yield
        return
    with ExitStack() as held:
        counts = held.enter_context(second_device())
        held.enter_context(patch.dict(RECORDERS, {NAME: counts.record}))
        held.enter_context(patch.object(recorded_steps, "monotonic", counts.launches.total))
        where = "geogp.estimators.parameters.pick_device"
        held.enter_context(patch(where, lambda _: DEVICE))
        yield


PARTS: dict[str, tuple[float, Callable[[Asked], Figures]]] = {
    "a-probe": (0.05, probe),
    "b-tests": (0.2, lambda asked: tests(asked, "tests/devices")),
    "c-repeats": (0.1, repeats),
    "d-steps": (0.07, steps),
    "e-speed": (0.15, beside_gpytorch),
    "f-dbk-rbf": (0.2, whole_state),
    "f-field": (0.3, field),
    "g-alpha-0": (0.1, lambda asked: protein(asked, 0.0)),
    "g-alpha-0.01": (0.1, lambda asked: protein(asked, 0.01)),
    "g-alpha-0.1": (0.1, lambda asked: protein(asked, 0.1)),
    "g-alpha-1": (0.1, lambda asked: protein(asked, 1.0)),
    "h-tests": (0.5, lambda asked: tests(asked, "tests/models")),
}
"""The parts in their order: the share of the whole time that each may take, and its function."""


def run_part(name: str, asked: Asked) -> Figures:
    """Return the figures of a part, with the machine and the part's seconds."""
    torch.set_flush_denormal(True)
    # Small operations on many cores take longer.
    torch.set_num_threads(min(MOST_THREADS, torch.get_num_threads()))
    with on(asked):
        started = clock(asked.device)
        found = PARTS[name][1](asked)
        return {
            "machine": {**machine(asked.device), "sizes": asdict(asked.sizes)},
            "part_seconds": clock(asked.device) - started,
            **found,
        }


def _told(state: FitState, epochs: int) -> None:
    print(
        f"{state.epoch}/{epochs} {state.seconds:.1f} s {state.validation_nll[-1]:.4f}", flush=True
    )


def _named(asked: Asked) -> str:
    """Return the device's name in geogp; in a dry run, this name is that of the second device."""
    return "cuda" if asked.dry else asked.device


def _table(data: Data) -> pd.DataFrame:
    x, y = (HALF_KM * column for column in data.x[:, :2].T)
    return pd.DataFrame({"x": x, "y": y, "tests": data.counts[:, 0]})


def _milliseconds(action: Callable[[], object], device: str) -> float:
    """Return the median milliseconds of an action, each timed until the device is done."""
    action()
    found = []
    for _ in range(REPEATS):
        started = clock(device)
        action()
        found.append(1e3 * (clock(device) - started))
    return median(found)


def _peak(asked: Asked, dtype: torch.dtype) -> float:
    """Return the operations per second of a product of two large matrices."""
    side = asked.sizes.side
    A = torch.randn(side, side, dtype=dtype).to(asked.device)
    return 2.0 * side**3 / (_milliseconds(lambda: A @ A, asked.device) / 1e3)


def _memory(asked: Asked) -> Figures:
    """Return the largest memory of the process and of the GPU in bytes."""
    gpu = None if asked.dry else torch.cuda.max_memory_allocated(asked.device)
    return {"peak_bytes": peak_bytes(), "gpu_bytes": gpu}


@contextmanager
def _log() -> Iterator[list[str]]:
    """Collect the log messages of recorded steps."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(recorded_steps.__name__)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
