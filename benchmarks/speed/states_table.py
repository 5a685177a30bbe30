"""The results of the benchmark of states as Markdown."""

from collections.abc import Sequence

from benchmarks.speed.states_costs import (
    FORMULA,
    WORLD_LAND_KM2,
    WORLD_ROWS,
    Cost,
    Kind,
    bills,
    costs_of,
    residuals,
)
from benchmarks.speed.states_people import FULLEST, KNOWN_QUARTERS, KNOWN_ROWS, ROWS_A_PERSON
from benchmarks.trial import Figures as Found
from benchmarks.trial import table

STAGES = ("draw", "write", "oracles", "ingest")

_STATE = ("state", "rows", "tiles", "towns", "draw (s)", "write (s)", "rows/s", "peak (MB)")
_READ = ("tiles' files (MB)", "all files (MB)", "ingest (s)", "rows/s", "peak (MB)", "workers")
_MAP = ("state", "model", "preset", "epochs", "zoom", "rows", "tiles", "read (s)", "fit (s)")
_MAPPED = ("predict (s)", "write (s)", "µs a row and epoch", "µs a tile", "peak (MB)")
_BILL = ("what", "model", "preset", "rows", "tiles", "read (h)", "fit (h)", "predict (h)")
_BILLED = ("write (h)", "core-hours", "source (GB)", "runs (GB)", "peak of a run (GB)")
_RESIDUAL = ("map", "read (s)", "fit (s)", "predict (s)", "write (s)", "all (s)", "difference")

_HEAD = """\
`benchmarks/speed/states.py` on {processor}, {cores} cores, {date}; geogp {geogp}, Python {python};
{quarters}{scale}, seed {seed}. Every stage is a separate process with one thread. Seconds are
processor seconds, and rows/s are rows divided by these."""

_ROWS = """\
Rows: {known}, for others {ratio:.4f} per person of the 2020 Census, but at most {fullest:.0%} of
tiles times quarters (marked ≤). Towns are invented if the boundaries have no urban areas. Files
are dropped from the page cache before they are read."""

_WORKERS = """\
## Rows per second

Rows per second of a core by stage, with one and two workers; elapsed times also depend on other
work of the machine. `oracles`, the last stage of `geogp simulate`, is timed for a few states only,
and is not included in other figures."""

_EPOCHS = """\
Few epochs suffice to measure the cost of an epoch. Seconds are elapsed seconds from `run.json`; the
rows of an epoch are those of all fits of the preset."""

_RESIDUALS = """\
Measured / modelled core seconds (those of `run.json` times the run's share of the processor):"""

_EXTENTS = """\
Costs by these rates for all epochs of the presets, one service and one target, on this processor. A
quarter of the states has one {quarters}th of their rows. The world in a quarter has {rows:.0f}
million rows, an assumption (about 4 of mobile and 6 of fixed services), and tiles and regions per
land area as in the states, for {land:.1f} million km² of land without Antarctica. Tiles are
those of zoom 16, or of the finest zoom with up to a million of them in a region, which is what
`geogp map` draws. Source: {a_row:.1f} bytes a row as simulated, seven columns. Peak: the largest
region. All these figures are extrapolated from the maps above."""


def markdown(found: Found) -> str:
    """Return the whole page."""
    asked, machine = found["asked"], found["machine"]
    scale = "" if asked["scale"] == 1 else f", {asked['scale']:g} of the real rows"
    parts = [
        "# States simulated at their real sizes, and what a batch costs",
        _HEAD.format(**machine, **asked | {"scale": scale}),
    ]
    states = [
        (code, workers, one)
        for workers, held in sorted(found["states"].items(), reverse=True)
        for code, one in sorted(held.items())
    ]
    if states:
        parts += _states(states) + _workers(found)
    made = [one for one in found["maps"].values() if "stages" in one]
    if found["maps"]:
        parts += _maps(list(found["maps"].items()))
    sizes = [one["simulate"] for _, _, one in states if "rows" in one["simulate"]]
    if made and sizes:
        costs = costs_of(made)
        a_row = sum(one["source_bytes"] for one in sizes) / sum(one["rows"] for one in sizes)
        if costs:
            parts += _model(made, costs) + _bills(bills(costs, found["regions"], a_row), a_row)
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return table(headings, rows, left=range(len(headings)))


def _states(states: Sequence[tuple[str, str, Found]]) -> list[str]:
    known = " and ".join(f"{rows:,} for {code}" for code, rows in KNOWN_ROWS.items())
    return [
        "## Simulating and reading",
        _ROWS.format(known=known, ratio=ROWS_A_PERSON, fullest=FULLEST),
        _table((*_STATE, *_READ), [_state(*one) for one in states]),
    ]


def _state(code: str, workers: str, one: Found) -> list[str]:
    made, read = one["simulate"], one.get("ingest", {})
    for part in (made, read):
        told = part.get("refused") or part.get("failed")
        if told:
            told = told.replace("|", "/")
            return [code, f"{made['asked_rows']:,}", told, *[""] * 10, workers]
    cpu = made["cpu"]
    return [
        code,
        f"{'≤ ' if made['rows'] < made['asked_rows'] else ''}{made['rows']:,}",
        f"{made['tiles']:,}",
        "made up" if made["made_up_towns"] else "census",
        f"{cpu['draw']:.1f}",
        f"{cpu['write']:.1f}",
        f"{made['rows'] / (cpu['draw'] + cpu['write']):,.0f}",
        f"{made['peak_bytes'] / 1e6:,.0f}",
        f"{made['source_bytes'] / 1e6:.1f}",
        f"{made['bytes'] / 1e6:.1f}",
        f"{read['cpu']['ingest']:.2f}",
        f"{read['rows'] / read['cpu']['ingest']:,.0f}",
        f"{read['peak_bytes'] / 1e6:,.0f}",
        workers,
    ]


