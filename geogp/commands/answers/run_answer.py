"""Shared parts of commands on a finished run: how to open the run, and the form of the answer."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from geogp.commands.run_requests import RunRequest
from geogp.runs.pipeline.arithmetic import arithmetic
from geogp.runs.progress import ProgressListener
from geogp.runs.run_folder import locked_run
from geogp.runs.run_places import RunPlaces

if TYPE_CHECKING:
    from geogp.runs.open_run import Run
    from geogp.runs.reopen import Reopened


def open_requested(request: RunRequest, listener: ProgressListener | None) -> "Run":
    """Open the run of a request; see `open_run`."""
    from geogp.runs.open_run import open_run  # noqa: PLC0415 - slow, and `geogp at` needs it rarely

    return open_run(
        request.run,
        device=request.device,
        read_from=RunPlaces(request.source, request.boundaries),
        listener=listener or ProgressListener(),
    )


@contextmanager
def reopened(
    request: RunRequest, listener: ProgressListener | None, **given: Any
) -> "Iterator[Reopened]":
    """Lock and open the run of a request; `given` contains the arguments of `Run.reopen`.

    Raises RequestError if there is no finished run, the model predicts numbers of tests, there is
    too little memory, or another process is using the run. Raises DataError if a file is damaged or
    differs from the run's inputs. At the end, the pages of the run show the new answer.
    """
    from geogp.runs.run_pages import show_answers  # noqa: PLC0415 - slow, not for `geogp at`

    with locked_run(request.run) as record, arithmetic(precision=record.precision):
        yield open_requested(request, listener).reopen(**given)
        show_answers(request.run)


@dataclass(frozen=True)
class RunAnswer:
    """The result of a command: files in the run folder, a table, and facts for JSON."""

    files: tuple[Path, ...]
    table: pd.DataFrame
    described: dict[str, Any]

    def described_with(self, rows: str) -> dict[str, Any]:
        """Return the whole result for JSON, with the rows of the table under the key `rows`."""
        files = [str(path) for path in self.files]
        return {**self.described, "files": files, rows: plain_rows(self.table)}


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table for JSON, with null in empty cells."""
    return [
        {str(name): _plain(value) for name, value in row.items()}
        for row in table.to_dict(orient="records")
    ]


def _plain(value: Any) -> Any:
    """Return a value of a table for JSON: dates and other objects as text, empty cells as None."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int) else str(value)
