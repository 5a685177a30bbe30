"""The page of the audit of several targets."""

from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np

from benchmarks.markdown import percent, plus_minus, table
from benchmarks.script import Figures
from benchmarks.several_worlds import ASKED, EDGES, LACKS, PAIRS, TRAINED
from geogp.evaluation.strata import MIN_ROWS
from geogp.geodata.tiles.targets import TOGETHER

LATENCY = TOGETHER.index("latency")

AIM, RATIO = 0.003, 2.2
"""Largest loss of log score by a joint fit, and of its CPU time as a ratio to one single fit."""

NAMES = {"PR": "Puerto Rico", "MO": "Missouri", "DEMO": "demo"}

Lines = list[tuple[object, ...]]


def page(found: dict[str, list[Figures]]) -> str:
    """Return the Markdown of all splits and worlds."""
    first = (found["regions"] or found["worlds"])[0]["machine"]
    codes = list(dict.fromkeys(one["region"] for one in found["regions"]))
    seeds = len({one["seed"] for one in found["worlds"]})
    text = f"""# Several targets together

    python -m benchmarks accuracy.several --source ookla-open-data --boundaries census \\
        --regions {" ".join(codes)} --worlds {seeds}

`FieldGP` with the preset `quick`, fitted to download, upload and latency (log10) together
(`joint`), and to each alone (`single`), on {first["threads"]} thread. The validation rows are those
of the split. `independent` has the marginals of the joint fit, without correlation. Lower scores
are better. A number after ± is the standard error from a bootstrap over blocks.
"""
    if found["regions"]:
        text += _real(found["regions"])
    if found["worlds"]:
        text += _simulated(found["worlds"])
    return text


def _real(found: list[Figures]) -> str:
    worse = [
        (f"{_where(one)}, {line['target']}", line["difference"])
        for one in found
        for line in one["targets"]
        if line["difference"][0] > AIM
    ]
    number = sum(len(one["targets"]) for one in found)
    ratios = [_ratio(one, "fit_seconds") for one in found]
    tiers = [line for one in found for line in one["tiers"] if line["group"] == "all"]
    missed = [line for line in tiers if _off(line)]
    better = [line for line in tiers if line["brier"] < line["others"]["single"][1]]
    listed = "".join(f"\n  - {name}: {_signed(*value)}" for name, value in worse)
    aims = f"""
The aims, and what was found:

- The log score of a target is at most {AIM} worse than that of its single fit: missed in
  {len(worse)} of {number} cases.{listed}
- The joint fit takes at most {RATIO} times the CPU time of one single fit: the ratios are
  {min(ratios):.1f} to {max(ratios):.1f}.
- The share of rows that reach a tier lies in the band around the mean stated probability (all rows
  of a split): missed in {len(missed)} of {len(tiers)} cases.
- The Brier score of a tier is lower than that of the product of single fits: in {len(better)} of
  {len(tiers)} cases.
"""
    parts = (_targets, _together, _correlations, _tiers, _tier_groups, _classes, _costs)
    rows = "; ".join(
        f"{NAMES[one['region']]}: {sum(one['rows']):,} ({one['quarters']})"
        for one in {one["region"]: one for one in found}.values()
    )
    aims += f"""
## Real tiles

Rows of mobile tiles, of which 8,000 are drawn from more:
{rows}.

"""
    return aims + "\n".join(part(found) for part in parts)


def _where(one: Figures) -> str:
    return f"{NAMES[one['region']]}, {one['split']}"


def _signed(value: float, error: float | None, digits: int = 4) -> str:
    return f"{value:+.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def _targets(found: list[Figures]) -> str:
    lines: Lines = []
    for one in found:
        for k, line in enumerate(one["targets"]):
            joint, single = line["joint"], line["single"]
            lines.append((
                *((_where(one), f"{one['rows'][1]:,}") if not k else ("", "")),
                line["target"],
                f"{joint['log_score']:.4f}",
                _signed(*line["difference"]),
                f"{joint['crps']:.4f}",
                f"{joint['crps'] - single['crps']:+.4f}",
                percent(joint["coverage"]),
                percent(single["coverage"]),
            ))  # fmt: skip
    header = ("split", "test rows", "target", "log score", "less single", "CRPS", "less single")
    header += ("in 95 %", "single")
    return f"### Each target\n\n{table(header, lines, left=(0, 2))}"


