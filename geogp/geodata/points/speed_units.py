"""Units of speeds and latencies, as column names, rows of units and cells state them."""

import re
from typing import NamedTuple

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

LONGEST = 30
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
    found = _SPEED.search(text, max(0, len(text) - LONGEST))
    if found is None:
        return UnitText(text, None)
    what, per = found["what"], found["per"] or ""
    prefix = (found["prefix"] or "")[:1].lower().replace("m", "M").replace("g", "G")
    spelled = len(what) > 1
    glued = text[: found.start()][-1:].isalpha() and found[0][:1].islower()
    if glued and not _SPEED_WORDS.search(text[: found.start()]):
        return UnitText(text, AMBIGUOUS)  # such as downlinkbps
    if not per and not (spelled and prefix and what.lower().startswith("bit")):
        return UnitText(text, None)  # an amount, such as the bytes of a test
    name = text[: found.start()]
    if spelled:
        letter = "B" if what.lower().startswith("byte") else "b"
    elif (what == "B" and per.isupper()) or (
        what == "b" and prefix and "/" in per and found["prefix"].islower()
    ):
        return UnitText(name, AMBIGUOUS)
    else:
        letter = what
    return UnitText(name, f"{prefix}{letter}{'/s' if letter == 'B' else 'ps'}")


def latency_unit(text: str) -> UnitText:
    """Return a name without the unit of time at its end, and the unit, a key of `MS`.

    Examples
    --------
    >>> latency_unit("ping_ms"), latency_unit("Latency (s)"), latency_unit("pings").unit
    (UnitText(name='ping', unit='ms'), UnitText(name='Latency', unit='s'), None)
    """
    found = _TIME.search(text, max(0, len(text) - LONGEST))
    if found is None:
        return UnitText(text, None)
    short = (found["short"] or "s").lower()
    unit = {"m": "ms", "s": "s"}.get(short[0], "us")
    return UnitText(text[: found.start()], unit)
