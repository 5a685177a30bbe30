"""The function that makes a map from Python, with the settings as keyword arguments."""

from pathlib import Path
from typing import TypedDict, Unpack

from geogp.answers.pages import make_shown_map
from geogp.answers.run import Run, open_run
from geogp.arguments import checked_arguments
from geogp.errors import RequestError, named
from geogp.geodata.places.region_choice import file_and_rest
from geogp.runs.progress import ProgressListener
from geogp.runs.settings import MapRequest


class PointSettings(TypedDict, total=False):
    """Keyword arguments of `make_map` about a file of tests: the fields of `PointOptions`."""

    columns: tuple[str, ...]
    delimiter: str | None
    decimal: str | None
    encoding: str | None
    sheet: str | None
    crs: str | None
    most_left_out: float
    units: str | None
    thousands: tuple[str, ...]
    dates: str | None
    timezone: str | None
    at_quarter: str | None


class MapSettings(PointSettings, total=False):
    """Keyword arguments of `make_map`: the fields of `MapRequest` without region and folder."""

    source: str
    boundaries: str | None
    region_name: str | None
    urban_vintage: str
    strata: str | None
    points: str | None
    provider: str | None
    by_provider: bool
    technology: str | None
    service: str
    target: str
    quarters: str | None
    model: str
    preset: str
    split: str | None
    folds: int
    buffer_km: float
    layers: tuple[str, ...]
    covariates: tuple[str, ...]
    conformal: str
    inputs: str
    epochs: int | None
    budget: float | None
    noise: str
    tune_weights: bool
    precision: str
    device: str
    seed: int
    zoom: int
    far_km: float
    question: str
    tests: int | None
    devices: int | None
    at: str | None
    threshold: tuple[float, ...] | None
    self_contained: bool
    fresh: bool


@checked_arguments
def make_map(
    region: str | Path | None = None,
    *,
    out: str | Path | None = None,
    listener: ProgressListener | None = None,
    **settings: Unpack[MapSettings],
) -> Run:
    """Make a map of a region, as ``geogp map`` does, and return the finished run.

    Parameters
    ----------
    region
        A state, such as ``PR``; or a file of polygons. None means the extent of ``points``.
    out
        The run folder. Default: ``runs/<region>-<service>-<target>-<model>-<preset>``.
    listener
        Receives stages, progress and warnings.
    **settings
        Options of ``geogp map`` with underscores in the names, as in `MapRequest`. ``question``
        means ``--for``. ``layers``, ``covariates`` and ``threshold`` take several values.

    Returns
    -------
    Run
        The finished run. A later call with the same settings returns the stored run.

    Raises
    ------
    RequestError
        A setting is wrong, or the folder contains a run with other settings.
    DataError
        The data are wrong or missing.
    NetworkError
        A remote source failed.
    OutputError
        The results could not be written.
    """
    unknown = set(settings) - set(MapSettings.__annotations__)
    if unknown:
        raise RequestError(
            f"expected settings of geogp.make_map, found {named(sorted(unknown))}. The "
            f"settings are region, out, {', '.join(MapSettings.__annotations__)}."
        )
    text = None if region is None else str(region)
    own = isinstance(region, Path) or (text is not None and file_and_rest(text)[0].is_file())
    request = MapRequest(
        region=None if own else text,
        region_file=text if own else None,
        out=None if out is None else Path(out),
        **settings,
    )
    found = make_shown_map(request, listener)
    return open_run(found.path, device=request.device)
