"""`FieldGP` of several targets, compared with a fit of each, and the probabilities of tiers.

    python -m benchmarks accuracy.several --source ookla-open-data --boundaries census

Real tiles: Puerto Rico, and a part of the rows of Missouri and of the demo region, with download,
upload and latency, in a split at random and one by blocks. Each fit is a process of its own, whose
peak memory is stored. Simulated tiles: worlds with a known truth (see `several_worlds.py`). Each
fit, each split and each world has its own file under --out. Writes a Markdown and a JSON file.
"""

import argparse
import multiprocessing
import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import geogp
from benchmarks.peak_memory import peak_bytes
from benchmarks.script import (
    HERE,
    Figures,
    Floats,
    clock,
    kept,
    machine,
    parser,
    say,
    write_results,
)
from benchmarks.several_page import page
from benchmarks.several_worlds import CASES, measured
from geogp.arrays import Mask, Numbers
from geogp.distributions.joint_prediction import JointPrediction
from geogp.estimators.estimator_classes import PlaceClassGP
from geogp.evaluation.class_scores import class_row_scores, class_scores
from geogp.evaluation.paired import paired_estimates
from geogp.evaluation.simultaneous_coverage import independent_parts
from geogp.evaluation.splits.split_names import BLOCKS, RANDOM
from geogp.evaluation.threshold_reliability import ClassEvent, exceedance_reports
from geogp.geodata.places.stratum_names import UNKNOWN
from geogp.geodata.tiles.targets import SPEED_TIERS, TOGETHER, tier_codes
from geogp.geodata.tiles.tiers import Tier, tiers_of
from geogp.runs.pipeline.arithmetic import arithmetic

REGIONS = {"PR": "2023Q1..2023Q4", "MO": "2020Q4", "DEMO": "2023Q1..2023Q4"}
"""Quarters of each region."""

LARGEST = {"MO": 8_000, "DEMO": 8_000}
"""Number of rows that are drawn from larger regions, so that all fits take less than an hour."""

TESTS = {"1 test": (1, 1), "2 to 5": (2, 5), "6 to 20": (6, 20), "21 or more": (21, np.inf)}
"""Smallest and largest number of tests of each class."""

LEAST_SHARE = 1e-6
"""Smallest probability of a class: differences of tiers have errors of their integrals."""

TIERS = tiers_of(",".join(TOGETHER))
"""The default tiers; the first are those of `SPEED_TIERS`."""


class Fit(NamedTuple):
    """Predictions of the test rows, CPU seconds of fit and prediction, and the peak memory."""

    law: Any
    fit_seconds: float
    predict_seconds: float
    peak_bytes: int


class Rows(NamedTuple):
    """Training and test rows of a split, with a column for each target."""

    train: pd.DataFrame
    test: pd.DataFrame
    how: str
    epochs: int | None

    @property
    def y(self) -> Floats:
        """The targets of the test rows, (n, t)."""
        return self.test[list(TOGETHER)].to_numpy(np.float64)

    @property
    def codes(self) -> Numbers:
        """The mobile tier of each test row, (n,)."""
        return codes_of(self.test)

    def groups(self) -> dict[str, Mask]:
        """Return the masks of all test rows, and of those of strata and of classes of tests."""
        tests, stratum = self.test["tests"], self.test["stratum"].astype(str)
        found = {"all": np.ones(len(tests), bool)}
        found |= {name: (stratum == name).to_numpy() for name in sorted(set(stratum))}
        found |= {k: tests.between(*ends).to_numpy() for k, ends in TESTS.items()}
        return {name: mask for name, mask in found.items() if mask.any()}


def rows_of(options: argparse.Namespace, code: str, how: str) -> Rows:
    """Return the rows of a region, with a column for each target, in a split."""
    demo = HERE.parent / "data" / "demo"
    source = demo if code == "DEMO" else options.source
    region = geogp.read_region(
        code, boundaries=demo / "boundaries" if code == "DEMO" else options.boundaries
    )
    found = None
    for target in TOGETHER:
        read = geogp.read_tiles(region, target=target, quarters=REGIONS[code], source=source)
        own = pd.DataFrame(read.drop(columns="geometry")).rename(columns={"y": target})
        same = ["quadkey", "quarter"]
        found = own if found is None else found.merge(own[[*same, target]], on=same)
    assert found is not None, "there are targets"
    if code in LARGEST:
        found = found.sample(LARGEST[code], random_state=0).sort_index()
    found["rural"] = (found["stratum"] == "rural").astype(float)
    found["log_tests"] = np.log10(found["tests"])
    return Rows(*geogp.split(found.assign(y=found[TOGETHER[0]]), how=how), how, options.epochs)


