"""Facts for a bug report: versions, devices, the cache, and whether the sources answer."""

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyproj
import rasterio
import shapely
import torch

from geogp import __version__
from geogp.errors import GeogpError
from geogp.geodata.places.census import STATE_FILES
from geogp.geodata.store.cache import UNFINISHED, cache_items
from geogp.geodata.store.cache_place import cache_folder
from geogp.geodata.store.remote import SHORT_PATIENCE, NoRangesError, RemoteFile
from geogp.geodata.store.sources import Folder, Web, open_source
from geogp.geodata.tiles.ookla import FIRST_QUARTER
from geogp.geodata.tiles.targets import SERVICES
from geogp.geodata.tiles.tile_files import tile_file

VARIABLES = (
    *("GEOGP_CACHE", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    *("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"),
    *("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"),
)
"""Environment variables that change the behaviour of geogp."""

OPTIONAL = ("dask", "distributed")
"""Optional packages, which only some commands need."""

_CREDENTIALS = re.compile(r"//[^/@\s]+@")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class DoctorResult:
    """Facts about an installation, by group and name, and its problems, with advice.

    The texts contain no credentials, and ``~`` stands for the home folder.
    """

    facts: dict[str, dict[str, str]]
    problems: tuple[str, ...]

    def described(self) -> dict[str, object]:
        """Return the result for JSON."""
        return {**self.facts, "problems": list(self.problems)}

    def text(self) -> str:
        """Return lines to paste into a bug report."""
        lines = []
        for group, values in self.facts.items():
            lines += [group, *(f"  {name}: {value}" for name, value in values.items())]
        lines.append("problems" if self.problems else "no problem found")
        return "\n".join([*lines, *(f"  {problem}" for problem in self.problems)])


def examine(source: str, boundaries: str, *, ask: bool = True) -> DoctorResult:
    """Return facts about this installation, and its problems; a problem raises no error.

    `source` and `boundaries` are folders or addresses; geogp contacts them if `ask` is true.
    """
    problems: list[str] = []
    facts = {
        "geogp": _about(),
        "packages": _packages(),
        "devices": _devices(problems),
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "cache": _cache(problems),
        "sources": _sources(source, boundaries, problems) if ask else {},
    }
    clean = {
        group: {_clean(name): _clean(value) for name, value in values.items()}
        for group, values in facts.items()
        if values
    }
    return DoctorResult(clean, tuple(map(_clean, problems)))


def _about() -> dict[str, str]:
    memory = ""
    if {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= set(getattr(os, "sysconf_names", {})):
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = f", {_gigabytes(size)} of memory"
    return {
        "version": __version__,
        "installed in": str(Path(__file__).parent),
        "Python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.platform()}, {os.cpu_count() or 0} cores{memory}",
    }


def _packages() -> dict[str, str]:
    declared = importlib.metadata.requires("geogp") or []
    matches = [_NAME.match(text) for text in declared if "extra ==" not in text]
    versions = {match[0]: _version(match[0]) for match in matches if match}
    optional = {name: version for name in OPTIONAL if (version := _version(name)) != "missing"}
    libraries = {"GDAL": rasterio.__gdal_version__, "PROJ": pyproj.proj_version_str}
    return {**versions, **optional, **libraries, "GEOS": shapely.geos_version_string}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _devices(problems: list[str]) -> dict[str, str]:
    """Test each device, and return a description of each device."""
    devices = {"cpu": f"threads: {torch.get_num_threads()}"}
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        properties = torch.cuda.get_device_properties(index)
        devices[f"cuda:{index}"] = f"{properties.name}, {_gigabytes(properties.total_memory)}"
    for device in devices:
        try:
            wrong = _arithmetic_error(device)
        except RuntimeError as error:
            problems.append(f"device {device} does not compute: {error}")
            continue
        if not wrong < 1e-10:
            problems.append(
                f"device {device} computes wrong results: the error of a Cholesky factorisation "
                f"is {wrong:.1e}."
            )
    if len(devices) == 1:
        built = torch.version.cuda
        with_cuda = f"none found (torch is built for CUDA {built})"
        devices["cuda"] = with_cuda if built else "torch is built without CUDA"
    return devices


def _arithmetic_error(device: str) -> float:
    """Return the largest error of a Cholesky factorisation with a known result."""
    factor = torch.ones(64, 64, dtype=torch.float64, device=device).tril()
    return float((torch.linalg.cholesky(factor @ factor.T) - factor).abs().max())


def _cache(problems: list[str]) -> dict[str, str]:
    folder = cache_folder()
    items = cache_items()
    left = sum(item.state == UNFINISHED for item in items)
    size = sum(item.size for item in items)
    facts = {
        "folder": str(folder),
        "content": (
            f"{len(items) - left} files, {left} unfinished, {_gigabytes(size)} (`geogp cache "
            "verify` reads all files)"
        ),
    }
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
        facts["free"] = _gigabytes(shutil.disk_usage(there).free)
    except OSError as error:
        problems.append(
            f"the cache {folder} cannot be written to: {error.strerror}. Set GEOGP_CACHE to "
            "another folder."
        )
    return facts


def _sources(source: str, boundaries: str, problems: list[str]) -> dict[str, str]:
    """Request one file of each source, in parallel; return the answer of each source in words."""
    tiles = (tile_file(SERVICES[0], FIRST_QUARTER),)
    questions: dict[str, Callable[[], str]] = {
        f"tiles {source}": lambda: _answer(source, tiles, by_parts=True),
        f"boundaries {boundaries}": lambda: _answer(boundaries, STATE_FILES, by_parts=False),
    }
    answers = {}
    with ThreadPoolExecutor() as pool:
        for name, task in {name: pool.submit(ask) for name, ask in questions.items()}.items():
            try:
                answers[name] = task.result()
            except GeogpError as error:
                answers[name] = "not usable, see below"
                problems.append(str(error))
    return answers


def _answer(where: str, names: tuple[str, ...], *, by_parts: bool) -> str:
    """Return in words which of several files a source has; raise the errors of the source."""
    place = open_source(where)
    if isinstance(place, Folder):
        here = next((name for name in names if place.has(name)), None)
        return f"a folder with {here}" if here else f"a folder, without {names[0]}"
    assert isinstance(place, Web)
    for name in names:
        with closing(RemoteFile(f"{place.where}/{name}", SHORT_PATIENCE)) as remote:
            if not remote.open():
                continue
            size = remote.version.size
            text = f"answers; {name}" + (f" has {size:,} bytes" if size is not None else "")
            if not by_parts:
                return text
            try:
                remote.read(0, 4)
            except NoRangesError:
                return f"{text}; it serves only whole files, so geogp downloads each file once"
            return f"{text}; it serves parts of files"
    return f"answers, but has no {names[0]}"


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


def _clean(text: str) -> str:
    """Remove user names, passwords and the home folder from a text."""
    return _CREDENTIALS.sub("//***@", text).replace(str(Path.home()), "~")
