"""A small source that runs are made from."""

import copy
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geopandas as gpd
from shapely.geometry import box

from geogp.evaluation.scores import no_scores
from geogp.geodata.places.region import Region
from geogp.geodata.simulation.simulated_tiles import simple_region, simulate
from geogp.geodata.simulation.simulation_files import write_simulation
from geogp.geodata.tiles.quarters import parse_quarters
from geogp.records.checked_types import checked
from geogp.records.map_settings import MapSettings
from geogp.records.run_record import (
    RUN_SCHEMA,
    RunDrawing,
    RunIdentity,
    RunNote,
    RunRecord,
)
from geogp.records.run_settings import RunSettings, in_groups
from geogp.runs.progress import ProgressListener

if TYPE_CHECKING:  # which imports torch
    from geogp.runs.finished_run import RunResult


@dataclass(frozen=True)
class Small:
    """A source of 1,500 rows in two quarters of the demo's region."""

    folder: Path

    @property
    def arguments(self) -> list[str]:
        """What the command needs to map it in a few seconds."""
        return [
            "map",
            "DEMO",
            *("--source", str(self.folder)),
            *("--boundaries", str(self.folder / "boundaries")),
            *("--preset", "quick", "--epochs", "2", "--zoom", "13"),
        ]

    def request(self, out: Path, **changes: object) -> MapSettings:
        """Return a request that takes a few seconds."""
        settings = {"preset": "quick", "epochs": 2, "zoom": 13, **changes}
        return MapSettings(
            region="DEMO",
            source=str(self.folder),
            boundaries=str(self.folder / "boundaries"),
            out=out,
            **settings,
        )

    def tiles(self, quarter: int) -> Path:
        """Return the file of one of the two quarters."""
        return sorted(self.folder.rglob("*_tiles.parquet"))[quarter]


def write_small(folder: Path, region: Region | None = None, rows: int = 1500) -> Small:
    """Write a source of a region, called DEMO; of the demo's unless another is given."""
    region = region or simple_region()
    made = simulate(region, rows=rows, quarters=parse_quarters("2023Q3..2023Q4").all, seed=1)
    write_simulation(made, region, folder)
    return Small(folder)


def write_halves(small: Small, folder: Path, names: tuple[str, str, str], share: float) -> Path:
    """Write the west and the east of the region, and a place far from it, in a column `side`.

    The west is a share of its width.
    """
    regions = gpd.read_parquet(small.folder / "boundaries" / "states.parquet")
    west, south, east, north = regions.total_bounds
    middle = west + share * (east - west)
    shapes = [
        box(west - 1, south - 1, middle, north + 1),
        box(middle, south - 1, east + 1, north + 1),
        box(10, 10, 11, 11),
    ]
    path = folder / "halves.parquet"
    gpd.GeoDataFrame({"side": list(names)}, geometry=shapes, crs=4326).to_parquet(path)
    return path


FORMER_SETTINGS = {
    "h": 16,
    "r": 24,
    "epochs": 2,
    "batch": 32,
    "learning_rate": 1e-3,
    "decay": "cosine",
    "placement": "farthest",
    "weights": {"alpha": 0.0, "beta": 1.0},
    "refit": False,
    "head_rate": 1.0,
    "noise_rate": None,
    "clip": None,
    "average": 0.0,
    "noise_start": 0.5,
    "optimiser": "adamw",
    "noise": "gaussian",
    "tune_weights": False,
    "splits": ["random"],
    "folds": 1,
    "layers": [],
    "conformal": "none",
    "inputs": "place",
    "source": "/tiles",
    "boundaries": "/tiles",
    "urban_vintage": 2020,
    "dtype": "float32",
}
"""Settings of a run as schema 1 has them."""


def made_up_settings(**changes: Any) -> RunSettings:
    """Return the settings of a run; changes have the names of schema 1."""
    return checked(in_groups({**FORMER_SETTINGS, **changes}), RunSettings, "settings")


def made_up_run(**changes: Any) -> RunRecord:
    """Return what run.json of a run without rows holds."""
    empty = no_scores()
    known: dict[str, Any] = {
        "schema": RUN_SCHEMA,
        "geogp": "0.2",
        "versions": {},
        "device": "cpu",
        "region": "DEMO",
        "service": "mobile",
        "target": "download",
        "quarters": ["2023Q4"],
        "model": "field",
        "preset": "quick",
        "seed": 1,
        "settings": made_up_settings(),
        "drawing": RunDrawing(),
        "inputs": [],
        "metrics": {"random": dict.fromkeys(("all", "urban", "rural"), empty)},
    }
    return RunRecord(**(known | changes))


def note_of(run: RunRecord) -> RunNote:
    """Return the note that such a run begins with."""
    return RunNote(**{name: getattr(run, name) for name in RunIdentity.__struct_fields__})


def as_record(run: dict[str, Any]) -> RunRecord:
    """Return a made-up run.json, typed; its figures need not agree with each other."""
    settings = in_groups({**FORMER_SETTINGS, **run.get("settings", {})})
    return checked({**run, "settings": settings}, RunRecord, "the run")


def run_json(run: "RunResult") -> dict[str, Any]:
    """Return what run.json of a run holds."""
    found: dict[str, Any] = json.loads((run.path / "run.json").read_text())
    return found


def changed_at(run: dict[str, Any], place: Sequence[Any], value: object) -> dict[str, Any]:
    """Return a copy of a run.json with another value at a place; ... takes the value away."""
    changed = holder = copy.deepcopy(run)
    *way, last = place
    for key in way:
        holder = holder[key]
    if value is ...:
        del holder[last]
    else:
        holder[last] = value
    return changed


def edited_copy(run: Path, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Copy a run and change its run.json."""
    shutil.copytree(run, folder)
    held = json.loads((folder / "run.json").read_text())
    change(held)
    (folder / "run.json").write_text(json.dumps(held))
    return folder


@dataclass
class Heard(ProgressListener):
    """Keeps what it hears; `stop` says after which part of which work to interrupt a job."""

    stop: Callable[[str, int], bool] | None = None
    texts: list[str] = field(default_factory=list)
    parts: list[tuple[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def stage(self, text: str) -> None:
        """Keep the stage."""
        self.texts.append(text)

    def progress(self, text: str, done: int, total: int, note: str) -> None:  # noqa: ARG002
        """Keep what is worked on."""
        self.parts.append((text, done))
        self.notes.append(note)
        if self.stop is not None and self.stop(text, done):
            raise KeyboardInterrupt

    def warn(self, text: str) -> None:
        """Keep the warning."""
        self.warnings.append(text)


class Page(HTMLParser):
    """Collects the tags of a page, and the text outside of styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags, self.text, self.styling = [], "", False
        self.feed(html)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.styling = tag == "style"

    def handle_endtag(self, tag):  # noqa: ARG002
        self.styling = False

    def handle_data(self, data):
        if not self.styling:
            self.text += data + " "

    def all(self, tag):
        """Return the attributes of each tag of a kind."""
        return [attributes for name, attributes in self.tags if name == tag]
