r"""Speed of a training step and of a prediction, as shares of the machine's matrix peak.

    python -m benchmarks speed.speed --json benchmarks/results/speed/cpu.json \
        [--device cuda] [--quick]

Subjects are timed alternately: each round has one product of 2048 by 2048 float32 matrices, whose
speed counts as the peak, and one run of each subject; figures are medians over the rounds. Ratios
are the peer's time divided by ours, above 1 if ours is faster. GPyTorch's time is the shortest
under its public settings; the time under the private setting that factorises in float32 is reported
too. Shares count the arithmetic of `operations`. This count treats a product with a triangular
matrix as half of a full product only in solves. If blocks save more operations, the share is
higher, for predictions even above 1. Predictions are those of a model after some training steps,
and with `drawn` those of a model with larger and better known weights, which need more digits.
Needs torch, numpy and gpytorch. With --npz the rows come from a file (arrays x and y).
"""

import ctypes
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import gpytorch
import numpy as np
import torch
from torch import Tensor

from benchmarks.markdown import table
from benchmarks.script import Figures, parser
from benchmarks.script import machine as this_machine
from benchmarks.speed.speed_peers import (
    PRIVATE,
    SETTINGS,
    PlainSVGP,
    gpytorch_model,
    gpytorch_prediction,
    gpytorch_step,
    plain_step,
)
from geogp.errors import NumericalError
from geogp.files import write_text
from geogp.models.catalogue.build import build
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.optimisers import make_optimiser
from geogp.models.fitting.recorded_steps import TIMED, WARM_UP, RecordedStep
from geogp.models.fitting.steps import Batch
from geogp.models.numerics.devices import on_device
from geogp.models.numerics.linalg import deferred_checks
from geogp.models.options import Weights
from geogp.models.process.architecture import Architecture
from geogp.models.process.lowrank import LowRankProcess
from geogp.models.process.rows import Rows
from geogp.runs.machine import tune_process

Run = Callable[[], object]

