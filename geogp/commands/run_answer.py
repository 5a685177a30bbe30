"""What commands on a finished run share: which run they ask, and what they answer."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from geogp.runs.open_run import Run, open_run
from geogp.runs.progress import Watcher
from geogp.runs.run_places import AS_TOLD, ReadFrom


@dataclass(frozen=True)
class RunRequest:
    """Which finished run is asked.

    Attributes
    ----------
    run
        Its folder.
    device
        ``auto``, ``cpu`` or ``cuda``.
    read_from
        Where the run's tiles and boundaries are, where not as its run.json says.
    """

    run: Path
    device: str = field(default="auto", kw_only=True)
    read_from: ReadFrom = field(default=AS_TOLD, kw_only=True)

    def opened(self, watcher: Watcher | None) -> Run:
        """Return the run; see `open_run`."""
        return open_run(
            self.run, device=self.device, read_from=self.read_from, watcher=watcher or Watcher()
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
