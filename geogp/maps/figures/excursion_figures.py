"""Rasters and a figure of joint regions, where all tiles together meet (or miss) a threshold."""

from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from geogp.files import write_bytes
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.tiles.thresholds import Threshold
from geogp.geodata.tiles.tiers import Tier
from geogp.maps.figures.figure_layout import LEFT, draw_image, map_sheet
from geogp.maps.frame import Frame
from geogp.maps.qgis_styles import write_styles
from geogp.maps.rasters import write_geotiffs
from geogp.models.joint.excursions import JointRegion

COLOURS = {"met": "#0072B2", "undecided": "#bdbdbd", "short": "#D55E00"}
"""Colours that colour-blind readers can distinguish: blue, grey and vermilion."""


def write_excursions(
    folder: Path,
    region: Region,
    tiles: Tiles,
    found: tuple[JointRegion, JointRegion],
    threshold: Threshold | Tier,
    *,
    tag: str,
    subtitle: str,
    about_data: dict[str, str],
) -> list[Path]:
    """Write the excursion functions as GeoTIFFs, and both joint regions as one PNG figure.

    `found` has the region where the threshold is met, then the region where it is not met. The
    files are ``excursion_<tag>.tif`` (met), ``excursion_short_<tag>.tif`` (not met) and
    ``excursion_<tag>.png``. Raises DataError if the number of values differs from the number of
    tiles, and OutputError if a file cannot be written. `about_data` has the attribution and the
    licence of the data, which are attributes of the rasters.
    """
    frame = Frame.of_tiles(tiles)
    variables = {}
    for name, joint_region, words in (
        (f"excursion_{tag}", found[0], threshold.met),
        (f"excursion_short_{tag}", found[1], threshold.missed),
    ):
        raster = frame.place(tiles, joint_region.excursion.astype(np.float32), np.nan)
        label = f"for regions with this tile: largest probability that all tiles are {words}"
        variables[name] = (("y", "x"), raster, {"long_name": label, "units": "1"})
    attributes = {"zoom": tiles.zoom, "region_code": region.code, "target": threshold.target}
    grid = xr.Dataset(
        variables, coords={"x": frame.x, "y": frame.y}, attrs={**attributes, **about_data}
    )
    paths = write_geotiffs(grid, folder) + write_styles(grid, folder)
    attribution = about_data.get("attribution", "")
    picture = excursion_figure(
        region, tiles, found, threshold, subtitle=subtitle, attribution=attribution
    )
    paths.append(folder / f"excursion_{tag}.png")
    write_bytes(paths[-1], picture)
    return paths


def excursion_figure(
    region: Region,
    tiles: Tiles,
    found: tuple[JointRegion, JointRegion],
    threshold: Threshold | Tier,
    *,
    subtitle: str,
    attribution: str = "",
) -> bytes:
    """Return a PNG map of where a threshold is certainly met, certainly not met, or undecided.

    Raises DataError if the number of values differs from the number of tiles.
    """
    met, short = found
    kinds = np.where(met.inside, 0, np.where(short.inside, 2, 1))
    frame = Frame.of_tiles(tiles)
    below = 1.25
    # Outlines of towns would look like outlines of joint regions.
    plain = region.with_strata(None)
    canvas, axes, _, height, _ = map_sheet(plain, frame, below=below, least=5.2)
    colours = np.array([(*to_rgb(colour), 1.0) for colour in COLOURS.values()] + [(0, 0, 0, 0)])
    draw_image(axes, frame, colours[frame.place(tiles, kinds, len(COLOURS)).astype(int)])
    level = f"{100 * found[0].level:g} %"
    words = (
        f"{threshold.met} at all these tiles, with probability {level}",
        "undecided",
        f"{threshold.missed} at all these tiles, with probability {level}",
    )
    counts = np.bincount(kinds, minlength=3)
    keys = [
        Patch(fc=colour, ec="#888888", lw=0.5, label=f"{text} ({count:,} tiles)")
        for colour, text, count in zip(COLOURS.values(), words, counts, strict=True)
    ]
    canvas.legend(keys, LEFT, 0.85, fontsize=8.5)
    title = f"Where the level is certainly, or certainly not, {threshold.met}"
    canvas.heading(below + height + 0.17, title, subtitle)
    return canvas.png(attribution)
