"""The committed tables of `field.py`, with means over seeds and coverage by class.

    python -m benchmarks accuracy.field_table benchmarks/out/field --table benchmarks/results/field

Reads the files that `field.py` wrote, two for each (region, target, model, split, seed), and writes
a Markdown and a JSON file. Coverages are pooled over the seeds; the bands hold jointly for all
checks of a model and split (see `simultaneous_coverage.py`).
"""

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.accuracy.field import SPLITS
from benchmarks.markdown import mean_and_error, plus_minus, table
from benchmarks.peers.field_peers import KRIGED_ROWS, PEERS
from benchmarks.peers.gpboost_peer import COVARIANCE_ROWS
from benchmarks.script import Figures, parser, write_results
from geogp.errors import DataError
from geogp.evaluation.simultaneous_coverage import TOLERANCE, Check, ClassReport, class_reports
from geogp.evaluation.strata import (
    SHARING_CLASSES,
    count_groups,
    joined,
    ranges,
    value_groups,
)
from geogp.geodata.tiles.quarters import quarter_label
from geogp.models.catalogue.rows import CATALOGUE
from geogp.reports.words import MISSING

ORDER = (*CATALOGUE, *PEERS)
STRATA = ("urban", "rural")
STRATUM_TOLERANCE = 0.015
FAR, BEYOND_CHANCE = "†", "‡"
"""Marks of a coverage beyond `STRATUM_TOLERANCE`, and of a level outside its band."""

MIN_ROWS = 30
LEVELS = (0.5, 0.8, 0.95)
SCORES = {"nll": "log score", "crps": "CRPS", "mae_median": "MAE of the median"}


@dataclass(frozen=True)
class Line:
    """A model in one split of one region: means over the seeds, and their standard errors.

    `gain` is the baseline's log score minus the model's. A value is None if it does not exist:
    quantiles have no density, and one seed has no standard error.
    """

    model: str
    split: str
    preset: str
    rows: dict[int, str]  # by seed, a digest of its rows
    threads: int
    means: dict[str, float | None]
    errors: dict[str, float | None]
    seconds: dict[str, float]
    classes: list[ClassReport]  # coverage of all seeds' rows, by stratum, quarter, tests, devices


def line_of(folder: Path, split: str) -> Line | None:
    """Read all seeds of one model and split; return None if there are none."""
    paths = sorted(folder.glob(f"{split}-*.json"), key=_seed)
    if not paths:
        return None
    runs = [json.loads(path.read_text()) for path in paths]
    figures: dict[str, list[float | None]] = {
        name: [run["scores"]["all"][name] for run in runs] for name in SCORES
    }
    figures["baseline"] = [run["baseline"]["all"]["nll"] for run in runs]
    pairs = list(zip(figures["nll"], figures["baseline"], strict=True))
    figures["gain"] = [None if own is None else base - own for own, base in pairs]
    over_seeds = {name: _over_seeds(values) for name, values in figures.items()}
    kept = [np.load(path.with_suffix(".npz")) for path in paths]
    return Line(
        runs[0]["model"],
        split,
        folder.name,
        {run["seed"]: run["rows"] for run in runs},
        runs[0]["threads"],
        {name: mean for name, (mean, _) in over_seeds.items()},
        {name: error for name, (_, error) in over_seeds.items()},
        {part: float(np.mean([run["seconds"][part] for run in runs])) for part in _SECONDS},
        _classes({name: np.concatenate([file[name] for file in kept]) for name in kept[0].files}),
    )


