"""What commands on a finished run share: which run they ask, and what they answer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from geogp.commands.run_requests import RunRequest
from geogp.runs.open_run import Run, open_run
from geogp.runs.progress import ProgressListener


def open_asked(request: RunRequest, listener: ProgressListener | None) -> Run:
    """Return the run that a request names; see `open_run`."""
    return open_run(
        request.run,
        device=request.device,
        read_from=request.read_from,
        listener=listener or ProgressListener(),
    )


@dataclass(frozen=True)
class RunAnswer:
    """What was found, and where it was written.

    Attributes
    ----------
    files
        The files in the run folder.
    table
        A row for each thing that was asked for.
    described
        What holds for all, as JSON can hold it.
    """

    files: tuple[Path, ...]
    table: pd.DataFrame
    described: dict[str, Any]

    def described_with(self, rows: str) -> dict[str, Any]:
        """Return all of it as JSON can hold it, the rows of the table under a name."""
        return {
            **self.described,
            "files": [str(path) for path in self.files],
            rows: self.table.to_dict(orient="records"),
        }
