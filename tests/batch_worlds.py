"""Three small simulated states as one source, and requests for them that take seconds."""

import importlib.util
import sys
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from geogp.commands.batch.batch_plan import BatchRequest
from geogp.commands.batch.batch_work import Order, WorkOutcome, make_run
from geogp.commands.batch.cluster import FixedCrew
from geogp.commands.batch.make_batch import BatchProgressListener

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
CODES = ("AA", "BB", "CC")


def batch_world() -> ModuleType:
    """Return the script that simulates states."""
    if "batch_world" not in sys.modules:
        spec = importlib.util.spec_from_file_location("batch_world", BENCHMARKS / "batch_world.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["batch_world"] = module
        spec.loader.exec_module(module)
    return sys.modules["batch_world"]


@dataclass(frozen=True)
class States:
    """A source of three states of 700 rows in two quarters."""

    folder: Path

    @property
    def options(self) -> list[str]:
        """What the command needs to map them quickly."""
        return [
            *("--source", str(self.folder), "--boundaries", str(self.folder / "boundaries")),
            *("--preset", "quick", "--epochs", "2", "--zoom", "12", "--model", "dbk-silu"),
        ]

    def request(self, *states: str, **changes: object) -> BatchRequest:
        """Return a request of some states."""
        varied = {
            "services": ("mobile",),
            "targets": ("download",),
            "quarters": (None,),
        }
        settings = {
            "source": str(self.folder),
            "boundaries": str(self.folder / "boundaries"),
            "preset": "quick",
            "epochs": 2,
            "zoom": 12,
            "model": "dbk-silu",
        }
        given = {name: changes.pop(name, value) for name, value in varied.items()}
        return BatchRequest(states=states or ("all",), settings=settings | changes, **given)


class Direct(Executor):
    """Does at once what it is given."""

    def __init__(self) -> None:
        self.done: list[tuple[str, object]] = []
        self._pool = ThreadPoolExecutor(1)

    def submit(self, function, order):
        """Call a function and wait for it."""
        self.done.append((function.__name__, order))
        future = self._pool.submit(function, order)
        wait([future])
        return future


def leave_out_pictures(patch: pytest.MonkeyPatch) -> None:
    """Make runs without figures."""
    patch.setattr("geogp.runs.pipeline.drawing.write_map_figures", lambda *_, **__: None)
    patch.setattr("geogp.runs.pipeline.drawing.kernel_figure", lambda *_, **__: b"no picture")
    patch.setattr("geogp.runs.pipeline.make_map.report_html", lambda *_: "no report")


def make_run_without_pictures(order: Order) -> WorkOutcome:
    """Make a run in a worker's process, which is then rid of pictures for good."""
    leave_out_pictures(pytest.MonkeyPatch())
    return make_run(order)


def direct() -> FixedCrew:
    """Return a crew that does one thing after the other."""
    return FixedCrew(Direct())


class Heard(BatchProgressListener):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.states: list[tuple[str, str, int]] = []
        self.texts: list[tuple[str, str]] = []

    def changed(self, name, entry):
        """Keep the state."""
        self.states.append((name, entry.state, entry.attempts))

    def working(self, name, text):
        """Keep the text."""
        self.texts.append((name, text))
