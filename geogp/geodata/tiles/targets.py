"""The targets and services of geogp, by name, and the tiers of download and upload speed.

A target says here which values it has: their unit, which also tells the scale of the model
(`geogp.value_scales`), whether high values are good, and whether Ookla's tiles have them.
"""

from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geogp.choices import AVERAGE, CLASS, COUNT, one_of
from geogp.errors import DataError, RequestError, named
from geogp.value_scales import ValueScale, scale_of

MOBILE, FIXED = SERVICES = ("mobile", "fixed")
"""The two kinds of networks for which Ookla publishes tiles."""

TIER, FIXED_TIER = "tier", "fixed-tier"
"""The targets of tiers of the mobile and of the fixed service."""

SPEED_TIERS: dict[str, dict[str, tuple[float, float]]] = {
    "mobile": {
        "below 5/1": (0.0, 0.0),
        "5/1": (5.0, 1.0),
        "7/1": (7.0, 1.0),
        "35/3": (35.0, 3.0),
    },
    "fixed": {"below 25/3": (0.0, 0.0), "25/3": (25.0, 3.0), "100/20": (100.0, 20.0)},
}
"""Download and upload speed, in Mbps, that a tile of each tier reaches at least, by service.

Mobile: the tiers of the FCC's National Broadband Map, 5/1 for 4G LTE, 7/1 and 35/3 for 5G (the 5G
Fund pays for 35/3 and 7/1: FCC 24-89). Fixed: below 25/3 a location is unserved, and below 100/20
underserved (BEAD, NTIA's notice of May 2022); the FCC calls 100/20 broadband since March 2024 (FCC
24-27), and called 25/3 so since 2015.
"""