def _workers(found: Found) -> list[str]:
    """Compare one worker with two, over all states of each and over their common states."""
    whole = {
        workers: {code: one for code, one in held.items() if "rows" in one.get("ingest", {})}
        for workers, held in sorted(found["states"].items())
    }
    both = set.intersection(*map(set, whole.values())) if len(whole) > 1 else set()
    rows = []
    for workers, held in whole.items():
        rows += _rates(workers, f"{len(held)}", list(held.values()))
        rows += _rates(workers, f"{len(both)} of both", [held[code] for code in sorted(both)])
    headings = ("workers", "states", "rows", *(f"{stage}, rows/s of a core" for stage in STAGES))
    return [_WORKERS, _table((*headings, "by the clock: draw", "ingest"), rows)]


def _rates(workers: str, name: str, some: list[Found]) -> list[list[str]]:
    """Return the line of some states; none if there are none."""
    if not some:
        return []

    def rate(clock: str, stage: str) -> str:
        part = "ingest" if stage == "ingest" else "simulate"
        timed = [one[part] for one in some if stage in one[part][clock]]
        spent = sum(one[clock][stage] for one in timed)
        return f"{sum(one['rows'] for one in timed) / spent:,.0f}" if spent else ""

    rows = f"{sum(one['simulate']['rows'] for one in some):,}"
    clock = rate("seconds", "draw"), rate("seconds", "ingest")
    return [[workers, name, rows, *(rate("cpu", stage) for stage in STAGES), *clock]]


def _maps(maps: list[tuple[str, Found]]) -> list[str]:
    rows = []
    for case, one in sorted(maps):
        told = one.get("refused") or one.get("failed")
        if told:
            rows.append([*case.split(":"), told.replace("|", "/"), *[""] * 8])
            continue
        stages, passes = one["stages"], one["fitted_rows"] * one["epochs"]
        rows.append(
            [
                *case.split(":"),
                f"{one['rows']:,}",
                f"{one['tiles']:,}",
                *(f"{stages[stage]:.1f}" for stage in ("read", "fit", "predict", "write")),
                f"{1e6 * stages['fit'] / passes:.0f}",
                f"{1e6 * stages['predict'] / one['tiles']:.0f}",
                f"{one['peak_bytes'] / 1e6:,.0f}",
            ]
        )
    return ["## Maps", _EPOCHS, _table((*_MAP, *_MAPPED), rows)]


def _model(maps: list[Found], costs: dict[Kind, Cost]) -> list[str]:
    rates = [("read", next(iter(costs.values())).read, "s")]
    for kind, one in costs.items():
        name = " ".join(kind)
        rates += [(f"predict, {name}", one.predict, "s"), (f"write, {name}", one.write, "s")]
        rates += [(f"bytes, {name}", one.run_bytes, "B"), (f"peak, {name}", one.peak, "B")]
    fits = [(*kind, f"{1e6 * one.fit:.1f}", f"{one.fitted:.2f}") for kind, one in costs.items()]
    rows = []
    for one in residuals(maps, costs):
        spent, told = sum(one["measured"].values()), sum(one["predicted"].values())
        pairs = [(one["measured"][stage], one["predicted"][stage]) for stage in one["measured"]]
        (peak, peak_told), (size, size_told) = one["peak"], one["bytes"]
        rows.append(
            [
                f"`{one['case']}`",
                *(f"{a:.1f} / {b:.1f}" for a, b in pairs),
                f"{spent:.1f} / {told:.1f}",
                f"{told / spent - 1:+.0%}",
                f"{peak / 1e6:,.0f} / {peak_told / 1e6:,.0f}",
                f"{size / 1e6:.1f} / {size_told / 1e6:.1f}",
            ]
        )
    return [
        "## The cost model",
        FORMULA,
        _table(
            ("rate", "fixed", "a row", "a tile", "unit"),
            [(name, *map(_rate, found), unit) for name, found, unit in rates],
        ),
        _table(("model", "preset", "fit b, µs a row and epoch", "fits f, rows a row"), fits),
        _RESIDUALS,
        _table((*_RESIDUAL, "peak (MB)", "run (MB)"), rows),
    ]


def _rate(value: float) -> str:
    return "0" if value == 0 else f"{value:.3g}"


def _bills(found: list[Found], a_row: float) -> list[str]:
    rows = [
        [
            one["extent"],
            one["model"],
            one["preset"],
            f"{one['rows'] / 1e6:.2f} M",
            f"{one['tiles'] / 1e6:.1f} M",
            *(f"{one['hours'][stage]:.2f}" for stage in ("read", "fit", "predict", "write")),
            f"{sum(one['hours'].values()):.1f}",
            f"{one['source_bytes'] / 1e9:.2f}",
            f"{one['run_bytes'] / 1e9:.1f}",
            f"{one['peak_bytes'] / 1e9:.1f}",
        ]
        for one in found
    ]
    return [
        "## The United States and the world",
        _EXTENTS.format(
            quarters=KNOWN_QUARTERS,
            rows=WORLD_ROWS / 1e6,
            land=WORLD_LAND_KM2 / 1e6,
            a_row=a_row,
        ),
        _table((*_BILL, *_BILLED), rows),
    ]