def _over_seeds(values: list[float | None]) -> tuple[float | None, float | None]:
    """Return mean and standard error of the known values, None if there are too few."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    mean, error = mean_and_error(known)
    return mean, error if len(known) > 1 else None


def regions(root: Path, earlier: Path | None = None) -> dict[str, list[Line]]:
    """Read everything under a folder, by region and target; models in the order of the catalogue.

    Lines of other models, splits and regions come from the file `earlier`.

    Raises
    ------
    DataError
        If there are no results, or models were scored on different rows.
    """
    found: dict[str, list[Line]] = defaultdict(list)
    for model in ORDER:
        for folder in sorted(root.glob(f"*/{model}/*")):
            for split in SPLITS:
                line = line_of(folder, split)
                if line is not None:
                    found[folder.parts[-3]].append(line)
    if not found:
        raise DataError(f"expected results of field.py under {root}, found none.")
    if earlier:
        stored = msgspec.json.decode(earlier.read_bytes(), type=dict[str, list[Line]])
        for region, lines in stored.items():
            made = {(line.model, line.preset, line.split) for line in found[region]}
            found[region] += [x for x in lines if (x.model, x.preset, x.split) not in made]
            found[region].sort(key=lambda line: (ORDER.index(line.model), line.preset))
    for region, lines in found.items():
        _check_rows(region, lines)
    return dict(sorted(found.items()))


def _check_rows(region: str, lines: list[Line]) -> None:
    """Refuse models that were scored on different rows."""
    for split in SPLITS:
        known: dict[int, str] = {}
        for line in (line for line in lines if line.split == split):
            if any(known.setdefault(seed, rows) != rows for seed, rows in line.rows.items()):
                raise DataError(
                    f"expected the same rows for all models, found others for {line.model} in "
                    f"{region}, {split}. Fit again with an empty --out."
                )


def page(found: dict[str, list[Line]]) -> str:
    """Return the tables."""
    parts = [_HEAD]
    for region, lines in found.items():
        parts.append(f"## {region.replace('-', ', ')}\n")
        for split in SPLITS:
            chosen = [line for line in lines if line.split == split]
            if chosen:
                parts += [f"### {_TITLES[split]}\n", _scores(chosen), _coverage(chosen)]
                parts.append(_strata(chosen))
    return "\n".join(parts)


def _classes(rows: dict[str, np.ndarray]) -> list[ClassReport]:
    """Return coverage by class, for the rows of all seeds."""
    place = np.column_stack([rows["block_x"], rows["block_y"]])
    _, blocks = np.unique(place, axis=0, return_inverse=True)
    quarter = np.array([quarter_label(q) for q in rows["quarter"].tolist()])
    groups = {
        "all": {"all": np.ones(len(quarter), bool)},
        "stratum": _merged(value_groups(rows["stratum"])),
        "quarter": _merged(value_groups(quarter)),
        "tests": _merged(count_groups(rows["tests"], "test")),
        "devices": _merged(count_groups(rows["devices"], "device")),
        "sharing": _merged(ranges(rows["tests"] / rows["devices"], SHARING_CLASSES)),
    }
    return class_reports(rows["pit"], groups, blocks.reshape(-1), levels=LEVELS, least=MIN_ROWS)


def _merged(groups: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {one.name: one.rows for one in joined(groups, MIN_ROWS)}


def _scores(lines: list[Line]) -> str:
    # Only models with the largest number of seeds are compared with each other.
    most = max(len(line.rows) for line in lines)
    full = [line for line in lines if len(line.rows) == most]
    best = {
        name: min((v for line in full if (v := line.means[name]) is not None), default=None)
        for name in SCORES
    }
    rows = []
    for line in lines:
        name = f"`{line.model}`" + ("" if line.preset == "quick" else f", {line.preset}")
        nll, *others = (_figure(line, score, best[score]) for score in SCORES)
        seconds = [f"{line.seconds[part]:.0f}" for part in _SECONDS]
        rows.append((name, len(line.rows), nll, _figure(line, "gain", None), *others, *seconds))
    nll, *others = SCORES.values()
    return table(("model", "seeds", nll, "gain", *others, "fit, s", "predict, s"), rows)


def _coverage(lines: list[Line]) -> str:
    rows = []
    for line in lines:
        (whole,) = (group for group in line.classes if group.kind == "all")
        levels = " / ".join(f"{100 * check.observed:.1f}" for check in whole.checks)
        ranges = [_range(line, kind) for kind in _KINDS]
        rows.append((f"`{line.model}`", levels, *ranges, _off(line)))
    titles = [f"by {title}, 95 %" for title in _KINDS.values()]
    return table(("coverage, %", "overall", *titles, "off"), rows, left=(0, 2 + len(titles)))


def _strata(lines: list[Line]) -> str:
    """Return coverage by stratum with standard errors, and marks of deviations."""
    rows = []
    for line in lines:
        groups = {group.name: group for group in line.classes if group.kind == "stratum"}
        known = [groups.get(name) for name in STRATA]
        cells = [[_marked(c) for c in g.checks] if g else [MISSING] * len(LEVELS) for g in known]
        rows.append((f"`{line.model}`", *cells[0], *cells[1]))
    titles = [f"{name}, {level:.0%}" for name in STRATA for level in LEVELS]
    return table(("coverage, %", *titles), rows)


def _marked(check: Check) -> str:
    text = f"{100 * check.observed:.1f}"
    if check.error is not None:
        text += f" ± {100 * check.error:.1f}"
    missed = abs(check.observed - check.level) > STRATUM_TOLERANCE
    by_chance = check.lower is None or check.lower <= check.level <= check.upper
    marks = (FAR if missed else "") + ("" if by_chance else BEYOND_CHANCE)
    return f"{text} {marks}".rstrip()


def _off(line: Line) -> str:
    """Return deviating checks: strata by 1.5 points, others by 3 points and beyond chance."""
    said = []
    for group in line.classes:
        for check in group.checks:
            away = abs(check.observed - check.level)
            missed = away > STRATUM_TOLERANCE if group.kind == "stratum" else check.off
            if missed and group.kind != "all":
                name = group.name + _NOUNS.get(group.kind, "")
                said.append(f"{name} at {check.level:.0%}: {check.observed:.1%}")
    if not said:
        return "none"
    return "; ".join(said) if len(said) <= 4 else f"{len(said)} checks"


def _range(line: Line, kind: str) -> str:
    values = [100 * group.checks[-1].observed for group in line.classes if group.kind == kind]
    return f"{min(values):.1f} to {max(values):.1f}"


def _figure(line: Line, name: str, best: float | None) -> str:
    mean, error = line.means[name], line.errors[name]
    if mean is None:
        return MISSING
    text = plus_minus(mean, np.nan if error is None else error)
    return f"**{text}**" if mean == best else text


def _seed(path: Path) -> int:
    return int(path.stem.rsplit("-", 1)[1])


_SECONDS = ("fit", "predict")

_KINDS = {
    "quarter": "quarter",
    "tests": "tests",
    "devices": "devices",
    "sharing": "tests per device",
}
_NOUNS = {"tests": " tests", "devices": " devices", "sharing": " tests per device"}

_TITLES = {"random": "Random split", "blocks": "Split by blocks of 0.1°"}

_HEAD = f"""# The field model and its peers

