"""The example in one dimension of Zhu, Yuchi and Xie (DBK, section 4.1), judged by its oracle.

    python benchmarks/one_dimension.py target --json
    python benchmarks/one_dimension.py scaling
    python benchmarks/one_dimension.py models
    python benchmarks/one_dimension.py rank --n 20000
    python benchmarks/one_dimension.py figures
    python benchmarks/one_dimension.py table

x ~ U[-1, 1], three steps in the mean, and noise of standard deviation |0.4 sin 10x|. Training
rows are the first n of 100,000; 1,000 validation rows choose the epoch; figures are those of
100,000 fresh points, where the density that made them (the oracle) has a log score of its own.
Each result is kept in its own file under --out, and the same command again continues where it
stopped. `figures` and `table` read these files and write to --results.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from one_dimension_figures import draw_figures
from one_dimension_fits import PEERS, Benchmark, Case
from one_dimension_table import COMPARED, RANKS, Results, write_table
from one_dimension_world import FRESH_ROWS, ROWS
from trial import RESULTS, Figures, command, parser, say

from geogp.models.catalogue.build_model import CATALOGUE

SIZES = (500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)


EXACT_LIMIT, PEER_LIMIT = 20_000, 5000
"""Rows beyond which a fit to all rows is only timed, and a peer is left out of `scaling`."""


def make_case(options: argparse.Namespace, model: str, n: int, r: int) -> Case:
    """Return the case of a model under the options.

    Models whose step goes over all rows take --exact-steps; peers take --peer-steps.
    """
    case = Case(model, n, r, h=options.h, seed=options.seed, steps=options.steps)
    if not case.whole:
        return case
    case = replace(case, learning_rate=5e-3, average=0, patience=0)
    if model in PEERS:
        rate = options.peer_learning_rate
        return replace(case, steps=options.peer_steps, learning_rate=rate, head_rate=5.0)
    return replace(case, steps=options.exact_steps if n <= EXACT_LIMIT else 0)


def cases(options: argparse.Namespace) -> list[Case]:
    """Return the cases of the part that the options name."""
    models, sizes, ranks = options.models or ["dbk-silu"], options.n or [20_000], [options.r]
    if options.part == "scaling":
        models, sizes = options.models or list(COMPARED), options.n or SIZES
        pairs = [(m, n) for n in sizes for m in models if m not in PEERS or n <= PEER_LIMIT]
    else:
        if options.part == "models":
            models = options.models or list(CATALOGUE)
        pairs = list(product(models, sizes))
    if options.part == "rank":
        ranks = options.ranks or RANKS
    return [make_case(options, model, n, r) for model, n in pairs for r in ranks]


def commands(held: Sequence[Case]) -> list[str]:
    """Return command lines, without the program, that make exactly these cases."""
    lines: dict[tuple[Any, ...], set[int]] = {}
    for case in held:
        lines.setdefault((_flags(case), case.model, case.r), set()).add(case.n)
    by_models: dict[tuple[Any, ...], list[str]] = {}
    for (flags, model, r), sizes in lines.items():
        by_models.setdefault((flags, tuple(sorted(sizes)), r), []).append(model)
    by_ranks: dict[tuple[Any, ...], list[int]] = {}
    for (flags, sizes, r), models in by_models.items():
        by_ranks.setdefault((flags, sizes, tuple(models)), []).append(r)
    found = []
    for (flags, sizes, models), ranks in by_ranks.items():
        words = ["rank", "--models", *models, "--n", *map(str, sizes), "--ranks"]
        found.append(" ".join([*words, *map(str, sorted(ranks)), *flags]))
    return found


def _flags(case: Case) -> tuple[str, ...]:
    """Return the options of a case that are not the usual ones."""
    usual = make_case(parse(["rank"]), case.model, case.n, case.r)
    before = "peer-" if case.model in PEERS else "exact-" if case.whole else ""
    words: list[str] = []
    for name, value in asdict(case).items():
        if value != getattr(usual, name):
            prefix = before if name in {"steps", "learning_rate"} else ""
            words += [f"--{prefix}{name.replace('_', '-')}", f"{value:g}"]
    return tuple(words)


def _rows(text: str) -> int:
    value = int(text)
    if not 2 <= value <= ROWS:
        raise argparse.ArgumentTypeError(f"expected 2 to {ROWS} rows, found {value}")
    return value


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    asked = parser(__doc__, out="one-dimension")
    parts = ["target", "scaling", "models", "rank", "figures", "table"]
    asked.add_argument("part", choices=parts)
    asked.add_argument("--json", action="store_true", help="print one JSON list")
    asked.add_argument("--results", type=Path, default=RESULTS / "one-dimension")
    asked.add_argument("--models", nargs="+", choices=[*CATALOGUE, *PEERS])
    asked.add_argument("--n", type=_rows, nargs="+", help="training rows; each part has its own")
    asked.add_argument("--r", type=int, default=128)
    asked.add_argument("--ranks", type=int, nargs="+", help="of `rank`")
    asked.add_argument("--h", type=int, default=64)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--steps", type=int, default=18_000, help="whatever n")
    asked.add_argument("--exact-steps", type=int, default=400, help="over all rows")
    asked.add_argument("--peer-steps", type=int, default=200)
    asked.add_argument("--peer-learning-rate", type=float, default=1e-2)
    return asked.parse_args(arguments)


def run(options: argparse.Namespace) -> list[Figures]:
    """Do what the options ask, and return the results of the cases."""
    if options.part in {"figures", "table"}:
        results = Results(options.out)
        options.results.mkdir(parents=True, exist_ok=True)
        if options.part == "figures":
            draw_figures(results, options.results)
        else:
            made = commands([Case(**found["case"]) for found in results.ordered()])
            write_table(results, options.results, [*made, "figures", "table"])
        return results.ordered()
    bench = Benchmark(options.out)
    say(f"oracle's log score on {FRESH_ROWS:,} fresh points: {bench.oracle:.4f}")
    return [bench.result(case) for case in cases(options)]


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Run a part of the study and print its figures."""
    options = parse(arguments)
    torch.set_flush_denormal(True)
    found = run(options)
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
