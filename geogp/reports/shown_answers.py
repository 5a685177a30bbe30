"""The answers of later commands in a run folder, as tables for its report and layers of its map.

`geogp areas`, `change`, `exceedance` and `next` write a JSON file about each answer. `read_answers`
turns these files into tables; `pages_beside` puts tables and layers into the pages.
"""

import base64
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from glob import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from geogp.errors import DataError
from geogp.files import read_json, read_text
from geogp.maps.page.packing import json_text
from geogp.maps.target_quantities import quantity_of
from geogp.records.run_record import RunRecord
from geogp.reports.answer_layers import answer_layers, level_column
from geogp.reports.rendering import environment
from geogp.reports.words import MISSING

PAGES = ("report.html", "report.md", "map.html")
"""Pages of a run that show answers, or link to them."""

_WIDEST = 1000
"""Largest width of a picture in a page, in pixels."""

_MOST_BYTES = 200_000_000


@dataclass(frozen=True)
class ShownAnswer:
    """An answer: its title, sentences, table as texts, and names of files in the run folder.

    `mark` names the answer's part of the page, for links; `picture` is a PNG file, or empty. `told`
    are the facts of the answer; empty if the file is none.
    """

    mark: str
    title: str
    notes: list[str]
    head: list[str]
    rows: list[list[str]]
    files: list[str]
    picture: str
    told: dict[str, Any]


def read_answers(folder: Path) -> list[ShownAnswer]:
    """Return the answers in a run folder; a file that is none has a note in place of a table."""
    found = []
    for pattern, show in _KINDS.items():
        for path in sorted(folder.glob(pattern)):
            try:
                told = read_json(path)
                title, columns, rows = show(told)
                table = [
                    [form.format_map(_cells(row)) for form in columns.values()] for row in rows
                ]
                notes = [str(one) for one in (*told.get("notes", []), *told.get("warnings", []))]
            except (DataError, LookupError, ArithmeticError, ValueError, TypeError, AttributeError):
                note = "This file is not an answer that geogp wrote, so it has no table here."
                found.append(ShownAnswer(path.stem, path.name, [note], [], [], [path.name], "", {}))
                continue
            stem, picture = path.stem, path.with_suffix(".png").name
            picture = picture.replace("exceedance_", "excursion_")
            at, starts = _RASTERS.get(pattern, (0, ()))
            end = escape("_".join(stem.split("_")[at:]))
            names = (f"{escape(stem)}[._]*", *(f"{start}_{end}.*" for start in starts))
            files = {one.name for name in names for one in folder.glob(name)}
            picture = picture if picture in files else ""
            found.append(
                ShownAnswer(stem, title, notes, list(columns), table, sorted(files), picture, told)
            )
    return found


