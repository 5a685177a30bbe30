"""The layers of each provider in the grid of a run by provider."""

import re
from collections.abc import Mapping

import xarray as xr

from geogp.maps.target_quantities import quantity_of
from geogp.maps.views import FAR, PROVIDER

LONGEST_TAG = 40


def with_providers(grid: xr.Dataset, grids: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Return a grid with median, 95 % interval, tests and far tiles of each provider.

    `grids` are the grids of the providers, by name. The names of variables end with the tag of
    their provider, such as ``median_mbps_north`` and ``far_north``.
    """
    end = quantity_of(str(grid.attrs["target"])).suffix
    for provider, tag in provider_tags(tuple(grids)).items():
        for name in (f"median_{end}", f"lower_{end}", f"upper_{end}", "tests", "far"):
            variable = grids[provider][name].copy()
            attributes = {
                "long_name": f"{variable.attrs['long_name']}, {provider}",
                PROVIDER: provider,
            }
            variable.attrs |= attributes | (
                {FAR: f"{FAR}_{tag}"} if name == f"median_{end}" else {}
            )
            grid[f"{name}_{tag}"] = variable
    return grid


def provider_tags(names: tuple[str, ...]) -> dict[str, str]:
    """Return a short name of small letters, digits and ``_`` for each provider, all different.

    Examples
    --------
    >>> provider_tags(("North Telecom", "AT&T", "AT T"))
    {'North Telecom': 'north_telecom', 'AT&T': 'at_t', 'AT T': 'at_t_2'}
    """
    tags: dict[str, str] = {}
    for name in names:
        tag = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:LONGEST_TAG] or "provider"
        others = (f"{tag}_{number}" for number in range(2, len(names) + 2))
        taken = set(tags.values())
        tags[name] = next(text for text in (tag, *others) if text not in taken)
    return tags
