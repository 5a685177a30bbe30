"""Coverage of changes of real tiles: blocks that the model has not seen, in two quarters.

    python -m benchmarks answers.change_blocks PR --source ookla-open-data --boundaries census \
        --quarters 2022Q4..2023Q4 --targets download,upload --seeds 3

Each fit leaves out the test blocks (0.1 degrees) of the split `blocks` of one seed, in all
quarters. In each such block, the mean over the measured tiles of the first quarter is subtracted
from that of the last quarter. The difference is compared with the joint distribution of the
Gaussian process for the same tiles, and the noise of each row. Nothing was chosen from the results.

Writes JSON of each fit in the folder ``--out``, and a table of all fits. A fit that is there
already is not made again.
"""

import json
from functools import partial

import numpy as np
import pandas as pd
from scipy import sparse, stats

import geogp
from benchmarks.answers.far_from_data import rows_of
from benchmarks.markdown import mean_and_error, plus_minus, table
from benchmarks.script import Figures, kept, options_of, say, write_results
from geogp.evaluation.splits.split_names import CELL_DEGREES
from geogp.evaluation.splits.split_rows import cell_indices
from geogp.runs.pipeline.arithmetic import arithmetic

LEVELS = (0.95, 0.8)
CLASSES = {
    "all blocks": (1, np.inf),
    "1 to 4": (1, 5),
    "5 to 19": (5, 20),
    "20 or more": (20, np.inf),
}
"""Classes of the number of measured tiles in the quarter that has fewer of them."""


def both_quarters(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first and last quarter in blocks with rows in both, with ``block``.

    ``last`` says whether a row is of the last quarter.
    """
    when = pd.PeriodIndex(rows["quarter"]).asi8
    ends = rows[(when == when.min()) | (when == when.max())]
    cells = cell_indices(
        *(ends[name].to_numpy() for name in ("longitude", "latitude")), CELL_DEGREES
    )
    ends = ends.assign(
        block=np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1),
        last=pd.PeriodIndex(ends["quarter"]).asi8 == when.max(),
    )
    found = ends[ends.groupby("block")["last"].transform("nunique") == 2]
    return found.assign(block=found["block"].rank(method="dense").astype(int) - 1)


def weights_of(held: pd.DataFrame) -> sparse.csc_array:
    """Return the weights of the rows in the difference of the means of each block, (n, blocks)."""
    size = held.groupby(["block", "last"])["y"].transform("size").to_numpy()
    sign = np.where(held["last"], 1.0, -1.0)
    return sparse.csc_array((sign / size, (np.arange(len(held)), held["block"].to_numpy())))


def trial(rows: pd.DataFrame, seed: int) -> Figures:
    """Fit to the training rows of a split; return observed and predicted differences of blocks."""
    train, test = geogp.split(rows, how="blocks", random_state=seed)
    held = both_quarters(test)
    with arithmetic():
        model = geogp.FieldGP(
            x="longitude", y="latitude", time="quarter", tests="tests", devices="devices",
            preset="quick", random_state=seed,
        ).fit(train.drop(columns="y"), train["y"])  # fmt: skip
        level = model.joint(held.drop(columns="y"), seed=seed, calibrated=False)
        measured = level.measured(*held[["tests", "devices"]].to_numpy(np.float64).T)
    weights = weights_of(held)
    fewest = held.groupby(["block", "last"]).size().groupby("block").min()
    return {
        "observed": (weights.T @ held["y"].to_numpy()).tolist(),
        "predicted": level.sum_means(weights).tolist(),
        "variance": measured.sum_variances(weights, noise=True).tolist(),
        "level_variance": level.sum_variances(weights).tolist(),
        "tiles": fewest.tolist(),
    }


def summary(trials: list[Figures]) -> Figures:
    """Return coverage and errors of all blocks, and by the number of measured tiles."""
    blocks = pd.concat([pd.DataFrame(one) for one in trials], ignore_index=True)
    found = {}
    for name, (least, below) in CLASSES.items():
        part = blocks[(blocks["tiles"] >= least) & (blocks["tiles"] < below)]
        if not len(part):
            continue
        error = part["observed"] - part["predicted"]
        z = error / np.sqrt(part["variance"])
        found[name] = {
            "blocks": len(part),
            **{
                f"coverage_{100 * level:.0f}": mean_and_error(
                    z.abs() < stats.norm.ppf((1 + level) / 2)
                )
                for level in LEVELS
            },
            "sd": float(np.sqrt(part["variance"].mean())),
            "level_sd": float(np.sqrt(part["level_variance"].mean())),
            "rmse": float(np.sqrt(np.square(error).mean())),
            "rmse_no_change": float(np.sqrt(np.square(part["observed"]).mean())),
            "score_sd": float(np.sqrt(np.square(z).mean())),
        }
    return found


def page(found: dict[str, Figures], about: Figures) -> str:
    """Return the Markdown page of the summaries, by target."""
    lines = [
        (
            target,
            name,
            one["blocks"],
            *(
                f"{plus_minus(*(100 * part for part in one[f'coverage_{100 * level:.0f}']), 1)} %"
                for level in LEVELS
            ),
            *(f"{one[key]:.3f}" for key in ("sd", "rmse", "rmse_no_change", "level_sd")),
            f"{one['score_sd']:.2f}",
        )
        for target, classes in found.items()
        for name, one in classes.items()
    ]
    header = (
        *("target", "measured tiles", "blocks", "coverage of 95 %", "coverage of 80 %"),
        *("sd", "RMSE", "RMSE, no change", "sd of the level", "score"),
    )
    return f"""# Changes of blocks that the model has not seen

Made by `benchmarks/answers/change_blocks.py` from mobile tiles of {about["region"]},
{about["quarters"]}, with the seeds 0 to {about["seeds"] - 1}. Each fit of `field` (preset `quick`)
leaves out the test blocks (0.1 degrees) of the split `blocks` in all quarters. The observed
difference of a block is the mean of log10 over its measured tiles in the last quarter, less the
mean over its measured tiles in the first quarter. The two quarters have different tiles. The stated
distribution is the joint distribution of the Gaussian process for these tiles, with the noise of
each row; `geogp change` has the levels of the map, and wider intervals.

- Measured tiles: the smaller of the numbers of the two quarters.
- Coverage: share of the stated intervals that contain the observed difference ± standard error,
  for independent blocks. A block can be a test block of several seeds.
- sd and RMSE: root mean squares of the stated standard deviation, and of the error. RMSE, no
  change: the error of the prediction that nothing changed. sd of the level: without noise.
- Score: root mean square of the error in stated standard deviations; 1 if they are right.

{table(header, lines)}"""


def main() -> None:
    """Make the fits of all seeds, and write JSON and table."""
    options = options_of(
        __doc__, out="change-blocks", table="change", region=True, targets="download", seeds=3
    )
    found = {}
    for target in options.targets.split(","):
        rows, trials = rows_of(options, options.region, target), []
        for seed in range(options.seeds):
            path = options.out / f"{options.region}-{target}-{seed}.json"
            kept(path, partial(trial, rows, seed))
            trials.append(json.loads(path.read_text()))
            say(target, seed, len(trials[-1]["tiles"]))
        found[target] = summary(trials)
    about = {name: getattr(options, name) for name in ("region", "quarters", "seeds")}
    write_results(options.table, page(found, about), {"about": about, "targets": found}, "blocks")
    print(page(found, about))