def _together(found: list[Figures]) -> str:
    lines: Lines = []
    for one in found:
        own = {line["law"]: line for line in one["together"]}
        apart = own["independent"], own["single"]
        lines.append((
            _where(one),
            f"{own['joint']['log_score']:.3f}",
            *(plus_minus(*line["log_less_joint"]) for line in apart),
            f"{own['joint']['energy']:.4f}",
            *(_signed(*line["energy_less_joint"]) for line in apart),
        ))  # fmt: skip
    header = ("split", "log score", "independent less joint", "single less joint")
    header += ("energy score", "independent less joint", "single less joint")
    return f"""### All targets together

The energy score is in standard deviations of the targets of the training rows.

{table(header, lines)}"""


def _correlations(found: list[Figures]) -> str:
    lines: Lines = []
    for one in found:
        groups = dict.fromkeys(line["group"] for line in one["correlations"])
        for group in groups:
            own = [line for line in one["correlations"] if line["group"] == group]
            shown = [
                f"{line['seen']:.2f}, {line['stated']:.2f} ({_marked(*line['difference'])})"
                for line in own
            ]
            lines.append((_where(one) if group == "all" else "", group, f"{own[0]['n']:,}", *shown))
    header = ("split", "test rows", "n", *(f"{TOGETHER[i]}, {TOGETHER[j]}" for i, j in PAIRS))
    return f"""### Correlations

Correlations of normal scores: seen, stated, and seen less stated with its standard error, in bold
where it is larger than two standard errors.

{table(header, lines, left=(0, 1))}"""


def _marked(value: float, error: float | None) -> str:
    text = _signed(value, error, 2)
    return f"**{text}**" if error is not None and abs(value) > 2 * error else text


def _off(line: Figures) -> bool:
    """Return whether the band of reached less stated does not contain 0."""
    low, high = line["band"]
    return low is not None and not low <= 0 <= high


def _tiers(found: list[Figures]) -> str:
    lines: Lines = []
    for one in found:
        for k, line in enumerate(line for line in one["tiers"] if line["group"] == "all"):
            others = line["others"]
            low, high = line["band"]
            half = "" if low is None else f" ± {50 * (high - low):.1f}"
            lines.append((
                _where(one) if not k else "",
                line["tier"],
                percent(line["observed"]),
                percent(line["stated"]),
                f"{100 * (line['observed'] - line['stated']):+.1f}{half}",
                *(percent(others[name][0]) for name in others),
                f"{line['brier']:.4f}",
                *(f"{line[name]:.4f}" for name in ("reliability", "resolution", "uncertainty")),
                *(f"{others[name][1] - line['brier']:+.4f}" for name in others),
                f"{line['bins_off']} of {line['bins']}",
            ))  # fmt: skip
    header = ("split", "tier", "reached", "stated", "less stated", "independent", "single")
    header += ("Brier", "reliability", "resolution", "uncertainty", "independent less joint")
    header += ("single less joint", "bins off")
    return f"""### Tiers

Share of test rows that reach a tier, the mean stated probability, their difference in percentage
points with its band, and the mean products of the marginals' probabilities. The parts of the Brier
score are those of the CORP decomposition. A bin of rows with similar probabilities is off if its
band does not contain 0 and the difference is above 3 points.

{table(header, lines, left=(0, 1))}"""


