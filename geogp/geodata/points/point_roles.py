"""The columns of a file of points: what they hold, their usual names, and units in names."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from geogp.choices import one_of
from geogp.errors import RequestError

_NDT = ("meanthroughput", "ameanthroughput")

USUAL: dict[str, tuple[str, ...]] = {
    "latitude": ("latitude", "lat", "gpslatitude", "gpslat", "clientgeolatitude", "clientlatitude"),
    "longitude": (
        *("longitude", "lon", "lng", "long", "gpslongitude", "gpslon"),
        *("clientgeolongitude", "clientlongitude"),
    ),
    "time": ("time", "timestamp", "datetime", "date", "testtime", "atesttime", "starttime"),
    "download": ("download", "downloadspeed", "dl", "down", "avgd", *_NDT),
    "upload": ("upload", "uploadspeed", "ul", "up", "avgu", *_NDT),
    "latency": ("latency", "ping", "rtt", "avglat", "minrtt", "aminrtt"),
    "provider": (
        *("provider", "operator", "carrier", "isp", "mno", "network"),
        *("clientnetworkasname", "clientasname"),
    ),
    "technology": ("technology", "tech", "networktype", "conntype", "connectiontype", "rat"),
}
"""Usual names of each column, in small letters and without other signs than letters and digits.

Names that begin with ``client`` and ``a`` are columns of M-Lab's views ``ndt.unified_downloads``
and ``ndt.unified_uploads``, such as ``client.Geo.Latitude`` and ``a.MeanThroughputMbps``.
"""

SPEEDS = ("download", "upload")

KBPS = {"kbps": 1.0, "Mbps": 1000.0, "Gbps": 1e6, "bps": 1e-3, "kB/s": 8.0, "MB/s": 8000.0}
"""The units of speeds, in kbps. A byte has 8 bits, and a kB has 1,000 bytes."""

_SPELLED = {
    **{unit.lower(): unit for unit in ("kbps", "Mbps", "Gbps", "bps")},
    "kbits": "kbps",
    "kbit": "kbps",
    "mbits": "Mbps",
    "mbit": "Mbps",
    "gbits": "Gbps",
    "kbytess": "kB/s",
    "mbytess": "MB/s",
}
"""How the unit at the end of a column's name may be written; ``mb`` and ``kb`` are ambiguous."""


def plain(name: str) -> str:
    """Return a name in small letters, without other signs than letters and digits.

    Examples
    --------
    >>> plain("client.Geo.Latitude"), plain("Download (Mbps)")
    ('clientgeolatitude', 'downloadmbps')
    """
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def unit_in(name: str) -> str | None:
    """Return the unit of speed at the end of a column's name; None if the name has no unit.

    Examples
    --------
    >>> unit_in("avg_d_kbps"), unit_in("Download (Mbit/s)"), unit_in("download")
    ('kbps', 'Mbps', None)
    """
    text = plain(name)
    ends = [end for end in _SPELLED if text.endswith(end)]
    return _SPELLED[max(ends, key=len)] if ends else None


def named_columns(texts: Sequence[str]) -> dict[str, str]:
    """Return the columns that a user named, such as ``latitude=lat,time=when``, by what they hold.

    Raises RequestError if a text is not of this form, or if a column is named twice.
    """
    roles = "|".join(USUAL)
    found: dict[str, str] = {}
    for text in texts:
        for part in re.split(rf",\s*(?=(?:{roles})=)", text):
            role, equals, name = part.partition("=")
            if not (equals and name):
                raise RequestError(
                    f"expected --columns as latitude=NAME,longitude=NAME, found {part!r}."
                )
            one_of("column", role.strip(), USUAL)
            if role.strip() in found:
                raise RequestError(f"expected one column for {role.strip()}, found two names.")
            found[role.strip()] = name
    return found


def columns_of(
    names: Iterable[str], given: Mapping[str, str], needed: Sequence[str], what: str
) -> dict[str, str]:
    """Return the name of each known column: the user's choice, or a column with a usual name.

    `names` are the columns of the file `what`, and `given` is as in `named_columns`. Raises
    RequestError if a column in `needed` is missing, or if several columns have usual names.
    """
    names = list(names)
    missing = [name for name in given.values() if name not in names]
    if missing:
        raise RequestError(
            f"{what} has no column {missing[0]!r}, which --columns names; its columns are "
            f"{', '.join(names)}."
        )
    found = dict(given)
    for role in [role for role in USUAL if role not in given]:
        usual = [name for name in names if _is_usual(role, name)]
        if role == "time" and len(usual) > 1:  # a date beside a time says less
            usual = [name for name in usual if plain(name) != "date"]
        if len(usual) > 1 and role in needed:
            raise RequestError(
                f"{what} has several columns for {role}: {', '.join(usual)}. Choose one with "
                f"--columns {role}=NAME."
            )
        if len(usual) == 1:
            found[role] = usual[0]
    absent = [role for role in needed if role not in found]
    if absent:
        raise RequestError(
            f"{what} has no column for {' and '.join(absent)}; its columns are "
            f"{', '.join(names)}. Name the columns with "
            f"--columns {','.join(f'{role}=NAME' for role in absent)}."
        )
    return found


def _is_usual(role: str, name: str) -> bool:
    """Return whether a column has a usual name, where the name may end with a unit."""
    text = plain(name)
    ends = ("ms",) if role == "latency" else tuple(_SPELLED) if role in SPEEDS else ()
    forms = {text, *(text.removesuffix(end) for end in ends)}
    if role == "time":
        forms.add(text.removesuffix("utc"))
    return bool(forms & set(USUAL[role]))


@dataclass(frozen=True)
class PointSource:
    """A file of measurements, and how to read it.

    `file` is the path. `columns` are texts as in `named_columns`. `units` is the unit of speeds
    whose columns have no unit in their names. If `provider` or `technology` is given, only the
    measurements with this value are read. If `by_provider`, tests are pooled by provider, too.
    Raises RequestError if a column or the unit is unknown, or if one provider is chosen, too.
    """

    file: str
    columns: tuple[str, ...] = ()
    units: str | None = None
    provider: str | None = None
    technology: str | None = None
    by_provider: bool = False

    def __post_init__(self) -> None:
        named_columns(self.columns)
        if self.units is not None:
            one_of("unit", self.units, KBPS)
        if self.by_provider and self.provider is not None:
            raise RequestError(
                "--provider maps one provider, and --by-provider maps all. Leave one of them out."
            )
