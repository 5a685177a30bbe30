"""One map from a program: the main job with its settings as keyword arguments."""

from pathlib import Path
from typing import Any

from geogp.errors import RequestError
from geogp.runs.open_run import Run, open_run
from geogp.runs.pipeline import make_map as pipeline
from geogp.runs.progress import Watcher
from geogp.runs.settings import MapRequest


def make_map(region: str | Path, *, watcher: Watcher | None = None, **settings: Any) -> Run:
    """Map a region: read, split, fit, evaluate, predict and write, as ``geogp map`` does.

    Parameters
    ----------
    region
        A state, such as ``PR``; or a file of polygons.
    watcher
        Hears of stages, progress and warnings.
    **settings
        What is mapped and how: the fields of `MapRequest`, which are the options of ``geogp map``
        with underscores. ``question`` is ``--for``; ``layers`` and ``threshold`` take several.

    Returns
    -------
    Run
        The finished run. The same call finds it and makes nothing again.

    Raises
    ------
    RequestError
        A setting is wrong, or the folder holds another run.
    DataError
        The data are wrong or missing.
    NetworkError
        A remote source failed.
    OutputError
        The results could not be written.
    """
    unknown = set(settings) - set(MapRequest.__dataclass_fields__)
    if unknown:
        raise RequestError(
            f"expected settings of geogp.make_map, found {', '.join(sorted(unknown))}. They are "
            f"{', '.join(MapRequest.__dataclass_fields__)}."
        )
    own = isinstance(region, Path) or Path(region.rpartition(":")[0] or region).is_file()
    if settings.get("out") is not None:
        settings["out"] = Path(settings["out"])
    place = {"region_file": str(region)} if own else {"region": region}
    found = pipeline.make_map(MapRequest(**place, **settings), watcher)
    return open_run(found.path, device=settings.get("device", "auto"))