def _tier_groups(found: list[Figures]) -> str:
    groups = list(dict.fromkeys(line["group"] for one in found for line in one["tiers"]))[1:]
    lines: Lines = []
    for one in found:
        own = {(line["tier"], line["group"]): line for line in one["tiers"]}
        for k, tier in enumerate(dict.fromkeys(tier for tier, _ in own)):
            shown = []
            for group in groups:
                line = own.get((tier, group))
                if line is None or line["n"] < MIN_ROWS:
                    shown.append("")
                    continue
                gap = f"{100 * (line['observed'] - line['stated']):+.1f}"
                shown.append(f"{f'**{gap}**' if _off(line) else gap}, {line['brier']:.3f}")
            lines.append((_where(one) if not k else "", tier, *shown))
    return f"""### Tiers by stratum and by number of tests

Reached less stated in percentage points, in bold where the band does not contain 0; and the Brier
score. Groups of fewer than {MIN_ROWS} rows are left out.

{table(("split", "tier", *groups), lines, left=(0, 1))}"""


def _classes(found: list[Figures]) -> str:
    lines: Lines = []
    for one in found:
        for k, line in enumerate(one["classes"]):
            own = line["model"] == "joint"
            lines.append((
                _where(one) if not k else "",
                line["model"],
                f"{line['nll']:.4f}",
                "" if own else _signed(*line["less_joint"]),
                f"{line['brier']:.4f}",
                f"{line['ece']:.3f}",
                percent(line["accuracy"]),
            ))  # fmt: skip
    header = ("split", "model", "log score", "less joint", "Brier", "ECE", "accuracy")
    return f"""### The highest mobile tier as a class

The class is below 5/1, 5/1, 7/1 or 35/3; its probability is a difference of probabilities of tiers.
`class-dbk` (preset `quick`) is fitted to the classes; beside place and quarter, it knows the
stratum and log10 of the number of tests. `shares` are those of the training rows.

{table(header, lines, left=(0, 1))}"""


def _ratio(one: Figures, name: str) -> float:
    costs = one["costs"]
    return float(costs["joint"][name] / np.mean([costs[target][name] for target in TOGETHER]))


def _costs(found: list[Figures]) -> str:
    lines: Lines = []
    for one in found:
        costs, row = one["costs"], [_where(one), f"{one['rows'][0]:,}"]
        for name, digits in (("fit_seconds", 0), ("predict_seconds", 1)):
            single = np.mean([costs[target][name] for target in TOGETHER])
            row += [f"{costs['joint'][name]:.{digits}f}", f"{single:.{digits}f}"]
            row += [f"{_ratio(one, name):.1f}"]
        peaks = [costs[name]["peak_bytes"] / 1e9 for name in ("joint", *TOGETHER)]
        row += [
            f"{peaks[0]:.2f}",
            f"{max(peaks[1:]):.2f}",
            f"{costs['classes']['fit_seconds']:.0f}",
        ]
        lines.append(tuple(row))
    header = ("split", "training rows", "fit, joint", "mean of single", "ratio")
    header += ("prediction, joint", "mean of single", "ratio", "peak GB, joint", "single")
    header += ("fit, `class-dbk`",)
    return f"""### Costs

CPU seconds. Each fit is a process of its own. {_loads(found)}

{table(header, lines)}"""


def _loads(found: list[Figures]) -> str:
    total = sum(each["fit_seconds"] for one in found for each in one["costs"].values())
    return f"All fits took {total / 60:.0f} minutes."


def _simulated(found: list[Figures]) -> str:
    worlds = len({one["seed"] for one in found})
    parts = (_world_scores, _world_correlations, _world_tiers)
    gained = []
    for world in (one for one in found if one["case"] == "lacking"):
        score = {
            (line["group"], line["model"]): line["log_scores"][LATENCY] for line in world["scores"]
        }
        gained += [
            f"{score[group, 'single'] - score[group, 'joint']:+.3f} ({group})"
            for group in dict.fromkeys(group for group, _ in score)
        ]
    held = [
        value
        for world in found
        for line in world["scores"]
        if line["model"] == "joint" and line["group"] == "new places"
        for value in line["coverage_level"]
    ]
    return f"""
## Simulated tiles with a known truth

Worlds of each case: {worlds}, with {TRAINED:,} training rows and {ASKED:,} new places; `lacking`:
{100 * LACKS:.0f} % of the training rows lack the latency. The field and the noise of single tests
have unlike correlations. `two ranges` has a field whose two ranges have unlike correlations, which
no factors of the model have. `oracle` is a cokriging with all true parameters, the best prediction.

- Where rows lack the latency, its log score by a single fit less that by the joint fit, in each
  world and group of asked rows: {", ".join(gained)}.
- The 95 % intervals of the joint fit hold {percent(min(held))} to {percent(max(held))} of the
  levels at new places.

""" + "\n".join(part(found) for part in parts)


