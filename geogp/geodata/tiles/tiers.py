"""Tiers: what a service must reach in several targets together, such as 100/20 Mbps and 100 ms."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geogp.arguments import value_shown
from geogp.errors import RequestError, named
from geogp.geodata.tiles.targets import MOBILE, SPEED_TIERS, TOGETHER, find_target, target_names
from geogp.geodata.tiles.thresholds import DEFAULTS, FIXED_DEFAULTS, Threshold, thresholds_of

BROADBAND = "100/20"
"""What the FCC calls broadband and BEAD asks for; see `SPEED_TIERS`."""

MAX_LATENCY_MS = 100
"""The latency that BEAD and the 5G Fund allow; see `thresholds.DEFAULTS`."""

_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms)?", re.IGNORECASE)


@dataclass(frozen=True)
class Tier:
    """A threshold of each of several targets, which hold together.

    Examples
    --------
    >>> tier = parse_tier("100/20/100ms", ("download", "upload", "latency"))
    >>> tier.name, tier.variable
    ('100/20/100ms', 'p_tier_100_20_100ms')
    >>> print(tier.met)
    at least 100/20 Mbps and at most 100 ms
    >>> print(parse_tier("7/1", ("download", "upload")).definition)
    download speed of at least 7 Mbps and upload speed of at least 1 Mbps
    """

    thresholds: tuple[Threshold, ...]

    @property
    def name(self) -> str:
        """The tier as it is written: ``7/1`` or ``100/20/100ms``."""
        return "/".join(one.number + ("ms" if one.at_most else "") for one in self.thresholds)

    @property
    def value(self) -> str:
        """The tier in the files of an answer, as a threshold has its value."""
        return self.name

    @property
    def target(self) -> str:
        """The targets of the tier, joined by commas."""
        return ",".join(one.target for one in self.thresholds)

    @property
    def tag(self) -> str:
        """The tier in names of files and variables, such as ``100_20_100ms``."""
        return re.sub(r"\W", "_", self.name)

    @property
    def variable(self) -> str:
        """Name of the probability in files, such as ``p_tier_7_1``."""
        return f"p_tier_{self.tag}"

    @property
    def met(self) -> str:
        """Words for meeting the tier: ``at least 7/1 Mbps``."""
        return self._words("at least {} Mbps", " and at most {} ms")

    @property
    def missed(self) -> str:
        """Words for missing the tier: ``below 7/1 Mbps``."""
        return self._words("below {} Mbps", " or above {} ms")

    def _words(self, speed: str, latency: str) -> str:
        speeds = "/".join(one.number for one in self.thresholds if not one.at_most)
        times = [one.number for one in self.thresholds if one.at_most]
        return speed.format(speeds) + "".join(latency.format(number) for number in times)

    @property
    def definition(self) -> str:
        """What the tier asks of each target: ``download speed of at least 7 Mbps and ...``."""
        parts = [
            f"{one.target}{'' if one.at_most else ' speed'} of {one.met}" for one in self.thresholds
        ]
        return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)

    @property
    def limits(self) -> dict[str, dict[str, float]]:
        """The arguments of `JointPrediction.probability`, on the scale of the models."""
        found: dict[str, dict[str, float]] = {"at_least": {}, "at_most": {}}
        for one in self.thresholds:
            found["at_most" if one.at_most else "at_least"][one.target] = one.modelled
        return found

    def holds(self, y: NDArray[np.float64], targets: Sequence[str]) -> NDArray[np.bool_]:
        """Return whether values of the models, (..., t), meet the tier, (...)."""
        met = [one.holds(y[..., targets.index(one.target)]) for one in self.thresholds]
        return np.asarray(np.logical_and.reduce(met))

    def probability(self, prediction: Any) -> NDArray[np.float64]:
        """Return the probability that each of n joint predictions meets the tier, (n,)."""
        return np.asarray(prediction.probability(**self.limits))


def parse_tier(text: str, targets: Sequence[str]) -> Tier:
    """Return the tier of a text, in which plain numbers are speeds, and one in ms is a latency.

    `targets` are those of the map. A tier has a speed for each of download and upload among them,
    in this order, and may have a latency.

    Raises RequestError if the text is not a tier of these targets.
    """
    speeds = [name for name in TOGETHER if name in targets and not find_target(name).low_is_good]
    latencies = [name for name in TOGETHER if name in targets and name not in speeds]
    form = "7/1" if len(speeds) > 1 else "7"
    form += f", or {form}/100ms" if latencies else ""
    parts = [_PART.fullmatch(part.strip()) for part in text.split("/")]
    if not all(parts):
        raise RequestError(f"expected a tier like 7/1 or 100/20/100ms, found {value_shown(text)}.")
    found = [part for part in parts if part is not None]
    plain, timed = ([part[1] for part in found if bool(part[2]) == ms] for ms in (False, True))
    if timed and not latencies:
        raise RequestError(
            f"the tier {text} has a latency, but the map has the targets {named(targets)}. Add "
            "latency to --target, or leave it out of the tier."
        )
    if len(plain) != len(speeds) or len(timed) > 1 or (timed and not found[-1][2]):
        raise RequestError(
            f"expected a tier of {named(targets)} such as {form} ({'/'.join(speeds)} in Mbps), "
            f"found {value_shown(text)}."
        )
    pairs = [*zip(speeds, plain, strict=True), *zip(latencies, timed, strict=False)]
    return Tier(tuple(thresholds_of(name, [float(number)])[0] for name, number in pairs))


def tiers_of(
    target: str, given: Iterable[str] | None = None, service: str = MOBILE
) -> tuple[Tier, ...]:
    """Return the tiers of a map of several targets: `given`, or those of the service.

    The default tiers are those of `SPEED_TIERS` and broadband; with a latency, also broadband with
    100 ms. Targets without both speeds have the default thresholds of the speed, with 100 ms. A map
    of one target has no tiers.

    Raises RequestError if a tier is not one of the targets, or is given twice, or if `given` has
    tiers of a map of one target.
    """
    targets = target_names(target)
    if len(targets) == 1:
        if given is not None:
            raise RequestError(
                f"--tier is for several targets, such as --target download,upload, found --target "
                f"{target}. Use --threshold for one target."
            )
        return ()
    tiers = [
        parse_tier(text, targets)
        for text in (_defaults(targets, service) if given is None else given)
    ]
    names = [tier.name for tier in tiers]
    if len(set(names)) < len(names):
        raise RequestError(f"expected each tier once, found {named(names)}.")
    return tuple(tiers)


def _defaults(targets: Sequence[str], service: str) -> list[str]:
    """Return the default tiers of targets, the easiest first."""
    end = f"/{MAX_LATENCY_MS}ms" if "latency" in targets else ""
    if "download" in targets and "upload" in targets:
        known = [name for name, speeds in SPEED_TIERS[service].items() if any(speeds)]
        known += [BROADBAND] if BROADBAND not in known else []
        return [*known, *([BROADBAND + end] if end else [])]
    speed = next(name for name in targets if name != "latency")
    values = (DEFAULTS if service == MOBILE else DEFAULTS | FIXED_DEFAULTS)[speed]
    return [f"{value:g}{end}" for value in values]
