"""The readers under fuzzing; each takes a content and returns the data that it read, or raises."""

import hashlib
import io
import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from msgspec import UNSET, to_builtins

from benchmarks.fuzz.fuzz_mutations import (
    Random,
    answers_changed,
    json_bytes,
    note_bytes,
    spoil_json,
    spoil_table,
    spoil_zip,
)
from benchmarks.fuzz.fuzz_world import FIT, HERE, NEXT, World, fit_data, square
from geogp.answers.run import open_run
from geogp.commands.gallery import make_gallery
from geogp.errors import DataError, GeogpError, RequestError
from geogp.files import plain_names
from geogp.geodata.places.census import read_region
from geogp.geodata.places.layers import read_layer
from geogp.geodata.points.point_options import PointSource
from geogp.geodata.points.point_tests import read_point_tests
from geogp.geodata.store.cache import CacheEntry, cache_items, read_note, readable_folder
from geogp.geodata.store.remote import Patience, RemoteFile
from geogp.geodata.store.sources import Folder, relative_name
from geogp.geodata.tiles import quadkeys
from geogp.geodata.tiles.ookla import read_observations
from geogp.geodata.tiles.quarters import parse_quarters, quarter_index
from geogp.geodata.tiles.tile_files import tile_file
from geogp.maps.figures.thumbnails import read_picture
from geogp.maps.page.packing import unpack
from geogp.models.catalogue.build import build
from geogp.models.catalogue.storage import load_model
from geogp.models.fitting.loop import fit
from geogp.models.numerics.tensor_files import write_tensors
from geogp.models.presets import PRESETS
from geogp.models.process.architecture import Architecture
from geogp.records.run_record import RunRecord
from geogp.reports.rendering import report_json
from geogp.reports.run_report import build_report, report_latex, report_markdown
from geogp.runs.file_records import RECORDS, records_of
from geogp.runs.pipeline.fitting import (
    RANK_FILE,
    WEIGHTS_FILE,
    RunFitter,
    take_rank,
    weights_of,
)
from geogp.runs.pipeline.read import Inputs
from geogp.runs.pipeline.run_model import RunModel
from geogp.runs.progress import RunListener
from geogp.runs.run_folder import RunFolder
from geogp.runs.run_identity import identity_in

Read = Callable[[World, bytes, Path], str]
"""Reads a content, using its own folder, and returns the data as a text."""

Change = Callable[[Random, bytes], bytes]

ALWAYS, PAGES, NEVER = "always", "pages", "never"

QUICK = Patience(attempts=2, first_wait_s=0.001, longest_wait_s=0.002, timeout_s=0.3)


@dataclass(frozen=True)
class Reader:
    """A reader, and how contents are damaged for it.

    `exact` names the bytes that must never be read as other values if they are damaged: all bytes
    (a hash covers them), the bodies of pages (checksums cover them), or none.
    """

    read: Read
    change: Change | None = None  # damages a content whose format stays valid
    exact: str = NEVER
    share: float = 1.0  # frequency relative to other readers


_NO_ROWS = np.ones(1, np.bool_), np.ones(1, np.bool_)
"""Rows of a fit that is not made: what it needs is in the file."""


def digest(*values: object) -> str:
    """Return a short hash of arrays and texts."""
    found = hashlib.sha256()
    for value in values:
        found.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return found.hexdigest()[:16]


def read_tiles(_world: World, content: bytes, place: Path) -> str:
    """Read a quarter; every row must have possible values."""
    path = place / tile_file("mobile", quarter_index("2023Q4"))
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    region = square()
    read = read_observations(Folder(place), region, quarters=parse_quarters("2023Q4"))
    seen = read.observations
    assert np.isfinite(seen.y).all(), "a value is not finite"
    assert (seen.tests >= 1).all(), "a tile without a test"
    assert region.contains(seen.longitude, seen.latitude).all(), "a tile outside the region"
    assert len(np.unique(seen.quadkey)) == len(seen.quadkey), "a tile twice"
    return digest(seen.quadkey, seen.y, seen.tests)


