"""The columns of a file of points: what they hold, their names, their units, and known exports."""

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from geogp.errors import DataError, RequestError, named, quoted, shown
from geogp.geodata.tiles.targets import SIGNALS

USUAL: dict[str, tuple[str, ...]] = {
    "latitude": (
        *("latitude", "lat", "gpslatitude", "gpslat", "clientgeolatitude", "clientlatitude"),
        "latitud",
    ),
    "longitude": (
        *("longitude", "lon", "lng", "long", "gpslongitude", "gpslon"),
        *("clientgeolongitude", "clientlongitude", "longitud"),
    ),
    "time": (
        *("timestamp", "datetime", "time", "testtime", "atesttime", "starttime", "createdat"),
        *("fechahora", "hora"),
    ),
    "date": ("date", "testdate", "fecha", "datum"),
    "download": (
        *("download", "downloadspeed", "dl", "down", "avgd", "downlink", "descarga", "bajada"),
        *("dlthroughput", "downloadthroughput", "meandownloadspeed", "averagedownloadspeed"),
        *("meanthroughput", "ameanthroughput"),
    ),
    "upload": (
        *("upload", "uploadspeed", "ul", "up", "avgu", "uplink", "subida", "ulthroughput"),
        *("uploadthroughput", "meanuploadspeed", "averageuploadspeed"),
    ),
    "latency": ("latency", "ping", "rtt", "avglat", "minrtt", "aminrtt", "latencia"),
    "rsrp": (
        *("rsrp", "ssrsrp", "nrrsrp", "nrssrsrp", "ltersrp", "servingrsrp", "rsrpserving"),
        "referencesignalreceivedpower",
    ),
    "rsrq": ("rsrq", "ssrsrq", "nrrsrq", "nrssrsrq", "ltersrq", "servingrsrq", "rsrqserving"),
    "sinr": ("sinr", "sssinr", "nrsinr", "nrsssinr", "ltesinr", "snr", "rssnr", "ltesnr"),
    "rssi": ("rssi", "lterssi", "gsmrssi", "rxlev", "rxlevel"),
    "signal": (
        *("signal", "signalstrength", "signallevel", "signalpower", "receivedpower"),
        *("senal", "intensidaddesenal"),
    ),
    "provider": (
        *("provider", "operator", "carrier", "isp", "mno", "network", "operador", "proveedor"),
        *("operatorname", "clientnetworkasname", "clientasname"),
    ),
    "technology": (
        *("technology", "tech", "networktype", "networktech", "conntype", "connectiontype", "rat"),
        "connection",
        "tecnologia",
    ),
    "success": (
        *("success", "succeeded", "successful", "issuccess", "issuccessful", "testsuccess"),
        *("exito", "exitoso"),
    ),
    "session": (),
    "error_sd": (),
    "value": ("value",),
    "tests": ("tests",),
    "quarter": ("quarter",),
}
"""Usual names of each column, in small letters and without other signs than letters and digits.

Names that begin with ``client`` and ``a`` are columns of M-Lab's views ``ndt.unified_downloads``
and ``ndt.unified_uploads``, such as ``client.Geo.Latitude`` and ``a.MeanThroughputMbps``. A drive
is a session; its column, and that of known errors, have no usual name. The last three are columns
of covariates.
"""

OTHER_PLACES = frozenset(
    {"server", "cell", "site", "tower", "station", "host", "node", "enb", "gnb"}
)
"""Words in nested names of places that are not those of tests."""

SPEEDS = ("download", "upload")

DECIBELS = {"dBm": 1.0, "dB": 1.0}
"""The units of signals: the name of a signal says what the decibels refer to."""

_OTHER_SPEED = {"download": "upload", "upload": "download"}

KBPS = {
    "kbps": 1.0,
    "Mbps": 1e3,
    "Gbps": 1e6,
    "bps": 1e-3,
    "B/s": 8e-3,
    "kB/s": 8.0,
    "MB/s": 8e3,
    "GB/s": 8e6,
}
"""The units of speeds, in kbps. A byte has 8 bits, and a kB has 1,000 bytes."""

MS = {"ms": 1.0, "s": 1e3, "us": 1e-3}
"""The units of latencies, in ms."""

