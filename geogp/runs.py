"""The run folder: begun, continued, completed, and read again."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from geogp.errors import DataError, OutputError, RequestError
from geogp.files import check_path, plain_names, read_json, remove, write_text
from geogp.geodata.layers import absolute_layer
from geogp.geodata.parquet_limits import check_parquet
from geogp.geodata.sources import absolute_place
from geogp.geodata.stratum_column import with_strata
from geogp.run_form import check_form

RUN_FILE = "run.json"
PREDICTIONS_FILE = "test_predictions.parquet"
GRID_FILE = "grid.nc"
MODEL_FILE = "model.safetensors"

LATER_FILES = (
    "report.tex",
    "areas_*",
    "exceedance_*",
    "excursion_*",
    "next_tiles.*",
    "figures",
)
"""What commands write into a finished run; another map or fit makes it out of date."""

IDENTITY_KEYS = (
    "geogp",
    "versions",
    "device",
    "region",
    "service",
    "target",
    "quarters",
    "model",
    "preset",
    "seed",
    "settings",
    "inputs",
)
"""Keys of run.json that decide the fits: runs that agree in them agree in every score."""

FILE_KEYS = ("name", "sha256", "rows", "rows_used")
"""Keys of an input file that tell what it holds."""

ROWS_KEYS = ("name", "rows_sha256", "rows_used")
"""The same of an entry of the cache: what else it holds depends on what was fetched before."""


@dataclass(frozen=True)
class RunFolder:
    """A folder in which a run is made.

    While the run is unfinished, its checkpoints and staged files stand in a hidden folder
    inside; the files move into place together at the end, ``run.json`` last.
    """

    path: Path

    @property
    def unfinished(self) -> Path:
        """Folder of the checkpoints and staged files of an unfinished run."""
        return self.path / ".unfinished"

    def check(self) -> None:
        """Refuse a path that cannot become a run folder, or that holds something else.

        Files that an interrupted call had begun to move into place are moved.

        Raises
        ------
        RequestError
            The path, or a folder above it, is a file, or the folder holds files of no run.
        DataError
            A file of the run is damaged.
        """
        check_path(self.path)
        for place in (self.path, *self.path.parents):
            if place.is_dir():
                break
            if place.exists():
                raise RequestError(f"{place} is a file; --out needs a folder.")
        if (self._staged / RUN_FILE).is_file():
            self._move()
        held = self._held()
        if not self.path.is_dir() or self._begun.is_file() or not any(self.path.iterdir()):
            return
        if not set(IDENTITY_KEYS) <= set(held):
            names = ", ".join(sorted(path.name for path in self.path.iterdir())[:3])
            raise RequestError(
                f"{self.path} holds something other than a run ({names}); choose another folder "
                "with --out."
            )

    def finished(self, identity: dict[str, Any]) -> dict[str, Any] | None:
        """Return the content of run.json where the fits of this run are already complete.

        What its map shows may differ: that is its key `drawing`. A run that was begun here
        counts before one that was finished before.

        Raises
        ------
        RequestError
            The folder holds another run, finished or not.
        """
        begun = self._begun.is_file()
        held = _read_json(self._begun) if begun else self._held()
        if not held:
            return None
        different = differences(held, identity)
        if different:
            raise RequestError(
                f"{self.path} holds a run with other {', '.join(different)}. "
                "Start over with --fresh, or choose another folder with --out."
            )
        return None if begun else held

    @property
    def _staged(self) -> Path:
        return self.unfinished / "files"

    @property
    def _stale(self) -> Path:
        return self.unfinished / "stale.json"

    @property
    def _begun(self) -> Path:
        return self.unfinished / "identity.json"

    def _held(self) -> dict[str, Any]:
        """Return the content of run.json, empty where there is none."""
        path = self.path / RUN_FILE
        held = _read_json(path) if path.is_file() else {}
        _names(path, held.get("files", []))
        return held

    def begin(self, identity: dict[str, Any]) -> None:
        """Note which run is being made here, so that it can be continued.

        Raises
        ------
        OutputError
            The folder cannot be written.
        """
        write_text(self._begun, json.dumps(identity))

    def clear(self) -> None:
        """Forget an unfinished run."""
        shutil.rmtree(self.unfinished, ignore_errors=True)

    def complete(self, write: Callable[[Path], None], run: dict[str, Any]) -> None:
        """Write all files beside, then move them into place, ``run.json`` last.

        From the moment that the first file moves, the staged ones are all that the run has left:
        if the moves are interrupted, the next call of `check` ends them.

        Parameters
        ----------
        write
            Writes every file of the run but run.json into the folder it is given.
        run
            The content of run.json; the names of all files are added as `files`.

        Raises
        ------
        OutputError
            A file cannot be written. None is left in the run folder; checkpoints stay.
        """
        staged = self._staged
        shutil.rmtree(staged, ignore_errors=True)
        try:
            staged.mkdir(parents=True)
            write(staged)
            run["files"] = sorted(file.name for file in staged.iterdir())
            held = self._held().get("files", [])
            later = [file.name for name in LATER_FILES for file in self.path.glob(name)]
            stale = sorted({*held, *later} - set(run["files"]))
            write_text(self._stale, json.dumps(stale))
            write_text(staged / RUN_FILE, json.dumps(run, indent=1, allow_nan=False) + "\n")
        except BaseException as error:
            shutil.rmtree(staged, ignore_errors=True)
            if isinstance(error, OSError) and not isinstance(error, OutputError):
                raise OutputError(f"cannot write to {self.path}: {error}.") from error
            raise
        self._move()

    def _move(self) -> None:
        """Move the staged files into place; run.json, the mark that all are staged, goes last."""
        try:
            stale = _names(self._stale, read_json(self._stale))
            (self.path / RUN_FILE).unlink(missing_ok=True)
            for file in sorted(self._staged.iterdir()):
                if file.name == RUN_FILE:
                    continue
                if file.is_dir():  # which replaces no other
                    remove(self.path / file.name)
                file.replace(self.path / file.name)
            for name in stale:
                remove(self.path / name)
            (self._staged / RUN_FILE).replace(self.path / RUN_FILE)
        except OSError as error:
            raise OutputError(
                f"cannot write to {self.path}: {error}. The same command ends it."
            ) from error
        self.clear()


def read_run(path: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    """Read run.json and the test predictions of a finished run.

    Raises
    ------
    RequestError
        The folder is not a finished run.
    DataError
        A file is damaged, or larger than what `geogp map` writes.
    """
    run = read_run_file(path)
    try:
        check_parquet(path / PREDICTIONS_FILE)
        predictions = pd.read_parquet(path / PREDICTIONS_FILE, page_checksum_verification=True)
    except DataError:
        raise
    except (OSError, ValueError, TypeError, LookupError, pa.ArrowException) as error:
        raise DataError(f"{path / PREDICTIONS_FILE} is damaged ({error}).") from error
    if "stratum" in predictions:
        predictions = with_strata(predictions, run.get("settings") or {})
    return run, predictions


def read_run_file(path: Path) -> dict[str, Any]:
    """Read run.json of a finished run.

    Raises
    ------
    RequestError
        The folder is not a finished run.
    DataError
        The file is damaged.
    """
    if not (path / RUN_FILE).is_file() or not (path / PREDICTIONS_FILE).is_file():
        raise RequestError(
            f"{path} is not a finished run: expected {RUN_FILE} and {PREDICTIONS_FILE} in it."
        )
    run = _read_json(path / RUN_FILE)
    try:
        check_form(run)
    except DataError as error:
        raise DataError(
            f"{path / RUN_FILE} is damaged: {error} Run `geogp map` again with --fresh."
        ) from error
    return run


def differences(held: dict[str, Any], identity: dict[str, Any]) -> list[str]:
    """Return the keys of `IDENTITY_KEYS` in which runs differ: none where the fits are one."""
    then = _with_absolute_places(held)
    now = _with_absolute_places(identity)
    return [
        key
        for key in IDENTITY_KEYS
        if then.get(key) != now.get(key)
        and not (key == "inputs" and _same_inputs(then.get(key), now.get(key)))
    ]


def check_apart(out: Path, runs: Sequence[Path], made: str) -> None:
    """Refuse a folder that is a run folder, or in one.

    Parameters
    ----------
    out
        Where something is to be written.
    runs
        Run folders that it is made from.
    made
        What it is, in words.

    Raises
    ------
    RequestError
        `out` is in a run folder, or can be no folder.
    """
    check_path(out)
    place = out.resolve()
    taken = {run.resolve() for run in runs}
    for folder in (place, *place.parents):
        if (
            folder in taken
            or (folder / RUN_FILE).is_file()
            or RunFolder(folder).unfinished.is_dir()
        ):
            raise RequestError(
                f"{out} is in the run folder {folder}; {made} needs a folder of its own. "
                "Choose another with --out."
            )


def run_names(runs: Sequence[Path]) -> list[str]:
    """Return a printable name for each run folder; no two are the same."""
    names = [printable(run.resolve().name) for run in runs]
    if len(set(names)) < len(names):
        names = [printable(str(run)) for run in runs]
    found: list[str] = []
    for name in names:
        number, free = 1, name
        while free in found:
            number += 1
            free = f"{name} ({number})"
        found.append(free)
    return found


def printable(text: str) -> str:
    """Replace what no file in UTF-8, or no XML, can hold."""
    return "".join(mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in text)


def _with_absolute_places(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run whose folders and files are absolute; older versions kept them as typed."""
    settings = run.get("settings")
    if not isinstance(settings, dict):
        return run
    places = {
        key: absolute_place(settings[key])
        for key in ("source", "boundaries")
        if isinstance(settings.get(key), str)
    }
    if isinstance(settings.get("strata_file"), str):
        places["strata_file"] = absolute_layer(settings["strata_file"])
    layers = settings.get("layers", [])
    if isinstance(layers, list) and all(isinstance(text, str) for text in layers):
        layers = [absolute_layer(text) for text in layers]
    return {**run, "settings": {**settings, **places, "layers": layers}}


