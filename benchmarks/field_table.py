"""The committed tables of `field.py`: means over seeds, and coverage by class.

    python benchmarks/field_table.py benchmarks/out/field --table benchmarks/results/field

Reads the files that `field.py` left, two for each (region, target, model, split, seed), and writes
a Markdown and a JSON file. Coverages are pooled over the seeds; the band of each holds for all
checks of a model and split together (see `simultaneous_coverage.py`).
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from field import SPLITS
from field_peers import KRIGED_ROWS, PEERS

from geogp.evaluation.simultaneous_coverage import TOLERANCE, Check, ClassReport, class_reports
from geogp.evaluation.strata import merged, tests_groups, value_groups
from geogp.files import write_text
from geogp.geodata.tiles.quarters import quarter_label
from geogp.models.catalogue.build_model import CATALOGUE
from geogp.reports.words import MISSING

ORDER = (*CATALOGUE, *PEERS)
STRATA = ("urban", "rural")
STRATUM_TOLERANCE = 0.015
FAR, BEYOND_CHANCE = "†", "‡"
"""Marks of a coverage beyond `STRATUM_TOLERANCE`, and of a level outside its band."""

LEAST_ROWS = 30
LEVELS = (0.5, 0.8, 0.95)
FIGURES = ("nll", "crps", "mae_median")


@dataclass(frozen=True)
class Line:
    """A model in one split of one region.

    Attributes
    ----------
    rows
        Seeds it was fitted with, and what tells their rows from others.
    means, errors
        Mean over the seeds and its standard error, by figure; `gain` is the baseline's log score
        less the model's. None where there is none: quantiles have no density, one seed no error.
    seconds
        Mean seconds of fit and prediction.
    classes
        Pooled coverage by stratum, quarter and tests, and over all rows.
    """

    model: str
    split: str
    preset: str
    rows: dict[int, str]
    threads: int
    means: dict[str, float | None]
    errors: dict[str, float | None]
    seconds: dict[str, float]
    classes: list[ClassReport]


def line_of(folder: Path, split: str) -> Line | None:
    """Read all seeds of one model and split; None where there are none."""
    paths = sorted(folder.glob(f"{split}-*.json"), key=_seed)
    if not paths:
        return None
    runs = [json.loads(path.read_text()) for path in paths]
    figures: dict[str, list[float | None]] = {
        name: [run["scores"]["all"][name] for run in runs] for name in FIGURES
    }
    base = [run["baseline"]["all"]["nll"] for run in runs]
    figures["baseline"] = base
    figures["gain"] = [
        None if own is None else other - own
        for own, other in zip(figures["nll"], base, strict=True)
    ]
    kept = [np.load(path.with_suffix(".npz")) for path in paths]
    return Line(
        runs[0]["model"],
        split,
        folder.name,
        {run["seed"]: run["rows"] for run in runs},
        runs[0]["threads"],
        {name: _mean(values) for name, values in figures.items()},
        {name: _error(values) for name, values in figures.items()},
        {
            part: float(np.mean([run["seconds"][part] for run in runs]))
            for part in ("fit", "predict")
        },
        _classes({name: np.concatenate([file[name] for file in kept]) for name in kept[0].files}),
    )


def regions(root: Path) -> dict[str, list[Line]]:
    """Read everything under a folder, by region and target; models in the order of the catalogue.

    Raises
    ------
    SystemExit
        There is nothing.
    """
    found: dict[str, list[Line]] = defaultdict(list)
    for model in ORDER:
        for folder in sorted(root.glob(f"*/{model}/*")):
            for split in SPLITS:
                line = line_of(folder, split)
                if line is not None:
                    found[folder.parts[-3]].append(line)
    if not found:
        raise SystemExit(f"expected results of field.py under {root}, found none.")
    for region, lines in found.items():
        _check_rows(region, lines)
    return dict(sorted(found.items()))


def _check_rows(region: str, lines: list[Line]) -> None:
    """Refuse models that were judged on different rows."""
    for split in SPLITS:
        known: dict[int, str] = {}
        for line in (line for line in lines if line.split == split):
            if any(known.setdefault(seed, rows) != rows for seed, rows in line.rows.items()):
                raise SystemExit(
                    f"expected the same rows for all models, found others for {line.model} in "
                    f"{region}, {split}. Fit again with an empty --out."
                )


def markdown(found: dict[str, list[Line]]) -> str:
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
    """Return coverage by class; rows are those of all seeds."""
    place = np.column_stack([rows["block_x"], rows["block_y"]])
    _, blocks = np.unique(place, axis=0, return_inverse=True)
    quarter = np.array([quarter_label(q) for q in rows["quarter"].tolist()])
    groups = {
        "all": {"all": np.ones(len(quarter), bool)},
        "stratum": merged(value_groups(rows["stratum"]), LEAST_ROWS),
        "quarter": merged(value_groups(quarter), LEAST_ROWS),
        "tests": merged(tests_groups(rows["tests"]), LEAST_ROWS),
    }
    return class_reports(rows["pit"], groups, blocks.reshape(-1), levels=LEVELS, least=LEAST_ROWS)


def _scores(lines: list[Line]) -> str:
    # Only models with as many seeds as any are compared with each other.
    most = max(len(line.rows) for line in lines)
    full = [line for line in lines if len(line.rows) == most]
    best = {
        name: min((v for line in full if (v := line.means[name]) is not None), default=None)
        for name in FIGURES
    }
    rows = [
        "| model | seeds | log score | gain | CRPS | MAE of the median | fit, s | predict, s |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for line in lines:
        cells = [_figure(line, name, best[name]) for name in FIGURES]
        name = f"`{line.model}`" + ("" if line.preset == "quick" else f", {line.preset}")
        gain = _figure(line, "gain", None)
        seconds = [f"{line.seconds[part]:.0f}" for part in ("fit", "predict")]
        rows.append(
            f"| {' | '.join([name, str(len(line.rows)), cells[0], gain, *cells[1:], *seconds])} |"
        )
    return "\n".join(rows) + "\n"


def _coverage(lines: list[Line]) -> str:
    rows = [
        "| coverage, % | overall | by quarter, 95 % | by tests, 95 % | off |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for line in lines:
        cells = [_levels(group) for group in line.classes if group.kind == "all"]
        cells += [_range(line, "quarter"), _range(line, "tests")]
        rows.append(f"| `{line.model}` | {' | '.join(cells)} | {_off(line)} |")
    return "\n".join(rows) + "\n"


def _strata(lines: list[Line]) -> str:
    """Return coverage by stratum with standard errors, and marks of what is off."""
    titles = [f"{name}, {level:.0%}" for name in STRATA for level in LEVELS]
    rows = [
        f"| coverage, % | {' | '.join(titles)} |",
        f"| --- |{' ---: |' * len(titles)}",
    ]
    for line in lines:
        groups = {group.name: group for group in line.classes if group.kind == "stratum"}
        cells = []
        for name in STRATA:
            known = groups.get(name)
            cells += [_marked(c) for c in known.checks] if known else [MISSING] * len(LEVELS)
        rows.append(f"| `{line.model}` | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _marked(check: Check) -> str:
    text = f"{100 * check.observed:.1f}"
    if check.error is not None:
        text += f" ± {100 * check.error:.1f}"
    missed = abs(check.observed - check.level) > STRATUM_TOLERANCE
    marks = (FAR if missed else "") + (BEYOND_CHANCE if check.outside else "")
    return f"{text} {marks}".rstrip()


def _off(line: Line) -> str:
    """Say which checks are off: strata by 1.5 points, others by 3 points and beyond chance."""
    said = []
    for group in line.classes:
        for check in group.checks:
            away = abs(check.observed - check.level)
            missed = away > STRATUM_TOLERANCE if group.kind == "stratum" else check.off
            if missed and group.kind != "all":
                said.append(f"{group.name} at {check.level:.0%}: {check.observed:.1%}")
    if not said:
        return "none"
    return "; ".join(said) if len(said) <= 4 else f"{len(said)} checks"


def _levels(group: ClassReport) -> str:
    return " / ".join(f"{100 * check.observed:.1f}" for check in group.checks)


def _range(line: Line, kind: str) -> str:
    values = [100 * group.checks[-1].observed for group in line.classes if group.kind == kind]
    return f"{min(values):.1f} to {max(values):.1f}"


def _figure(line: Line, name: str, best: float | None) -> str:
    mean, error = line.means[name], line.errors[name]
    if mean is None:
        return MISSING
    text = f"{mean:.3f}" if error is None else f"{mean:.3f} ± {error:.3f}"
    return f"**{text}**" if mean == best else text


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _error(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    return float(np.std(known, ddof=1) / np.sqrt(len(known)))


def _seed(path: Path) -> int:
    return int(path.stem.rsplit("-", 1)[1])


_TITLES = {"random": "Random split", "blocks": "Split by blocks of 0.1°"}

_HEAD = f"""# The field model and its peers