AMBIGUOUS = "b or B"
"""Stands for a unit that may mean bits or bytes."""

LONGEST_UNIT = 30
"""Most characters of a unit at the end of a name."""

_SPEED_WORDS = re.compile(
    r"(?:download|upload|down|up|dl|ul|speed|throughput|rate)$", re.IGNORECASE
)
"""Ends of names after which a unit may follow without a sign between them."""

_PER = r"(?:/\s*s(?:ec(?:ond)?)?|[\s_.-]*p(?:er)?[\s_.-]*s(?:ec(?:ond)?)?)"
_SPEED = re.compile(
    rf"[\s_.(\[]*(?P<prefix>kilo|mega|giga|[kmg])?[\s_-]*(?P<what>bytes?|bits?|b)(?P<per>{_PER})?"
    r"[\s)\]]*$",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"(?:[\s_.(\[]+(?P<long>seconds?|secs?|s)|[\s_.(\[]*(?P<short>m(?:illi)?s(?:ec(?:ond)?s?)?|[uµμ]s))"
    r"[\s)\]]*$",
    re.IGNORECASE,
)


_DECIBEL = re.compile(r"[\s_.(\[]*(?P<unit>dbm|db)[\s)\]]*$", re.IGNORECASE)


class KnownColumn(NamedTuple):
    """A column of a known export: names, the best first, and its unit."""

    names: tuple[str, ...]
    unit: str


@dataclass(frozen=True)
class KnownExport:
    """The header of a program's export, which tells units that the columns do not state.

    A table is such an export if it has all columns in `needs`. `columns` are the columns of speeds
    and latencies by role. Names are as `plain` returns them.
    """

    name: str
    needs: frozenset[str]
    columns: Mapping[str, KnownColumn]


EXPORTS = (
    KnownExport(
        "a log of G-NetTrack",
        frozenset({"operatorname", "networktech", "level", "qual"}),
        {
            "download": KnownColumn(("testdownlink", "dlbitrate"), "kbps"),
            "upload": KnownColumn(("testuplink", "ulbitrate"), "kbps"),
            "latency": KnownColumn(("pingavg",), "ms"),
            # RSRP in LTE and NR, RSCP in UMTS, RxLev in GSM.
            "signal": KnownColumn(("level",), "dBm"),
        },
    ),
    KnownExport(
        "an export of the Speedtest app",
        frozenset(
            {"date", "conntype", "lat", "lon", "download", "upload", "latency", "servername"}
        ),
        {
            "download": KnownColumn(("download",), "kbps"),
            "upload": KnownColumn(("upload",), "kbps"),
            "latency": KnownColumn(("latency",), "ms"),
        },
    ),
    KnownExport(
        "a table of M-Lab's NDT with the throughput of downloads",
        frozenset({"ameanthroughputmbps"}),
        {"download": KnownColumn(("ameanthroughputmbps",), "Mbps")},
    ),
)
"""The exports whose columns geogp knows."""


LONGEST_NAME = 100
"""Most characters of a usual name with its unit."""


def plain(name: str) -> str:
    """Return a name in small letters, without accents and without signs other than a-z and 0-9.

    Examples
    --------
    >>> plain("client.Geo.Latitude"), plain("Tecnología"), plain("Download (Mbps)")
    ('clientgeolatitude', 'tecnologia', 'downloadmbps')
    """
    return re.sub(r"[^a-z0-9]+", "", unicodedata.normalize("NFKD", name).lower())


def known_export(names: Collection[str]) -> KnownExport | None:
    """Return the export that has these columns, if it is one of `EXPORTS`."""
    plain_names = set(map(plain, names))
    return next((export for export in EXPORTS if export.needs <= plain_names), None)


def role_of(name: str) -> str | None:
    """Return what a column with a usual name holds, where the name may end with a unit."""
    return next((role for role in USUAL if _is_usual(role, name)), None)