def _pooled(
    found: list[Figures], key: Callable[[Figures], tuple[str, ...]]
) -> Iterable[tuple[tuple[str, ...], list[Figures]]]:
    """Yield each key, and its figures."""
    for each in dict.fromkeys(key(one) for one in found):
        yield each, [one for one in found if key(one) == each]


def _world_scores(found: list[Figures]) -> str:
    flat = [{"case": one["case"], **line} for one in found for line in one["scores"]]
    lines: Lines = []
    for (case, group, model), own in _pooled(
        flat, lambda one: (one["case"], one["group"], one["model"])
    ):
        mean = {
            name: np.mean([one[name] for one in own], axis=0)
            for name in ("together", "log_scores", "rmse_level", "coverage", "coverage_level")
        }
        lines.append((
            *(case, group, model, f"{mean['together']:.3f}"),
            *(", ".join(f"{v:.3f}" for v in mean[name]) for name in ("log_scores", "rmse_level")),
            *(", ".join(percent(v, "") for v in mean[name])
              for name in ("coverage", "coverage_level")),
        ))  # fmt: skip
    header = ("case", "asked", "model", "log score together", "log score of each target")
    header += ("RMSE of the level", "measurements in 95 %", "levels in 95 %")
    return f"""### Scores

Of download, upload and latency. `rows without latency` are new measurements at the places of
training rows that lack it.

{table(header, lines, left=(0, 1, 2))}"""


def _world_correlations(found: list[Figures]) -> str:
    lines: Lines = []
    for (case,), own in _pooled(found, lambda one: (one["case"],)):
        for name in own[0]["correlations"]:
            pairs = np.array([one["correlations"][name] for one in own])
            gap = abs(pairs[:, 1] - pairs[:, 0]).max(0)
            truth, stated = pairs.mean(0)
            each = zip(truth, stated, gap, strict=True)
            lines.append((case, name, *(f"{a:.2f}, {b:.2f} ({c:.2f})" for a, b, c in each)))
    header = ("case", "of", *(f"{TOGETHER[i]}, {TOGETHER[j]}" for i, j in PAIRS))
    return f"""### Correlations

The truth, what the joint fit states, and the largest difference in a world. `field`: over new
places; `error of the level`: of truth less predicted, in stated standard deviations; `noise`: of
one test.

{table(header, lines, left=(0, 1))}"""


def _world_tiers(found: list[Figures]) -> str:
    flat = [line for one in found for line in one["tiers"]]
    lines: Lines = []
    for (tier,), own in _pooled(flat, lambda one: (one["tier"],)):
        shown = []
        for n, p, spread, reached in np.sum([one["bins"] for one in own], 0):
            if n < 1:
                shown.append("")
                continue
            gap, band = (reached - p) / n, 1.96 * np.sqrt(spread) / n
            text = f"{100 * gap:+.1f} ± {100 * band:.1f}"
            shown.append(f"**{text}**" if abs(gap) > band else text)
        brier = {name: np.mean([one["brier"][name] for one in own]) for name in own[0]["brier"]}
        lines.append((tier, *shown, *(f"{value:.4f}" for value in brier.values())))
    bins = [f"{100 * low:.0f} to {100 * high:.0f} %" for low, high in pairwise(EDGES)]
    header = ("tier", *bins, *(f"Brier, {name}" for name in flat[0]["brier"]))
    return f"""### Tiers

Reached less stated in percentage points at new places, by bins of the stated probability, pooled
over all worlds; ± is the 95 % band of independent rows, and bold values are outside. Errors of near
places are alike, so more than one in twenty may be outside.

{table(header, lines)}"""
