"""Joint regions of a threshold as rasters and a figure."""

from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.files import write_bytes
from geogp.geodata.places.region import Region, Tiles
from geogp.geodata.tiles.thresholds import Threshold
from geogp.maps.figures.figure_layout import Canvas, aspect_of, draw_base
from geogp.maps.frame import Frame
from geogp.maps.rasters import write_geotiff
from geogp.models.joint.excursions import JointRegion

COLOURS = {"met": "#0072B2", "undecided": "#bdbdbd", "short": "#D55E00"}
"""Blue, grey and vermilion, which colour-blind readers tell apart."""

_WIDE = 1.15


def write_excursions(
    folder: Path,
    region: Region,
    tiles: Tiles,
    found: tuple[JointRegion, JointRegion],
    threshold: Threshold,
    *,
    subtitle: str,
) -> list[Path]:
    """Write the excursion functions as GeoTIFFs, and both joint regions as one PNG figure.

    Parameters
    ----------
    folder
        Where ``excursion_7_mbps.tif`` (the threshold is met), ``excursion_short_7_mbps.tif`` (it
        is not) and ``excursion_7_mbps.png`` go.
    region, tiles
        What is mapped.
    found
        Where the threshold is met, and where not.
    threshold
        The threshold.
    subtitle
        Where, when and what.

    Raises
    ------
    DataError
        There are not as many values as tiles.
    OutputError
        A file cannot be written.
    """
    frame, tag = Frame.of_tiles(tiles), threshold.tag
    variables = {}
    for name, one, words in (
        (f"excursion_{tag}", found[0], threshold.met),
        (f"excursion_short_{tag}", found[1], threshold.missed),
    ):
        raster = frame.place(tiles, one.excursion.astype(np.float32), np.nan)
        label = f"largest level of a region that is {words} everywhere at once and holds the tile"
        variables[name] = (("y", "x"), raster, {"long_name": label, "units": "1"})
    attributes = {"zoom": tiles.zoom, "region_code": region.code, "target": threshold.target}
    grid = xr.Dataset(variables, coords={"x": frame.x, "y": frame.y}, attrs=attributes)
    paths = [folder / f"{name}.tif" for name in variables]
    for name, path in zip(variables, paths, strict=True):
        write_geotiff(grid, name, path)
    picture = excursion_figure(region, tiles, found, threshold, subtitle=subtitle)
    paths.append(folder / f"excursion_{tag}.png")
    write_bytes(paths[-1], picture)
    return paths


def classes_of(found: tuple[JointRegion, JointRegion]) -> NDArray[np.int64]:
    """Return 0 for tiles where a threshold is met, 1 for undecided, 2 where not, jointly, (n,)."""
    met, short = found
    return np.where(met.inside, 0, np.where(short.inside, 2, 1))


def excursion_figure(
    region: Region,
    tiles: Tiles,
    found: tuple[JointRegion, JointRegion],
    threshold: Threshold,
    *,
    subtitle: str,
) -> bytes:
    """Draw where a threshold is met for sure, where not, and what lies between.

    Returns
    -------
    bytes
        A PNG file.

    Raises
    ------
    DataError
        There are not as many values as tiles.
    """
    kinds = classes_of(found)
    if len(kinds) != len(tiles):
        raise DataError(f"expected a class for each of {len(tiles)} tiles, found {len(kinds)}.")
    frame = Frame.of_tiles(tiles)
    aspect = aspect_of(frame)
    width, height = (8.0, 8.0 / aspect) if aspect >= _WIDE else (6.6 * aspect, 6.6)
    left, below = 0.75, 1.25
    outer = max(width, 5.2)
    canvas = Canvas.of_size(left + outer + 0.3, below + height + 0.75)
    axes = canvas.axes(left + (outer - width) / 2, below, width, height)
    # Outlines of towns would look like edges of regions.
    draw_base(axes, region.with_strata(None), frame)
    west, south, east, north = frame.bounds_m
    colours = np.array([(*to_rgb(colour), 1.0) for colour in COLOURS.values()] + [(0, 0, 0, 0)])
    raster = frame.place(tiles, kinds, len(COLOURS))
    axes.imshow(
        colours[raster.astype(int)],
        extent=(west, east, south, north),
        origin="upper",
        interpolation="nearest",
        zorder=1,
    )
    level = f"{100 * found[0].level:g} %"
    words = (
        f"{threshold.met} everywhere here, {level} together",
        "undecided",
        f"{threshold.missed} everywhere here, {level} together",
    )
    counts = np.bincount(kinds, minlength=3)
    keys = [
        Patch(fc=colour, ec="#888888", lw=0.5, label=f"{text} ({count:,} tiles)")
        for colour, text, count in zip(COLOURS.values(), words, counts, strict=True)
    ]
    canvas.figure.legend(
        handles=keys,
        loc="upper left",
        bbox_to_anchor=(left / canvas.width, 0.85 / canvas.height),
        borderaxespad=0,
        fontsize=8.5,
        frameon=False,
    )
    title = f"Where the level is {threshold.met}, and where for sure not"
    canvas.text(left, below + height + 0.42, title, fontsize=12, fontweight="bold")
    canvas.text(left, below + height + 0.17, subtitle, fontsize=9.5)
    return canvas.png()