def _is_usual(role: str, name: str) -> bool:
    if len(name) > LONGEST_NAME:
        return False
    text = name
    if role in SPEEDS:
        text = speed_unit(name).name
    elif role == "latency":
        text = latency_unit(name).name
    elif role in SIGNALS:
        text = signal_unit(name).name
    elif role in {"time", "date"}:
        text = re.sub(r"[\s_.(\[]*(utc|gmt|local)[\s)\]]*$", "", name, flags=re.IGNORECASE)
    elif role in {"latitude", "longitude"}:
        text = re.sub(
            r"[\s_.(\[]*(deg(rees?)?|°|dd|wgs ?84)[\s)\]]*$", "", name, flags=re.IGNORECASE
        )
    return plain(text) in USUAL[role]


def _nested(names: Sequence[str], role: str) -> list[str]:
    """Return columns whose last part is a usual name, such as ``location.lat``, of no server."""
    parts = [name.rpartition(".") for name in names if "." in name]
    return [
        f"{parent}.{name}"
        for parent, _, name in parts
        if _is_usual(role, name) and not OTHER_PLACES & {*re.findall(r"[a-z]+", parent.lower())}
    ]


def _usual(names: Sequence[str], role: str) -> list[str]:
    """Return the columns with a usual name, or else those whose last part is a usual name."""
    return [name for name in names if _is_usual(role, name)] or _nested(names, role)


def find_columns(
    names: Sequence[str], given: Mapping[str, str], needed: Sequence[str], what: str
) -> dict[str, str]:
    """Return the name of each known column: the user's choice, or a column with a usual name.

    `names` are the columns of the file `what`, and `given` is as in `named_columns`. Raises
    RequestError if the file has no column in `given`. Raises DataError if a column in `needed` is
    missing, or if several columns have usual names.
    """
    listed = named(names)
    for role, name in given.items():
        if names.count(name) != 1:
            many = "no column" if name not in names else "several columns"
            raise RequestError(
                f"{what} has {many} {quoted(name)}, which --columns names for {role}; its columns "
                f"are {listed}."
            )
    found = dict(given)
    export = known_export(names)
    for role in [role for role in USUAL if role not in given]:
        usual = _usual(names, role)
        if export is not None and role in export.columns:
            best = export.columns[role].names
            own = sorted(
                (name for name in names if plain(name) in best),
                key=lambda one: best.index(plain(one)),
            )
            usual = list(dict.fromkeys([*own[:1], *usual]))
        if len(usual) > 1 and role in needed:
            raise DataError(
                f"{what} has several columns for {role}: {named(usual)}. Choose one with "
                f"--columns {role}=NAME."
            )
        if len(usual) == 1:
            found[role] = usual[0]
    absent = [role for role in needed if role not in found]
    if absent:
        raise DataError(_absent(absent, found, export, f"{what} has no column for", listed))
    return found


SUCCESS = (
    "Or say from which download in Mbps on a test succeeded, such as --at-least 5: tests without a "
    "download then failed."
)
"""How to map successes of a file without a column of them."""


def _absent(
    absent: Sequence[str],
    found: Mapping[str, str],
    export: KnownExport | None,
    begin: str,
    listed: str,
) -> str:
    """Return the message about missing columns."""
    hint = f"Name the columns with --columns {','.join(f'{role}=NAME' for role in absent)}."
    for role in absent:
        other = _OTHER_SPEED.get(role, "")
        if other in found:
            known = (
                f", as this is {export.name}"
                if export is not None and other in export.columns
                else ""
            )
            hint += (
                f" The column {shown(found[other])} seems to hold the {other}{known}; if it holds "
                f"the {role}, say so with --columns {role}={found[other]}."
            )
        if role in {*SPEEDS, "latency", *SIGNALS}:
            hint += _other_targets(found)
        if role == "success":
            hint += f" {SUCCESS}"
    if "time" in absent:
        hint += " If all rows are of one quarter, give it with --at-quarter 2023Q4."
    return f"{begin} {' and '.join(absent)}; its columns are {listed}. {hint}"