def same_input(one: Any, other: Any) -> bool:
    """Tell whether two input files of run.json hold the same rows; how they came does not count.

    Of an entry of the cache, which has the address of its source, the region's rows are compared,
    of two files read in place all of them.
    """
    if not isinstance(one, dict) or not isinstance(other, dict):
        return bool(one == other)
    known = "rows_sha256" in one and "rows_sha256" in other
    cached = "source" in one or "source" in other
    keys = ROWS_KEYS if known and cached else FILE_KEYS
    return all(one.get(key) == other.get(key) for key in keys)


def _same_inputs(then: Any, now: Any) -> bool:
    if not isinstance(then, list) or not isinstance(now, list):
        return False
    return len(then) == len(now) and all(map(same_input, then, now))


def _names(path: Path, found: object) -> list[str]:
    """Return names of files of the run folder, as a file in it lists them: they are deleted."""
    try:
        return plain_names(found)
    except DataError as error:
        raise DataError(
            f"{path} is damaged: {error} Delete it, or choose another --out."
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except DataError as error:
        raise DataError(
            f"{path} is damaged ({error}). Delete it, or choose another --out."
        ) from error
    if not isinstance(content, dict):
        raise DataError(
            f"{path} is damaged: expected a JSON object. Delete it, or choose another --out."
        )
    return content