def read_states(ending: str) -> Read:
    """Read a state and its tiles."""

    def read(_world: World, content: bytes, place: Path) -> str:
        (
            place / ("states.parquet" if ending == "parquet" else "cb_2018_us_state_500k.zip")
        ).write_bytes(content)
        region = read_region(Folder(place), "PR").region
        assert np.isfinite(region.bounds).all(), "bounds are not finite"
        return digest(region.code, region.name, region.boundary.wkb, len(region.tiles(10)))

    return read


def read_own(ending: str) -> Read:
    """Read a layer of polygons."""

    def read(_world: World, content: bytes, place: Path) -> str:
        path = place / f"own.{ending}"
        path.write_bytes(content)
        layer = read_layer(str(path))
        layer.index([-66.1, 0.0], [18.2, 0.0])
        return digest(layer.labels, [shape.wkb for shape in layer.shapes])

    return read


def read_points(ending: str) -> Read:
    """Read a file of tests; every test must have a place, a quarter and a possible value."""

    def read(_world: World, content: bytes, place: Path) -> str:
        path = place / f"own.{ending}"
        path.write_bytes(content)
        found = read_point_tests(PointSource(str(path)), target="download", service="mobile")
        assert len(found.value) + sum(found.counts.values()) == found.rows, "a row is lost"
        assert (np.abs(found.latitude) <= 90).all(), "a test has no place"
        assert (np.abs(found.longitude) <= 180).all(), "a test has no place"
        assert (found.quarter >= 4 * 2000).all(), "a test has no quarter"
        assert ((found.value >= 0) & (found.value <= 2e7)).all(), "a value is impossible"
        return digest(found.longitude, found.latitude, found.quarter, found.value)

    return read


def read_model(_world: World, content: bytes, place: Path) -> str:
    """Load a model and predict."""
    (place / "m").write_bytes(content)
    model, context = load_model(place / "m")
    prediction = model.predict(np.zeros((3, model.architecture.d)))
    return digest(context, model.name, prediction.mean, prediction.function_variance)


def read_checkpoint(_world: World, content: bytes, place: Path) -> str:
    """Continue a fit."""
    path = place / "checkpoint"
    path.write_bytes(content)
    train, validation = fit_data()
    model = build("vbll", Architecture(d=2, h=4, r=4, blocks=1), train.x)
    _, state = fit(model, train, validation, FIT, checkpoint=path)
    return digest(state.epoch, state.best_epoch, state.best_nll)


def read_cache_note(world: World, content: bytes, place: Path) -> str:
    """Read a cache entry by its note, and list the cache."""
    os.environ["GEOGP_CACHE"] = str(place)
    path = place / "tiles" / readable_folder("source") / "entry-world.parquet"
    path.parent.mkdir(parents=True)
    shutil.copy(world.folder / "entry", path)
    path.with_suffix(".json").write_bytes(content)
    note = read_note(path.with_suffix(".json"))
    cache_items(check=True)
    if note is None:
        raise DataError("no note")
    if CacheEntry(path, note.source, note.ranges).read() is None:
        raise DataError("no entry")
    return digest(note)


def read_cache_file(world: World, content: bytes, place: Path) -> str:
    """Read a cache entry with damaged rows."""
    os.environ["GEOGP_CACHE"] = str(place)
    path = place / "tiles" / readable_folder("source") / "entry-world.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    (note,) = world.seeds("cache-note")
    path.with_suffix(".json").write_bytes(note)
    held = json.loads(note)
    if CacheEntry(path, held["source"], held["ranges"]).read() is None:
        raise DataError("no entry")
    return digest(content)


def read_weights(_world: World, content: bytes, place: Path) -> str:
    """Read the weights of an interrupted run."""
    (place / WEIGHTS_FILE).write_bytes(content)
    model = SimpleNamespace(
        preset=PRESETS["quick"],
        name=SimpleNamespace(uses=("alpha", "beta")),
        settings=SimpleNamespace(tune_weights=True),
    )
    weights, described = weights_of(_unfinished(model, place), _NO_ROWS)
    return digest(weights, described)


def read_rank(_world: World, content: bytes, place: Path) -> str:
    """Read the rank of an interrupted run."""
    (place / RANK_FILE).write_bytes(content)
    settings = SimpleNamespace(budget=10.0)
    model = SimpleNamespace(preset=PRESETS["quick"], settings=settings)
    return digest(take_rank(_unfinished(model, place), _NO_ROWS, 1))