class _Empty:
    def __format__(self, form: str) -> str:
        return MISSING


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose empty cells become dashes in any format."""
    return {name: _Empty() if value is None else value for name, value in row.items()}


def pages_beside(folder: Path, run: RunRecord, names: Iterable[str]) -> dict[str, str]:
    """Return the pages of a run folder whose text changes when they show all that lies beside them.

    A page shows the main picture of the map, links, and the answers as tables or layers, each
    between two marks. Pages of earlier versions have no marks and do not change. Raises DataError
    if a picture is damaged.
    """
    about = quantity_of(run.target)
    view = "expected" if about.counted else about.suffix if about.classes else "median"
    found = read_answers(folder)
    context: dict[str, Any] = {
        "found": found,
        "drawn": cache(lambda: answer_layers(folder, {one.mark: one.told for one in found})),
        "script": json_text,
        "subject": about.subject,
        "map_picture": view + ".png" if (folder / f"{view}.png").is_file() else "",
        "with_map": (folder / "map.html").is_file(),
        "source": lambda name: _source(folder / name),
        "address": quote,
    }
    changed = {}
    for name in {*names} & {*PAGES}:
        if not (folder / name).is_file():
            continue
        before = after = read_text(folder / name, _MOST_BYTES)
        template = environment().get_template(f"beside.{name.rpartition('.')[2]}.j2")
        made = template.make_module(context)
        for part in ("picture", "answers", "links", "layers"):
            start, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->"
            head, opened, rest = after.partition(start)
            _, closed, tail = rest.partition(end)
            if opened and closed:
                after = f"{head}{start}{getattr(made, part)()}{end}{tail}"
        if after != before:
            changed[name] = after
    return changed


def _source(path: Path) -> str:
    """Return a PNG file as a ``data:`` URL of a picture of few bytes."""
    stream = io.BytesIO()
    try:
        with Image.open(path, formats=["PNG"]) as image:
            small = image.convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be read as a picture ({error}). Delete it.") from error
    small.thumbnail((_WIDEST, 4 * _WIDEST))
    small.save(stream, "WEBP", quality=80)
    return "data:image/webp;base64," + base64.b64encode(stream.getvalue()).decode()


_Shown = tuple[str, dict[str, str], list[dict[str, Any]]]


def _areas(told: dict[str, Any]) -> _Shown:
    """Return the title, the formats of the columns, and the rows."""
    unit, what = told["unit"], "level" if told["for"] == "level" else "mean of measurements"
    kind, end = level_column(told["for"]), unit.lower()
    columns = {
        "area": "{area}",
        "tiles": "{tiles:,}",
        "measured": "{measured_tiles:,}",
        "far from data": "{far_share:.0%}",
        f"{what}, {unit}": f"{{{kind}_{end}:.1f}}",
        "95 % interval": f"{{{kind}_lower_{end}:.1f}} to {{{kind}_upper_{end}:.1f}}",
    }
    if told.get("weights"):
        kind, by = level_column(told["for"], told["weights"]), Path(told["weights"]).name
        columns |= {
            f"{what} by {by}, {unit}": f"{{{kind}_{end}:.1f}}",
            f"95 % interval by {by}": f"{{{kind}_lower_{end}:.1f}} to {{{kind}_upper_{end}:.1f}}",
        }
    title = f"The {what} by {told['by']}, {told['at']}"
    return title, columns, told["areas"]


def _providers(told: dict[str, Any]) -> _Shown:
    unit = told["unit"]
    columns = {
        "area": "{area}",
        "provider": "{provider}",
        f"level, {unit}": f"{{level_{unit.lower()}:.1f}}",
        "other": "{other}",
        f"its level, {unit}": f"{{other_level_{unit.lower()}:.1f}}",
        "difference": "{difference_percent:+.1f} %",
        "95 % interval": "{difference_lower_percent:+.1f} to {difference_upper_percent:+.1f} %",
        "probability of faster": "{probability_faster:.3f}",
        "far from data": "{far_share:.0%}",
    }
    return f"The providers by {told['by']}, {told['at']}", columns, told["areas"]


def _change(told: dict[str, Any]) -> _Shown:
    unit = told["unit"]
    columns = {
        "area": "{area}",
        "far from data": "{far_share:.0%}",
        f"{told['from']}, {unit}": f"{{level_from_{unit.lower()}:.1f}}",
        f"{told['to']}, {unit}": f"{{level_to_{unit.lower()}:.1f}}",
        "change": "{change_percent:+.1f} %",
        "95 % interval": "{change_lower_percent:+.1f} to {change_upper_percent:+.1f} %",
        "probability of a rise": "{probability_rose:.3f}",
        "direction": "{direction}",
    }
    title = f"The change of the level by {told['by']}, {told['from']} to {told['to']}"
    return title, columns, told["areas"]


def _exceedance(told: dict[str, Any]) -> _Shown:
    columns = {
        "area": "{area}",
        "tiles": "{tiles:,}",
        "km²": "{area_km2:,.0f}",
        "share of the area": "{mean:.1%}",
        "95 % interval": "{lower:.1%} to {upper:.1%}",
    }
    if told.get("weights"):
        by = Path(told["weights"]).name
        columns |= {
            f"share by {by}": "{weighted_mean:.1%}",
            f"95 % interval by {by}": "{weighted_lower:.1%} to {weighted_upper:.1%}",
        }
    title = f"Where the level is {told['falls_short']}, {told['at']}"
    return title, columns, told["share_falling_short"]


def _next(told: dict[str, Any]) -> _Shown:
    rows = told["chosen"]
    places = [name for name in ("county", "stratum") if rows and name in rows[0]]
    columns = {
        "rank": "{rank}",
        "longitude": "{longitude:.4f}",
        "latitude": "{latitude:.4f}",
        **{name: f"{{{name}}}" for name in places},
        "tests so far": "{tests:,}",
        "standard deviation": "{sd_before_log10:.3f}",
        "after": "{sd_after_log10:.3f}",
        "variance removed": "{removed:.2%}",
    }
    return f"Where to measure next, {told['at']}", columns, rows


_KINDS: dict[str, Callable[[dict[str, Any]], _Shown]] = {
    "areas_*.json": _areas,
    "change_*.json": _change,
    "exceedance_*.json": _exceedance,
    "next_tiles.json": _next,
    "providers_*.json": _providers,
}
"""The pattern of the JSON files of each command, and the function that reads them."""

_RASTERS = {
    "exceedance_*.json": (1, ("excursion", "excursion_short")),
    "change_*.json": (-3, ("change_percent", "change_sd", "probability_rose")),
}
"""The first part of a JSON file's name that its rasters share, and the starts of their names."""
