"""What makes two runs the same: the keys of run.json that decide the fits, compared."""

from typing import Any

from geogp.geodata.places.polygon_names import absolute_layer
from geogp.geodata.store.addresses import absolute_place

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


def same_map(held: dict[str, Any], identity: dict[str, Any]) -> bool:
    """Tell whether runs have one fit and one question, so that their maps are one."""
    return not differences(held, identity) and held.get("drawing") == identity.get("drawing")


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


def _same_inputs(then: Any, now: Any) -> bool:
    if not isinstance(then, list) or not isinstance(now, list):
        return False
    return len(then) == len(now) and all(map(same_input, then, now))