def signal_in(names: Sequence[str], given: Mapping[str, str], what: str) -> str:
    """Return the kind of signal of which a file has a column: one of `SIGNALS`.

    `names`, `given` and `what` are as in `find_columns`. Without any such column, this is
    ``signal``. Raises DataError if there are columns of several kinds, and `given` has not one.
    """
    columns = {kind: given[kind] for kind in SIGNALS if kind in given}
    if not columns:
        export = known_export(names)
        known = {} if export is None else export.columns
        for kind in SIGNALS:
            of_export = known[kind].names if kind in known else ()
            found = _usual(names, kind) + [name for name in names if plain(name) in of_export]
            if found:
                columns[kind] = found[0]
    if len(columns) > 1:
        raise DataError(
            f"{what} has columns of several signals: {named(columns.values())}. Choose one with "
            f"{' or '.join(f'--columns {kind}={name}' for kind, name in columns.items())}."
        )
    return next(iter(columns), SIGNALS[-1])


def _other_targets(found: Mapping[str, str]) -> str:
    """Return a sentence about what geogp maps, and about a signal that a file has instead."""
    signals = [role for role in SIGNALS if role in found]
    if signals:
        return (
            f" The column {shown(found[signals[0]])} seems to hold a signal: map it with --target "
            f"{signals[0]}."
        )
    return " geogp maps download, upload, latency, tests and signal (RSRP, RSRQ, SINR, RSSI)."


class UnitText(NamedTuple):
    """A column's name without its unit, and the unit: None without a unit, or `AMBIGUOUS`."""

    name: str
    unit: str | None


def speed_unit(text: str) -> UnitText:
    """Return a name without the unit of speed at its end, and the unit, a key of `KBPS`.

    A small b means bits, and a capital B means bytes. The letter says nothing in a unit that has
    only capital letters, such as ``MBPS``, nor in ``mb/s``, so these units are ambiguous; ``mbps``
    always means megabits.

    Examples
    --------
    >>> speed_unit("avg_d_kbps"), speed_unit("Download (MBps)")
    (UnitText(name='avg_d', unit='kbps'), UnitText(name='Download', unit='MB/s'))
    >>> speed_unit("DOWNLOAD_MBPS").unit, speed_unit("download_bytes").unit
    ('b or B', None)
    """
    match = _SPEED.search(text, max(0, len(text) - LONGEST_UNIT))
    if match is None:
        return UnitText(text, None)
    what, per = match["what"], match["per"] or ""
    prefix = (match["prefix"] or "")[:1].lower().replace("m", "M").replace("g", "G")
    spelled = len(what) > 1
    glued = text[: match.start()][-1:].isalpha() and match[0][:1].islower()
    if glued and not _SPEED_WORDS.search(text[: match.start()]):
        return UnitText(text, AMBIGUOUS)  # such as downlinkbps
    if not per and not (spelled and prefix and what.lower().startswith("bit")):
        return UnitText(text, None)  # an amount, such as the bytes of a test
    name = text[: match.start()]
    if spelled:
        letter = "B" if what.lower().startswith("byte") else "b"
    elif (what == "B" and per.isupper()) or (
        what == "b" and prefix and "/" in per and match["prefix"].islower()
    ):
        return UnitText(name, AMBIGUOUS)
    else:
        letter = what
    return UnitText(name, f"{prefix}{letter}{'/s' if letter == 'B' else 'ps'}")


def signal_unit(text: str) -> UnitText:
    """Return a name without the unit of decibels at its end, and the unit, a key of `DECIBELS`.

    Examples
    --------
    >>> signal_unit("rsrp_dbm"), signal_unit("SINR (dB)").unit, signal_unit("rsrp").unit
    (UnitText(name='rsrp', unit='dBm'), 'dB', None)
    """
    match = _DECIBEL.search(text, max(0, len(text) - LONGEST_UNIT))
    if match is None:
        return UnitText(text, None)
    return UnitText(text[: match.start()], {"dbm": "dBm", "db": "dB"}[match["unit"].lower()])


def latency_unit(text: str) -> UnitText:
    """Return a name without the unit of time at its end, and the unit, a key of `MS`.

    Examples
    --------
    >>> latency_unit("ping_ms"), latency_unit("Latency (s)"), latency_unit("pings").unit
    (UnitText(name='ping', unit='ms'), UnitText(name='Latency', unit='s'), None)
    """
    match = _TIME.search(text, max(0, len(text) - LONGEST_UNIT))
    if match is None:
        return UnitText(text, None)
    short = (match["short"] or "s").lower()
    unit = {"m": "ms", "s": "s"}.get(short[0], "us")
    return UnitText(text[: match.start()], unit)