@dataclass(frozen=True)
class TargetColumn:
    """The columns of a target in Ookla's files, and its unit.

    `columns` contain averages over the tests of a tile, or the number of tests. Their values
    divided by `divisor` have the unit `unit`, such as Mbps instead of kbps. Models use log10 of
    speed and latency, plain decibels and shares (see `scale`), and the plain number of tests. Names
    of variables end in `suffix`. A `counted` target is 0 in tiles that Ookla's files omit. A target
    with `tiers_of` a service is the number of one of its tiers, from 0; it is computed from two
    speeds. If `low_is_good`, low values are the good ones. Ookla's files lack a target that is not
    `in_tiles`: it is only in files of a user's own tests.

    Several targets of one map have the properties of the first, the columns of all, and the
    `others` after the first.
    """

    columns: tuple[str, ...]
    divisor: float
    unit: str
    suffix: str
    counted: bool = False
    tiers_of: str = ""
    low_is_good: bool = False
    in_tiles: bool = True
    others: tuple["TargetColumn", ...] = ()

    @property
    def divisors(self) -> tuple[float, ...]:
        """The divisor of each column."""
        own = (self.divisor,) * (len(self.columns) - len(self.others))
        return own + tuple(one.divisor for one in self.others)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, such as tiers, in increasing order; none for a number."""
        return tuple(SPEED_TIERS.get(self.tiers_of, ()))

    @property
    def scale(self) -> ValueScale:
        """The scale on which models see the values of an average."""
        return scale_of(self.unit)

    @property
    def is_share(self) -> bool:
        """Whether values are shares of tests, whose map shows their probability."""
        return self.scale.most is not None and not self.classes

    @property
    def kind(self) -> str:
        """The kind of the target: average, count or class."""
        if self.classes:
            return CLASS
        return COUNT if self.counted else AVERAGE

    def modelled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the target of models, (n,), from values in the unit `unit`, (columns, n)."""
        if self.classes:
            known = np.isfinite(values).all(0)  # rows that are left out have NaN
            codes = np.full(values.shape[1], np.nan)
            down, up = values[:, known]
            codes[known] = tier_codes(down, up, self.tiers_of)
            return codes
        return np.asarray(values[0] if self.counted else self.scale.modelled(values[0]))

    def modelled_together(self, values: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Return several targets of models, (n, t), from values (t, n); None for one target."""
        if not self.others:
            return None
        parts = zip((self, *self.others), values, strict=True)
        return np.column_stack([one.scale.modelled(value) for one, value in parts])


TARGETS: dict[str, TargetColumn] = {
    "download": TargetColumn(("avg_d_kbps",), 1000.0, "Mbps", "mbps"),
    "upload": TargetColumn(("avg_u_kbps",), 1000.0, "Mbps", "mbps"),
    "latency": TargetColumn(("avg_lat_ms",), 1.0, "ms", "ms", low_is_good=True),
    "tests": TargetColumn(("tests",), 1.0, "tests", "tests", counted=True),
    **{
        name: TargetColumn(("avg_d_kbps", "avg_u_kbps"), 1000.0, "tier", "tier", tiers_of=service)
        for name, service in zip((TIER, FIXED_TIER), SERVICES, strict=True)
    },
    "signal": TargetColumn(("signal_dbm",), 1.0, "dBm", "dbm", in_tiles=False),
    "rsrp": TargetColumn(("rsrp_dbm",), 1.0, "dBm", "dbm", in_tiles=False),
    "rsrq": TargetColumn(("rsrq_db",), 1.0, "dB", "db", in_tiles=False),
    "sinr": TargetColumn(("sinr_db",), 1.0, "dB", "db", in_tiles=False),
    "rssi": TargetColumn(("rssi_dbm",), 1.0, "dBm", "dbm", in_tiles=False),
    "success": TargetColumn(("success_percent",), 1.0, "%", "percent", in_tiles=False),
}
"""Each target by its name.

``fixed-tier`` is what ``tier`` becomes for the fixed service. ``success`` is the share of tests
that succeeded.

``signal`` stands for the kind of signal that a file has: ``rsrp``, ``rsrq``, ``sinr`` or ``rssi``.
A file whose column does not say its kind keeps the target ``signal``, a level in dBm.
"""

SIGNALS = ("rsrp", "rsrq", "sinr", "rssi", "signal")
"""The targets of signals, with the kinds before the signal of an unknown kind."""


def target_of(target: str, service: str) -> str:
    """Return the target for a service: ``fixed-tier`` for ``tier`` of the fixed service.

    Raises RequestError for ``fixed-tier`` of another service.
    """
    if target == FIXED_TIER and service != FIXED:
        raise RequestError(
            f"{FIXED_TIER} has the tiers of the fixed service, found --service {service}. Choose "
            f"--target {TIER}, or --service {FIXED}."
        )
    return FIXED_TIER if (target, service) == (TIER, FIXED) else ",".join(target_names(target))


TOGETHER = ("download", "upload", "latency")
"""Targets that a map may have together."""

JOINED = tuple(
    ",".join(names)
    for count in range(2, len(TOGETHER) + 1)
    for names in permutations(TOGETHER, count)
)
"""Several targets of one map, joined by commas; the first is the one that the map shows."""


def target_names(target: str) -> tuple[str, ...]:
    """Return the names of the targets of a map, which are joined by commas.

    Examples
    --------
    >>> target_names("download,upload"), target_names("latency")
    (('download', 'upload'), ('latency',))
    """
    return tuple(name.strip() for name in target.split(","))


def find_target(name: str) -> TargetColumn:
    """Return a target by name, or several targets that are joined by commas.

    Raises RequestError if a name is unknown, occurs twice, or is no target of several.
    """
    names = target_names(name)
    for one in names:
        one_of("target", one, TARGETS)
    if len(names) == 1:
        return TARGETS[names[0]]
    if ",".join(names) not in JOINED:
        raise RequestError(
            f"expected one target, or different ones of {named(TOGETHER)} together, found {name}."
        )
    first, *others = (TARGETS[one] for one in names)
    columns = tuple(column for one in (first, *others) for column in one.columns)
    return replace(first, columns=columns, others=tuple(others))


def not_in_tiles(name: str) -> str:
    """Return the message that Ookla's tiles have no such target, and what to do."""
    tiled = [other for other, column in TARGETS.items() if column.in_tiles]
    others = named(other for other in tiled if other != FIXED_TIER)
    return (
        f"Ookla's tiles have no {name}: --target {name} maps a file of your own tests. Give the "
        f"file with --points, or map {others}."
    )


def check_in_tiles(name: str) -> None:
    """Raise RequestError if Ookla's tiles have no such target, or the name is unknown."""
    if not find_target(name).in_tiles:
        raise RequestError(not_in_tiles(name))


def speed_tiers(download: ArrayLike, upload: ArrayLike, service: str = MOBILE) -> NDArray[np.str_]:
    """Return the highest tier of a service whose two speeds each tile reaches, (n,).

    `download`, `upload`: speeds in Mbps, (n,). Raises RequestError if the service is unknown, and
    DataError if the shapes differ, or a speed is negative or not finite.

    Examples
    --------
    >>> speed_tiers([40.0, 40.0, 6.0], [5.0, 2.0, 0.5]).tolist()
    ['35/3', '7/1', 'below 5/1']
    >>> speed_tiers([400.0, 40.0], [25.0, 2.0], "fixed").tolist()
    ['100/20', 'below 25/3']
    """
    one_of("service", service, SERVICES)
    return np.array(list(SPEED_TIERS[service]))[tier_codes(download, upload, service)]


def tier_codes(download: ArrayLike, upload: ArrayLike, service: str = MOBILE) -> NDArray[np.intp]:
    """Return the number of the tier of each tile, (n,), from 0; see `speed_tiers`."""
    down, up = (np.asarray(speed, np.float64) for speed in (download, upload))
    if down.shape != up.shape or down.ndim != 1:
        raise DataError(
            f"expected a download and an upload speed of each tile, found shapes {down.shape} and "
            f"{up.shape}."
        )
    speeds = np.stack([down, up])
    if not (np.isfinite(speeds) & (speeds >= 0)).all():
        raise DataError("expected speeds in Mbps of 0 or more, found others.")
    # The tiers are in increasing order, so the number of reached tiers says which one is highest.
    reached = [(down >= d) & (up >= u) for d, u in SPEED_TIERS[service].values()]
    return np.asarray(np.sum(reached, 0) - 1, np.intp)