def codes_of(rows: pd.DataFrame) -> Numbers:
    """Return the numbers of the mobile tiers, (n,)."""
    speeds = (10 ** rows[name].to_numpy(np.float64) for name in ("download", "upload"))
    return np.asarray(tier_codes(*speeds, "mobile"))


def fit(rows: Rows, name: str) -> Fit:
    """Fit all targets together ("joint"), one target, or the classes ("classes")."""
    place: Figures = {"x": "longitude", "y": "latitude", "time": "quarter"}
    how: Figures = {"preset": "quick", "validation": rows.how, "epochs": rows.epochs}
    start = clock("cpu")
    with arithmetic():
        if name == "classes":
            inputs, count = ["rural", "log_tests"], len(SPEED_TIERS["mobile"])
            model: Any = PlaceClassGP(**place, **how, covariates=inputs, classes=count)
            y: Any = codes_of(rows.train)
        else:
            y = rows.train[list(TOGETHER) if name == "joint" else name]
            model = geogp.FieldGP(**place, **how, tests="tests", devices="devices")
        model.fit(rows.train.drop(columns=["y", *TOGETHER]), y)
        done = clock("cpu")
        law = model.predict_distribution(rows.test.drop(columns=["y", *TOGETHER]))
    law = law.probabilities if name == "classes" else law
    return Fit(law, done - start, clock("cpu") - done, peak_bytes())


def fits(rows: Rows, stem: Path) -> dict[str, Fit]:
    """Return all fits to the rows; one without a file is made in a process of its own."""
    found = {}
    for name in ("joint", *TOGETHER, "classes"):
        path = stem.with_name(f"{stem.name}-{name}.pickle")
        if not path.exists():
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                made = pool.apply(fit, (rows, name))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pickle.dumps(made))
            say(f"{path.stem}: {made.fit_seconds:.0f} CPU s")
        found[name] = pickle.loads(path.read_bytes())  # noqa: S301 - a file of this script
    return found


def difference(first: Floats, second: Floats, blocks: Numbers) -> list[float | None]:
    """Return the mean of first - second, and its standard error, from blocks of rows."""
    found = paired_estimates((first - second)[:, None], blocks)[0]
    return [found.value, found.error]


def target_figures(rows: Rows, made: dict[str, Fit], blocks: Numbers) -> Iterator[Figures]:
    """Yield the scores of each target, by the joint fit and by its own."""
    for k, name in enumerate(TOGETHER):
        y, laws = rows.y[:, k], {"joint": made["joint"].law.marginals[k], "single": made[name].law}
        scores = {key: law.log_score(y) for key, law in laws.items()}
        line: Figures = {"target": name}
        for key, law in laws.items():
            low, high = law.interval(0.95)
            line[key] = {
                "log_score": float(scores[key].mean()),
                "crps": float(law.crps(y).mean()),
                "coverage": float(((low <= y) & (y <= high)).mean()),
            }
        yield line | {"difference": difference(scores["joint"], scores["single"], blocks)}


def together(rows: Rows, laws: dict[str, JointPrediction], blocks: Numbers) -> Iterator[Figures]:
    """Yield the scores of all targets together, by the joint fit and by independent targets."""
    unit = rows.train[list(TOGETHER)].std().to_numpy()
    scores = {k: (law.joint_log_score(rows.y), law.energy_score(rows.y, scale=unit))
              for k, law in laws.items()}  # fmt: skip
    for name, (log, energy) in scores.items():
        yield {
            "law": name,
            "log_score": float(log.mean()),
            "energy": float(energy.mean()),
            "log_less_joint": difference(log, scores["joint"][0], blocks),
            "energy_less_joint": difference(energy, scores["joint"][1], blocks),
        }


def correlations(rows: Rows, law: JointPrediction, blocks: Numbers) -> Iterator[Figures]:
    """Yield the correlation of normal scores of each pair, seen and stated, in each group."""
    z = law.normal_scores(rows.y)
    for (group, mask), (i, j) in product(rows.groups().items(), combinations(range(3), 2)):
        a, b = ((z[mask, k] - z[mask, k].mean()) / z[mask, k].std() for k in (i, j))
        stated = law.correlation[mask, i, j]
        yield {
            "group": group,
            "n": int(mask.sum()),
            "pair": [TOGETHER[i], TOGETHER[j]],
            "seen": float((a * b).mean()),
            "stated": float(stated.mean()),
            "difference": difference(a * b, stated, blocks[mask]),
        }