Made by `benchmarks/field_table.py` from the files of `benchmarks/field.py`. Same rows and inputs
for all: longitude, latitude, quarter, and the tests of a row for all who can use them. Each test
row is scored with its own tests. Scores are on the scale of log10 Mbps, means over the seeds ±
their standard error (a seed sets split and initialisation); lower is better; the lowest among
models with all seeds is bold. The gain is the log score of the baseline (mean and variance of each
quarter) less the model's, on the same rows.

Coverages are of the central 50, 80 and 95 % intervals, pooled over the seeds. `off` lists strata
that miss a level by more than {100 * STRATUM_TOLERANCE:g} points, and quarters or classes of tests
that miss one by more than {100 * TOLERANCE:g} points and beyond a band that holds for all checks
together (95 %, bootstrap over blocks). By stratum, ± is the standard error of that bootstrap, in
which a block of 0.1° has its rows of all seeds; {FAR} is off by more than
{100 * STRATUM_TOLERANCE:g} points, {BEYOND_CHANCE} by more than the band allows,
{FAR}{BEYOND_CHANCE} by both. Classes that lie in few blocks have no band and no standard error.
Both LightGBM models choose their trees by the validation rows, and `lightgbm` takes location, scale
and shape from them by number of tests; the field model by that and the distance to near places.
`kriging` uses a random {KRIGED_ROWS:,} training rows.

Fits ran beside each other on one machine: their seconds compare models, and are longer than alone.
"""


def main() -> int:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("--table", type=Path, default=Path(__file__).parent / "results" / "field")
    options = parser.parse_args()
    found = regions(options.root)
    options.table.mkdir(parents=True, exist_ok=True)
    write_text(options.table / "table.md", markdown(found))
    plain: dict[str, Any] = {
        region: [asdict(line) for line in lines] for region, lines in found.items()
    }
    write_text(options.table / "results.json", json.dumps(plain, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