OURS = {"svgp": "sv-rbf", "dbk-rbf": "dbk-rbf", "dbk-silu": "dbk-silu"}


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements.

    They are batch, rank, width, number of data rows, points of a prediction and of a whole state's
    prediction, rounds, side of the peak's matrices, and training steps before a prediction.
    """

    b: int = 1024
    r: int = 1024
    h: int = 256
    n: int = 50_000
    points: int = 100_000
    tiles: int = 600_000
    rounds: int = 9
    side: int = 2048
    trained: int = 50


QUICK = Sizes(b=64, r=64, h=16, n=2_000, points=2_000, tiles=4_000, rounds=3, side=256, trained=5)


def operations(name: str, s: Sizes) -> float:
    """Return the additions and multiplications of a step.

    SVGP has 6 r² b for L'phi and its two gradients, 4 r² b for two solves and one product by k_Zx,
    2 r³ for two solves by k_ZZ, and r³/3 for Cholesky. DBK has 24 b h² for two blocks of two
    layers, and three products for each of k_Zx and k_ZZ, 6 r b h + 6 r² h, or for the dense layer,
    6 r b h.
    """
    network = 24.0 * s.b * s.h**2
    posterior = 6.0 * s.r**2 * s.b
    if name == "dbk-silu":
        return posterior + network + 6 * s.r * s.b * s.h
    chain = 4 * s.r**2 * s.b + 2 * s.r**3 + s.r**3 / 3
    if name == "svgp":
        return posterior + chain
    return posterior + chain + network + 6 * s.r * s.b * s.h + 6 * s.r**2 * s.h


def prediction_operations(s: Sizes) -> float:
    """Return the operations of a DBK-RBF prediction: 2 r² + 2 r h + 8 h² per point."""
    return float(s.points) * (2 * s.r**2 + 2 * s.r * s.h + 8 * s.h**2)


class Bench:
    """Rows, models and subjects on one device; see the module.

    Peers are on the device `peers`, by default the same.
    """

    def __init__(
        self, device: str, rows: tuple[np.ndarray, np.ndarray] | None = None, peers: str = ""
    ) -> None:
        self.device, self.rows = torch.device(device), rows
        self.peers = torch.device(peers or device)
        self.fitted: dict[tuple[int, int], LowRankProcess] = {}

    def data(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return n rows: the given rows, resampled if they are too few, or simulated rows."""
        random = np.random.default_rng(0)
        if self.rows is not None:
            at = random.integers(0, len(self.rows[1]), n)
            return self.rows[0][at], self.rows[1][at]
        x = random.uniform(-1, 1, (n, 2))
        y = np.sin(6 * x[:, 0]) * np.cos(4 * x[:, 1]) + 0.3 * random.standard_normal(n)
        return x, y

    def model(self, name: str, s: Sizes, lengthscale: float | None = None) -> LowRankProcess:
        """Return an untrained model of geogp."""
        x, y = self.data(s.n)
        sizes = Architecture(d=x.shape[1], h=s.h, r=s.r)
        made = build(OURS[name], sizes, x, placement="uniform", scaling="minmax")
        if lengthscale is not None:
            with torch.no_grad():
                made.basis.log_lengthscale.fill_(math.log(lengthscale))
        made.take_target(y)
        return made.to(self.device)

    def step(
        self, name: str, s: Sizes, lengthscale: float | None = 0.3, *, record: bool = True
    ) -> Run:
        """Return one training step of a model of geogp; see `step_of`."""
        model = self.model(name, s, lengthscale if name == "svgp" else None)
        return self.step_of(model, s, record=record)

    def step_of(self, model: LowRankProcess, s: Sizes, *, record: bool = True) -> Run:
        """Return one training step of a given model, on a GPU recorded if that is faster.

        A recorded step has its memory already.
        """
        x, y = self.data(s.n)
        counts = torch.ones(s.n, 2, dtype=torch.float64, device=self.device)
        rows = Rows(model.scaled(x), model.standardised(y), counts)
        steps = model.make_fit(model)
        steps.rows = rows
        optimiser = make_optimiser(steps, FitSettings(epochs=1))
        random = np.random.default_rng(1)

        def make(batch: Batch) -> Tensor:
            optimiser.zero_grad(set_to_none=True)
            loss: Tensor = steps.step(batch, Weights())
            optimiser.step()
            return loss

        recorded = RecordedStep(optimiser, self.device)

        def run() -> Tensor:
            batch = Batch(on_device(random.integers(0, s.n, s.b), self.device), s.b)
            with deferred_checks():  # as in a fit
                return recorded(make, batch) if record else make(batch)

        if recorded.recorder is not None and record:
            losses = [float(run()) for _ in range(WARM_UP + 2 * TIMED)]
            if not math.isfinite(losses[-1]):
                raise NumericalError(f"the steps that are timed diverge: {losses}")
        return run

    def trained(self, s: Sizes) -> LowRankProcess:
        """Return DBK-RBF after some training steps."""
        key = s.r, s.h
        if key not in self.fitted:
            model = self.model("dbk-rbf", s)
            run = self.step_of(model, s)
            for _ in range(s.trained):
                run()
            self.fitted[key] = model
        return self.fitted[key]

    def peer_rows(self, s: Sizes) -> tuple[Tensor, Callable[[], tuple[Tensor, Tensor]]]:
        """Return inducing points and a function that draws batches, for peers."""
        x, y = (torch.from_numpy(part).float().to(self.peers) for part in self.data(s.n))
        generator = torch.Generator().manual_seed(1)

        def draw() -> tuple[Tensor, Tensor]:
            numbers = torch.randint(s.n, (s.b,), generator=generator).to(self.peers)
            return x[numbers], y[numbers]

        # Anywhere, as for our models, because resampled rows would coincide.
        places = 2 * torch.rand(s.r, x.shape[1], generator=generator) - 1
        return places.to(self.peers), draw

    def peer_steps(self, s: Sizes) -> dict[str, Run]:
        """Return one training step of each peer and setting."""
        anchors, draw = self.peer_rows(s)
        found = {
            f"gpytorch {name}": gpytorch_step(gpytorch_model(anchors, 0.3), draw, s.n, name)
            for name in SETTINGS
        }
        return {**found, "torch": plain_step(PlainSVGP(anchors, 0.3), draw, s.n)}

    def predictions(self, s: Sizes) -> dict[str, Run]:
        """Return the predictions of DBK-RBF, and of GPyTorch's sparse GP in chunks."""
        x, model = self.data(s.points)[0], self.trained(s)
        anchors, _ = self.peer_rows(s)
        inputs, peer = torch.from_numpy(x).float().to(self.peers), gpytorch_model(anchors, 0.3)

        def ours() -> None:
            model.predict(x)

        return {
            "dbk-rbf": ours,
            **{f"gpytorch {c}": gpytorch_prediction(peer, inputs, c) for c in (1024, 4096)},
        }

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def timed(self, run: Run) -> float:
        """Return the seconds of one run."""
        self.wait()
        start = time.perf_counter()
        run()
        self.wait()
        return time.perf_counter() - start

    def in_turns(self, subjects: dict[str, Run], rounds: int, side: int) -> dict[str, list[float]]:
        """Return seconds of each subject in each round, and ``peak`` in operations per second.

        A subject that cannot run is left out, with a message.
        """
        square = torch.randn(side, side, device=self.device)
        out = torch.empty_like(square)

        def multiply() -> None:
            torch.mm(square, square, out=out)

        able = {}
        for name, run in subjects.items():
            try:
                self.timed(run), self.timed(run)
                able[name] = run
            except (RuntimeError, ValueError) as error:
                print(f"{name} does not run: {str(error).splitlines()[0]}", file=sys.stderr)
        multiply()
        found: dict[str, list[float]] = {name: [] for name in ("peak", *able)}
        for _ in range(rounds):
            for name, run in able.items():
                found["peak"].append(2.0 * side**3 / self.timed(multiply))
                found[name].append(self.timed(run))
        return found

    def peak_bytes(self, run: Run) -> int | None:
        """Return the additional memory of a second run in bytes; None if it is not known."""
        if self.device.type == "cuda":
            run()
            before = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
            run()
            return int(torch.cuda.max_memory_allocated(self.device) - before)
        status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
        if not reset.exists():
            return None

        def held(name: str) -> int:
            lines = status.read_text().splitlines()
            return 1024 * int(next(line.split()[1] for line in lines if line.startswith(name)))

        run()
        if platform.libc_ver()[0] == "glibc":
            ctypes.CDLL(None).malloc_trim(0)  # releases memory that `tune_process` retains
        reset.write_text("5")
        before = held("VmRSS")
        run()
        return held("VmHWM") - before


