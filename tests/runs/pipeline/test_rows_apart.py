"""What was measured at held-out rows enters nothing but what those rows are held out for.

The speeds of some rows are changed in the source's files. What comes out the same cannot have seen
them.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
from run_worlds import Small, run_json
from safetensors.numpy import load_file

from geogp.evaluation.splits.split_rows import SplitRows, split_parts
from geogp.geodata.tiles.plausibility import LIMITS
from geogp.geodata.tiles.quadkeys import codes_to_tiles, parse_quadkeys, tile_centres
from geogp.geodata.tiles.quarters import quarter_index
from geogp.models.catalogue.storage import load_model
from geogp.runs.finished_run import RunResult
from geogp.runs.pipeline.run_map import run_map

pytestmark = pytest.mark.trial

SEED, SPLITS = 4, ("random", "blocks")
PREDICTED = ["mean", "function_variance", "tile_variance", "noise_variance"]
INTERVALS = ["lower_95", "upper_95", "repair_50", "repair_95"]


@dataclass(frozen=True)
class Held:
    """A run, and runs of changed sources: of rows that are of one part in both splits."""

    plain: RunResult
    other_tests: RunResult
    other_calibration: RunResult


def rows_of(small: Small) -> pd.DataFrame:
    """Return quadkey, quarter, speed and file of all rows of the source."""
    files = zip(sorted(small.folder.rglob("*_tiles.parquet")), ("2023Q3", "2023Q4"), strict=True)
    parts = [
        pq.read_table(path, columns=["quadkey", "avg_d_kbps"])
        .to_pandas()
        .assign(path=path, quarter=quarter)
        for path, quarter in files
    ]
    return pd.concat(parts, ignore_index=True)


def rows_in(rows: pd.DataFrame, part: str) -> pd.DataFrame:
    """Return the rows that are of a part in both splits, by the definition of the splits alone.

    Without the fastest rows, whose speeds times ten would be left out as implausible.
    """
    codes = parse_quadkeys(rows["quadkey"].to_numpy())
    quarters = np.array([quarter_index(quarter) for quarter in rows["quarter"]])
    known = SplitRows(codes, quarters, *tile_centres(*codes_to_tiles(codes)))
    of = [split_parts(split, known, SEED, calibrated=True) == part for split in SPLITS]
    return rows[
        np.logical_and(*of) & (10 * rows["avg_d_kbps"] <= LIMITS["mobile"]["avg_d_kbps"].most)
    ]


def changed(small: Small, rows: pd.DataFrame, folder: Path) -> Small:
    """Return a copy of the source in which the downloads of some rows are ten times as fast."""
    shutil.copytree(small.folder, folder)
    for path, some in rows.groupby("path"):
        table = pq.read_table(path)
        place = table.column_names.index("avg_d_kbps")
        hit = np.isin(table["quadkey"].to_numpy(), some["quadkey"])
        assert hit.sum() == len(some) > 3
        speeds = table["avg_d_kbps"].to_numpy() * np.where(hit, 10, 1)
        table = table.set_column(place, table.field(place), pa.array(speeds))
        pq.write_table(table, folder / path.relative_to(small.folder))
    return Small(folder)


@pytest.fixture(scope="module")
def held(small, tmp_path_factory) -> Held:
    folder, rows = tmp_path_factory.mktemp("apart"), rows_of(small)
    sources = [small] + [
        changed(small, rows_in(rows, part), folder / part) for part in ("test", "calibration")
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("geogp.runs.pipeline.write.write_report", lambda *_: None)
        patch.setattr("geogp.runs.pipeline.draw.kernel_basis", lambda *_: None)
        return Held(
            *(
                run_map(
                    source.request(
                        folder / f"run {number}",
                        split="both",
                        conformal="marginal",
                        seed=SEED,
                        epochs=1,
                        zoom=11,
                    )
                )
                for number, source in enumerate(sources)
            )
        )


def table_of(run: RunResult) -> pd.DataFrame:
    return pd.read_parquet(run.path / "test_predictions.parquet")


def assert_same_model(one: RunResult, other: RunResult) -> None:
    """Compare the weights, what they are scaled by, the epoch that was chosen and its score."""
    paths = [run.path / "model.safetensors" for run in (one, other)]
    assert load_model(paths[0])[1] == load_model(paths[1])[1]
    weights, others = (load_file(path) for path in paths)
    assert set(weights) == set(others)
    for name, values in weights.items():
        np.testing.assert_array_equal(values, others[name])


def grid_of(run: RunResult) -> xr.Dataset:
    with xr.open_dataset(run.path / "grid.nc", engine="h5netcdf") as grid:
        return grid.load()


def test_what_test_rows_measured_changes_their_scores_alone(held):
    """Neither a fit, the choice of an epoch, a repair, a prediction nor the map has seen it."""
    plain, other = held.plain, held.other_tests
    before, after = table_of(plain), table_of(other)
    moved = before["y"] != after["y"]
    for split in SPLITS:
        assert 3 < moved[before["split"] == split].sum() < (before["split"] == split).sum() / 2
        was, now = (run_json(run)["metrics"][split]["all"]["nll"] for run in (plain, other))
        assert now > was + 0.1
    pd.testing.assert_frame_equal(before.drop(columns="y"), after.drop(columns="y"), rtol=0)
    assert_same_model(plain, other)
    assert run_json(other)["calibration"]["cells"] == run_json(plain)["calibration"]["cells"]
    xr.testing.assert_equal(grid_of(other), grid_of(plain))


def test_what_calibration_rows_measured_changes_the_repairs_alone(held):
    plain, other = held.plain, held.other_calibration
    before, after = table_of(plain), table_of(other)
    for name in ("y", *PREDICTED):
        np.testing.assert_array_equal(before[name], after[name])
    assert_same_model(plain, other)
    for split in SPLITS:  # each fold has a repair of its own
        of = before["split"] == split
        for name in INTERVALS:
            assert (before[name][of] != after[name][of]).all()
    assert (after["upper_95"] > before["upper_95"]).all()
    assert run_json(other)["calibration"]["cells"] != run_json(plain)["calibration"]["cells"]
    was, now = grid_of(plain), grid_of(other)
    inside = np.isfinite(was["upper_mbps"])
    assert (now["upper_mbps"] > was["upper_mbps"]).to_numpy()[inside].all()
    xr.testing.assert_equal(now["median_mbps"], was["median_mbps"])
