"""The layers of each provider in the grid of a run by provider."""

import re
from collections.abc import Mapping

import xarray as xr

from geogp.maps.grid import quantity_of
from geogp.maps.views import FAR, PROVIDER


def with_providers(grid: xr.Dataset, grids: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Return a grid with median, 95 % interval, tests and far tiles of each provider.

    `grids` are the grids of the providers, by name. The names of variables end with the tag of
    their provider, such as ``median_mbps_north`` and ``far_north``.
    """
    end = quantity_of(str(grid.attrs["target"])).suffix
    for provider, tag in provider_tags(tuple(grids)).items():
        for name in (f"median_{end}", f"lower_{end}", f"upper_{end}", "tests", "far"):
            one = grids[provider][name].copy()
            about = {"long_name": f"{one.attrs['long_name']}, {provider}", PROVIDER: provider}
            one.attrs |= about | ({FAR: f"{FAR}_{tag}"} if name == f"median_{end}" else {})
            grid[f"{name}_{tag}"] = one
    return grid


def provider_tags(names: tuple[str, ...]) -> dict[str, str]:
    """Return a short name of small letters, digits and ``_`` for each provider, all different.

    Examples
    --------
    >>> provider_tags(("North Telecom", "AT&T", "AT T"))
    {'North Telecom': 'north_telecom', 'AT&T': 'at_t', 'AT T': 'at_t_3'}
    """
    found: dict[str, str] = {}
    for number, name in enumerate(names, start=1):
        tag = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or str(number)
        found[name] = f"{tag}_{number}" if tag in found.values() else tag
    return found