Made by `benchmarks/accuracy/field_table.py` from the files of `benchmarks/accuracy/field.py`.
All models have the same rows: longitude, latitude, quarter, and, for models that can use them, the
tests and devices of a row. Each test row is scored with its own tests and devices. Scores are on
the scale of log10 Mbps, means over the seeds ± standard error (a seed sets split and
initialisation). Lower is better;
the lowest score among models with all seeds is bold. The gain is the log score of the baseline
(mean and variance of each quarter) minus the model's, on the same rows.

Coverages are of the central 50, 80 and 95 % intervals, pooled over the seeds. `off` lists strata
that miss a level by more than {100 * STRATUM_TOLERANCE:g} points, and quarters or classes of tests,
devices or tests per device that miss one by more than {100 * TOLERANCE:g} points and beyond a band
that holds for all checks together (95 %, bootstrap over blocks). By stratum, ± is the standard
error of this bootstrap, in which a block of 0.1° contains its rows of all seeds; {FAR} is off by
more than {100 * STRATUM_TOLERANCE:g} points, {BEYOND_CHANCE} by more than the band allows,
{FAR}{BEYOND_CHANCE} by both. Classes that lie in few blocks have no band and no standard error.

`lightgbm` and `lightgbm-quantile` know place, quarter and tests; the validation rows choose their
number of trees, and give `lightgbm` location, scale and shape by tests. `lightgbm-neighbours` also
knows the measurements of the row's own tile and of the 4, 16 and 64 nearest other tiles, and is the
mean of five members; `lightgbm-devices` also knows the devices, and `lightgbm-kriging` also a local
kriging in space and time. `gpboost` is a boosted mean plus a Matérn process; the parameters of its
covariance come from about {COVARIANCE_ROWS:,} training rows. For these four and the field model,
location, scale and shape of the errors depend on covariates of the prediction.
`kriging` uses {KRIGED_ROWS:,} random training rows.

Seconds are those of fits beside others on one machine, not all on the same day: they tell the order
of magnitude.
"""


def main() -> None:
    """Write the tables."""
    asked = parser(__doc__, table="field")
    asked.add_argument("root", type=Path)
    asked.add_argument("--earlier", type=Path, help="results.json with the lines not made again")
    options = asked.parse_args()
    found = regions(options.root, options.earlier)
    plain: Figures = {region: [asdict(line) for line in lines] for region, lines in found.items()}
    write_results(options.table, page(found), plain)