def best(times: dict[str, list[float]], start: str) -> str:
    """Return the subject with the shortest median among subjects whose names begin with a text."""
    names = [name for name in times if name.startswith(start)]
    return min(names, key=lambda name: statistics.median(times[name]))


def ratio(times: dict[str, list[float]], peer: str, ours: str) -> float:
    """Return the median over the rounds of a peer's time divided by ours."""
    return statistics.median(a / b for a, b in zip(times[peer], times[ours], strict=True))


def share(times: dict[str, list[float]], name: str, count: float) -> float:
    """Return a subject's share of the peak, from the medians of both over all rounds."""
    return count / statistics.median(times[name]) / statistics.median(times["peak"])


def slope(sizes: list[int], seconds: list[float]) -> float:
    """Return the exponent of the growth of a time with a size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def steps(bench: Bench, s: Sizes) -> Figures:
    """Time the steps of all models and peers at three batch sizes."""
    found: Figures = {"steps": {}}
    for suffix, b in (("", s.b), (f"_b{s.b + 1}", s.b + 1), (f"_b{2 * s.b}", 2 * s.b)):
        at = replace(s, b=b)
        names = OURS if b == s.b else ["svgp"]
        subjects = {name: bench.step(name, at) for name in names} | bench.peer_steps(at)
        times = bench.in_turns(subjects, s.rounds, s.side)
        public = {name: of for name, of in times.items() if not name.endswith(PRIVATE)}
        peer, private = best(public, "gpytorch"), f"gpytorch {PRIVATE}"
        found[f"svgp_step_vs_gpytorch{suffix}"] = ratio(times, peer, "svgp")
        if private in times:
            found[f"svgp_step_vs_gpytorch_float32{suffix}"] = ratio(times, private, "svgp")
        found[f"svgp_step_vs_torch{suffix}"] = ratio(times, "torch", "svgp")
        for name in names:
            key = f"{name.replace('-', '_')}_share_of_peak{suffix}"
            found[key] = share(times, name, operations(name, at))
        medians = {name: statistics.median(part) for name, part in times.items()}
        found["steps"][str(b)] = {**medians, "best_gpytorch": peer}
    return found


def error(model: LowRankProcess, x: np.ndarray) -> float:
    """Return the largest difference of mean and sd from float64, divided by the prior sd."""
    exact = deepcopy(model).double()
    exact.architecture = replace(exact.architecture, dtype="float64")
    here, there = model.predict(x), exact.predict(x)
    prior = float(model.y_sd) * math.exp(0.5 * float(model.basis.log_variance.detach()))
    gaps = (
        np.abs(here.mean - there.mean).max(),
        np.abs(np.sqrt(here.function_variance) - np.sqrt(there.function_variance)).max(),
    )
    return float(max(gaps)) / prior


def predictions(bench: Bench, s: Sizes) -> Figures:
    """Time predictions with mean and variance, and compare them with float64."""
    x, drawn = bench.data(s.points)[0], deepcopy(bench.trained(s))
    with torch.no_grad():
        # Weights of size 1, half known well and half unknown, so sums lose more digits.
        drawn.posterior.m.copy_(torch.randn(s.r, generator=torch.Generator().manual_seed(2)))
        drawn.posterior.log_diagonal.zero_()[: s.r // 2] = -5.0

    def predict_drawn() -> None:
        drawn.predict(x)

    subjects = bench.predictions(s) | {"drawn": predict_drawn}
    times = bench.in_turns(subjects, max(3, s.rounds // 3), s.side)
    peer = best(times, "gpytorch")
    some = x[:2_000]
    whole = replace(s, points=s.tiles)
    state = bench.in_turns({"dbk-rbf": bench.predictions(whole)["dbk-rbf"]}, 3, s.side)
    few, many = s, whole
    taken = [bench.peak_bytes(bench.predictions(at)["dbk-rbf"]) for at in (few, many)]
    known = None not in taken
    return {
        "predict_vs_gpytorch": ratio(times, peer, "dbk-rbf"),
        "predict_share_of_peak": share(times, "dbk-rbf", prediction_operations(s)),
        "predict_drawn_vs_gpytorch": ratio(times, peer, "drawn"),
        "predict_drawn_share_of_peak": share(times, "drawn", prediction_operations(s)),
        "predict_error": max(error(model, some) for model in (bench.trained(s), drawn)),
        "predict_tiles_share_of_peak": share(state, "dbk-rbf", prediction_operations(whole)),
        "predict_tiles_seconds": statistics.median(state["dbk-rbf"]),
        "predict_bytes_per_point": (
            (taken[1] - taken[0]) / (many.points - few.points) if known else None  # type: ignore[operator]
        ),
        "predict_bytes": taken[1],
        "predict_seconds": {
            **{name: statistics.median(part) for name, part in times.items()},
            "points": s.points,
            "best_gpytorch": peer,
        },
    }


def growth(bench: Bench, s: Sizes) -> Figures:
    """Return growth of times with rank, batch and rows, memory of a step, and a lengthscale."""
    rounds = max(3, s.rounds // 2)
    found: Figures = {"slopes": {}}
    for name in OURS:
        for key, values in (
            ("r", [s.r // 4, s.r // 2, s.r]),
            ("b", [s.b // 2, s.b, 2 * s.b]),
            ("n", [s.n // 4, s.n]),
        ):
            subjects = {str(v): bench.step(name, replace(s, **{key: v})) for v in values}
            times = bench.in_turns(subjects, rounds, s.side)
            medians = [statistics.median(times[str(v)]) for v in values]
            found["slopes"][f"{name} step by {key}"] = slope(values, medians)
        found[f"{name.replace('-', '_')}_step_bytes"] = bench.peak_bytes(
            bench.step(name, s, record=False)
        )
    points = [s.points // 4, s.points // 2]
    subjects = {str(v): bench.predictions(replace(s, points=v))["dbk-rbf"] for v in points}
    times = bench.in_turns(subjects, 3, s.side)
    medians = [statistics.median(times[str(v)]) for v in points]
    found["slopes"]["dbk-rbf prediction by points"] = slope(points, medians)
    subjects = {f"{v:g}": bench.step("svgp", s, v) for v in (0.03, 1.0)}
    times = bench.in_turns(subjects, s.rounds, s.side)
    found["lengthscale_003_vs_1"] = ratio(times, "0.03", "1")
    return found


def machine(bench: Bench) -> Figures:
    """Return date, machine and versions."""
    return {
        **this_machine(str(bench.device)),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "gpytorch": gpytorch.__version__,
        "numpy": np.__version__,
    }


def figures_table(found: Figures) -> str:
    """Return all single figures as a table of Markdown."""
    flat = {**found, **found["slopes"]}
    lines = [(k, f"{v:.4g}") for k, v in flat.items() if isinstance(v, int | float)]
    for b, times in found["steps"].items():
        lines += [
            (f"{name}, b {b}", f"{1e3 * value:.1f} ms")
            for name, value in times.items()
            if name not in {"peak", "best_gpytorch"}
        ]
        lines.append((f"peak, b {b}", f"{times['peak'] / 1e9:.0f} GFLOP/s"))
    return table(("figure", "value"), lines)


def page(found: Figures) -> str:
    """Return the table with a description of the machine."""
    told = ", ".join(f"{key} {value}" for key, value in found["machine"].items())
    return (
        f"# Steps and predictions\n\n`benchmarks/speed/speed.py`: {told}.\n\n{figures_table(found)}"
    )


def rows_of(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the arrays x and y of a file."""
    with np.load(path) as file:
        return file["x"].astype(np.float64), file["y"].astype(np.float64)


def measure(bench: Bench, s: Sizes) -> Figures:
    """Return all figures."""
    found = {"machine": machine(bench), "sizes": s.__dict__}
    for part in (steps, predictions, growth):
        found |= part(bench, s)
    return found


def main() -> None:
    """Measure, print a table and write the figures."""
    asked = parser(__doc__, devices=True, quick=False, npz=Path, json=Path)
    given = asked.parse_args()
    tune_process()
    rows = None if given.npz is None else rows_of(given.npz)
    found = measure(Bench(given.device, rows), QUICK if given.quick else Sizes())
    print(figures_table(found))
    if given.json is not None:
        write_text(given.json, json.dumps(found, indent=1) + "\n")
        write_text(given.json.with_suffix(".md"), page(found))
