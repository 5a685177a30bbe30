"""The stored predictions of the test rows of a finished run."""

from pathlib import Path

import pandas as pd
import pyarrow as pa

from geogp.errors import DataError
from geogp.geodata.places.stratum_column import with_strata
from geogp.geodata.tiles.parquet_files import read_table
from geogp.records.run_record import RunRecord
from geogp.runs.file_records import damaged_files
from geogp.runs.run_folder import PREDICTIONS_FILE


def read_predictions(path: Path, run: RunRecord) -> pd.DataFrame:
    """Return the test predictions of a finished run; raise DataError if the file changed."""
    if damaged_files(path, run, [PREDICTIONS_FILE]):
        raise DataError(
            f"expected {path / PREDICTIONS_FILE} with the size and SHA-256 that run.json records, "
            "found another content. Was one of the files edited? Run `geogp map` again with "
            "--fresh."
        )
    try:
        predictions: pd.DataFrame = read_table(path / PREDICTIONS_FILE).to_pandas()
    except DataError:
        raise
    except (OSError, ValueError, TypeError, LookupError, pa.ArrowException) as error:
        raise DataError(f"{path / PREDICTIONS_FILE} is damaged ({error}).") from error
    if "stratum" in predictions:
        predictions = with_strata(predictions, run.strata)
    return predictions