def tier_figures(rows: Rows, laws: dict[str, JointPrediction]) -> Iterator[Figures]:
    """Yield share, stated probability and Brier score of each tier in each group of test rows."""
    parts = ("n", "observed", "stated", "brier", "reliability", "resolution", "uncertainty")
    for tier in TIERS:
        reached = tier.holds(rows.y, TOGETHER)
        p = {name: tier.probability(law) for name, law in laws.items()}
        whole = rows.test.assign(y=reached.astype(float), stratum=UNKNOWN)
        for group, mask in rows.groups().items():
            own, event = p["joint"][mask], ClassEvent(1, tier.name)
            report = exceedance_reports(whole[mask], lambda _, own=own: own, [event])[0]
            yield {
                "tier": tier.name,
                "group": group,
                **{name: getattr(report, name) for name in parts},
                "band": [report.difference.lower, report.difference.upper],
                "bins": len(report.bins),
                "bins_off": sum(one.difference.off for one in report.bins),
                "others": {
                    name: [float(p[name][mask].mean()), _brier(p[name][mask], reached[mask])]
                    for name in laws
                    if name != "joint"
                },
            }


def _brier(p: Floats, reached: Mask) -> float:
    return float(np.square(p - reached).mean())


def class_probabilities(law: JointPrediction, tiers: Sequence[Tier]) -> Floats:
    """Return the probability of each mobile tier, (n, 4), from those of reaching it or a higher."""
    reaching = [np.ones(len(law)), *(tier.probability(law) for tier in tiers), np.zeros(len(law))]
    found = np.maximum(-np.diff(np.stack(reaching, 1), axis=1), LEAST_SHARE)
    return np.asarray(found / found.sum(1, keepdims=True))


def class_figures(
    rows: Rows, laws: dict[str, JointPrediction], classes: Floats, blocks: Numbers
) -> Iterator[Figures]:
    """Yield the scores of the mobile tiers, by the joint fit, independent targets and classes."""
    nested, codes = TIERS[: len(SPEED_TIERS["mobile"]) - 1], rows.codes
    p = {name: class_probabilities(law, nested) for name, law in laws.items()}
    shares = np.bincount(codes_of(rows.train), minlength=len(nested) + 1) / len(rows.train)
    p |= {"class-dbk": classes, "shares": np.tile(shares, (len(codes), 1))}
    scores = {name: class_row_scores(own, codes)["nll"].to_numpy() for name, own in p.items()}
    for name, own in p.items():
        yield {
            "model": name,
            **class_scores(own, codes).figures,
            "less_joint": difference(scores[name], scores["joint"], blocks),
        }


def region(options: argparse.Namespace, code: str, how: str) -> Figures:
    """Fit to a split of a region, and return all scores of its test rows."""
    rows = rows_of(options, code, how)
    made, blocks = fits(rows, options.out / f"{code}-{how}"), independent_parts(rows.test)
    joint: JointPrediction = made["joint"].law
    apart = np.tile(np.eye(len(TOGETHER)), (len(joint), 1, 1))
    laws = {
        "joint": joint,
        "independent": JointPrediction(joint.names, joint.marginals, apart),
        "single": JointPrediction(joint.names, tuple(made[k].law for k in TOGETHER), apart),
    }
    return {
        "region": code,
        "split": how,
        "quarters": REGIONS[code],
        "rows": [len(rows.train), len(rows.test)],
        "targets": list(target_figures(rows, made, blocks)),
        "together": list(together(rows, laws, blocks)),
        "correlations": list(correlations(rows, joint, blocks)),
        "tiers": list(tier_figures(rows, laws)),
        "classes": list(class_figures(rows, laws, made["classes"].law, blocks)),
        "costs": {
            name: {key: value for key, value in one._asdict().items() if key != "law"}
            for name, one in made.items()
        },
        "machine": machine(),
    }


def main() -> None:
    """Make the missing fits, and write the table."""
    asked = parser(__doc__, out="several", table="several", regions=REGIONS, worlds=3, epochs=int)
    for name in ("--source", "--boundaries"):
        asked.add_argument(name, required=True)
    options = asked.parse_args()
    found: dict[str, list[Figures]] = {"regions": [], "worlds": []}
    for code, how in product(options.regions, (RANDOM.name, BLOCKS.name)):
        make = partial(region, options, code, how)
        found["regions"].append(kept(options.out / f"{code}-{how}.json", make))
        say(code, how)
    for case, seed in product(CASES, range(options.worlds)):
        make = partial(measured, case, seed)
        found["worlds"].append(kept(options.out / f"{case}-{seed}.json", make))
        say(case, seed)
    write_results(options.table, page(found), found)