def _unfinished(model: SimpleNamespace, folder: Path) -> RunFitter:
    """Return what the readers of an interrupted run need."""
    return RunFitter(cast("RunModel", model), cast("Inputs", None), folder, RunListener())


def read_packed(_world: World, content: bytes, _place: Path) -> str:
    """Unpack an array of a page."""
    try:
        packed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError("no JSON") from error
    return digest(unpack(packed))


def read_names(_world: World, content: bytes, _place: Path) -> str:
    """Read a text as a quadkey, as quarters, and as the name of a file."""
    text = content.decode("utf-8", "replace")
    found: list[object] = [plain_names([text])]
    for parse in (lambda one: quadkeys.parse_quadkeys([one]), parse_quarters, relative_name):
        with suppress(GeogpError):
            found.append(parse(text))
    return digest(*found)


def read_answers(_world: World, content: bytes, _place: Path) -> str:
    """Send a request to a server whose answers are given as bytes."""
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    with answering(content.split(NEXT)) as port:
        address = f"http://127.0.0.1:{port}/file"
        with closing(RemoteFile(address, QUICK)) as remote:
            if not remote.open():
                raise DataError("no file")
            body = io.BytesIO()
            with suppress(DataError):
                body.write(remote.read(5, 10))
            return digest(remote.version, body.getvalue())


@contextmanager
def answering(answers: list[bytes]) -> Iterator[int]:
    """Serve answers one after the other, then repeat the last; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        ended = threading.Event()

        def serve() -> None:
            number = 0
            while not ended.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    continue
                with connection, suppress(OSError):
                    connection.settimeout(0.3)
                    connection.recv(1 << 16)
                    connection.sendall(answers[min(number, len(answers) - 1)])
                number += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            thread.join()


def read_grid(world: World, content: bytes, place: Path) -> str:
    """Read the picture of a map, whose hash is in run.json."""
    (place / "grid.nc").write_bytes(content)
    told = json.loads((world.run / "run.json").read_bytes())["map"]["grid_sha256"]
    picture = read_picture(place / "grid.nc", sha256=told)
    return digest(picture.view.label, picture.values, picture.veiled)


def run_reader(use: Callable[[Path], object]) -> Read:
    """Return a reader of run.json in a complete run folder; it must not touch other folders."""

    def read(world: World, content: bytes, place: Path) -> str:
        run = place / "runs" / "run"
        run.mkdir(parents=True)
        kept = place / "runs" / "other"
        kept.mkdir()
        (kept / "mine").touch()
        for name in ("model.safetensors", "test_predictions.parquet", "grid.nc", "map.html"):
            shutil.copy(world.run / name, run / name)
        (run / "run.json").write_bytes(content.replace(HERE, str(world.folder).encode()))
        try:
            return digest(use(run))
        finally:
            assert (kept / "mine").is_file(), "a file of another folder was deleted"
            assert (world.run / "run.json").is_file(), "the whole run was deleted"

    return read


def reopened(run: Path) -> object:
    """Open a finished run, with its data."""
    found = open_run(run)
    return found.content, len(found.reopen().tiles)


def reported(run: Path) -> object:
    """Score a finished run again as its report does, without drawing figures."""
    opened = open_run(run)
    report = build_report(opened.record, opened.predictions)
    return report_json(report), report_markdown(report), report_latex(report)


def shown(run: Path) -> object:
    """Put a finished run on a page of several runs."""
    return make_gallery([run], out=run.parent / "gallery").skipped


def replaced(run: Path) -> object:
    """Make another run in the folder of a finished one."""
    folder = RunFolder(run)
    folder.check()
    with suppress(RequestError):  # the folder contains another run
        folder.finished(identity_in({"model": "field"}))
    folder.complete(_written)
    return sorted(path.name for path in run.iterdir())


def _written(staged: Path) -> RunRecord:
    (staged / "report.md").touch()
    return RunRecord(**dict.fromkeys(RunRecord.__struct_fields__, UNSET))


def read_stale(world: World, content: bytes, place: Path) -> str:
    """Finish a run that was interrupted before its files moved into place."""
    run = place / "runs" / "run"
    (run / ".unfinished" / "files").mkdir(parents=True)
    (place / "runs" / "mine").touch()
    (run / ".unfinished" / "files" / "run.json").write_bytes(world.seeds("run-folder")[0])
    (run / ".unfinished" / "stale.json").write_bytes(content)
    try:
        RunFolder(run).prepare()
        return digest(sorted(path.name for path in run.iterdir()))
    finally:
        assert (place / "runs" / "mine").is_file(), "a file of another folder was deleted"


def read_predictions(world: World, content: bytes, place: Path) -> str:
    """Score a run with damaged predictions, whose hash is in run.json nevertheless."""
    run = place / "run"
    run.mkdir()
    (run / "test_predictions.parquet").write_bytes(content)
    told = json.loads((world.run / "run.json").read_bytes())
    told[RECORDS] |= to_builtins(records_of(run, ["test_predictions.parquet"]))
    (run / "run.json").write_text(json.dumps(told))
    return digest(reported(run))


def tensors_changed(random: Random, content: bytes) -> bytes:
    """Change the description or a tensor of a file, and update the hash."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    if random.random() < 0.3:  # the names, shapes and places themselves
        text = json.dumps(spoil_json(random, header)).encode()
        return len(text).to_bytes(8, "little") + text + content[8 + size :]
    from safetensors.torch import load  # noqa: PLC0415 - torch is slow to import

    described = json.loads(header["__metadata__"]["description"])
    tensors = load(content)
    if random.random() < 0.6:
        described = spoil_json(random, described)
    else:
        name = list(tensors)[int(random.integers(len(tensors)))]
        value = tensors[name]
        match int(random.integers(4)):
            case 0:
                del tensors[name]
            case 1:
                tensors[name] = value.reshape(-1)[:-1].clone()
            case 2:
                tensors[name] = value * float("nan") if value.is_floating_point() else -value
            case _:
                tensors[name] = value.double() * 1e30
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"fuzz-tensors-{os.getpid()}"  # noqa: S108
    try:
        write_tensors(path, tensors, cast("dict[str, Any]", described))
        return path.read_bytes()
    finally:
        path.unlink(missing_ok=True)


READERS: dict[str, Reader] = {
    "tiles": Reader(read_tiles, spoil_table, PAGES, 4),
    "boundaries-parquet": Reader(read_states("parquet"), spoil_table, share=2),
    "boundaries-zip": Reader(read_states("zip"), spoil_zip, share=2),
    "layer-geojson": Reader(read_own("geojson"), json_bytes, share=2),
    "layer-gpkg": Reader(read_own("gpkg")),
    "points-csv": Reader(read_points("csv"), share=2),
    "points-json": Reader(read_points("json"), json_bytes),
    "points-parquet": Reader(read_points("parquet"), spoil_table),
    "points-xlsx": Reader(read_points("xlsx"), spoil_zip),
    "points-kml": Reader(read_points("kml")),
    "model": Reader(read_model, tensors_changed, ALWAYS, 2),
    "checkpoint": Reader(read_checkpoint, tensors_changed, ALWAYS),
    "run-reopen": Reader(run_reader(reopened), json_bytes),
    "run-report": Reader(run_reader(reported), json_bytes),
    "run-gallery": Reader(run_reader(shown), json_bytes),
    "run-folder": Reader(run_reader(replaced), json_bytes),
    "stale": Reader(read_stale, json_bytes, share=0.5),
    "predictions": Reader(read_predictions, spoil_table),
    "grid": Reader(read_grid, None, ALWAYS, 0.3),
    "cache-note": Reader(read_cache_note, note_bytes, ALWAYS),
    "cache-file": Reader(read_cache_file, None, ALWAYS, 0.3),
    "weights": Reader(read_weights, json_bytes, share=0.5),
    "rank": Reader(read_rank, json_bytes, share=0.5),
    "packed": Reader(read_packed, json_bytes, share=2),
    "names": Reader(read_names, share=0.5),
    "http": Reader(read_answers, answers_changed, share=2),
}
