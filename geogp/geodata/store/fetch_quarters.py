"""Parallel download of a region's tiles in several quarters."""

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from geogp.errors import DataError, UnreachableError
from geogp.geodata.places.region import Region
from geogp.geodata.store.remote import Transfer
from geogp.geodata.store.sources import LocalFile, Source
from geogp.geodata.tiles.parquet_files import reading_process, stop_reading
from geogp.geodata.tiles.quarters import quarter_label
from geogp.geodata.tiles.tile_files import tile_file

PARALLEL = 4  # quarters that are downloaded at the same time

_HERE = frozenset({"localhost", "127.0.0.1", "::1"})  # hosts that need no network

Progress = Callable[[int, int, str], None]
"""A function that gets the numbers of finished quarters and of all quarters, and a text."""


@dataclass(frozen=True)
class QuarterFiles:
    """The file of each requested quarter, and the quarters without a file.

    The source has no file for the `missing` quarters. For the `unreached` quarters, the source did
    not answer, and the cache has no file.
    """

    files: Mapping[int, LocalFile]
    missing: tuple[int, ...] = ()
    unreached: Mapping[int, UnreachableError] = field(default_factory=dict)

    def check_named(self, named: Collection[int], where: str, service: str) -> None:
        """Raise UnreachableError or DataError if a quarter that the user named has no file."""
        for quarter, error in self.unreached.items():
            if quarter in named:
                raise error
        absent = [quarter for quarter in self.missing if quarter in named]
        if absent:
            raise DataError(
                f"{_labels(absent)} {'was' if len(absent) == 1 else 'were'} requested but {where} "
                f"has no {tile_file(service, absent[0])}. Leave the quarter out, or give a range: "
                f"a range may have gaps."
            )

    def warnings(self, where: str) -> list[str]:
        """Return warnings: data read without TLS, no answer from the source, or changed files."""
        texts = []
        parts = urlsplit(where)
        if parts.scheme == "http" and parts.hostname not in _HERE and self.files:
            texts.append(
                f"{where} is read without TLS: the data could have been changed on the way. If "
                f"the server has an https:// address, use it."
            )
        unchecked = [quarter for quarter, file in self.files.items() if not file.checked]
        if unchecked:
            texts.append(
                f"{where} could not be reached to check for changed files: the files of "
                f"{_labels(unchecked)} come from the cache, unchecked."
            )
        if self.unreached:
            texts.append(
                f"{where} could not be reached. These quarters are not in the cache, so they are "
                f"left out: {_labels(self.unreached)}. When the network works again, geogp fetch "
                "downloads them."
            )
        changed = {
            q: file.note.date for q, file in self.files.items() if file.changed and file.note
        }
        if changed:
            since = min(changed.values())[:10]
            texts.append(
                f"{where} has changed the files of {_labels(changed)} since the download on "
                f"{since}; geogp fetch --refresh downloads the new files."
            )
        return texts


@reading_process()
def fetch_quarters(
    source: Source,
    region: Region,
    service: str,
    quarters: Sequence[int],
    *,
    refresh: bool = False,
    progress: Progress | None = None,
) -> QuarterFiles:
    """Return the files with a region's rows in several quarters, after downloads if necessary.

    If `refresh` is true, files that changed at the source are downloaded again. During a download
    over a network, `progress` is called about every half second. If the download fails or is
    stopped, complete quarters stay in the cache, and the next call continues the other quarters
    where they stopped. Raises the errors of `Web.local_file`. UnreachableError has two possible
    causes: no quarter is cached, or the source answered for other quarters.
    """
    transfer = Transfer()
    with ThreadPoolExecutor(PARALLEL) as pool:
        tasks = {
            pool.submit(
                source.local_file,
                tile_file(service, quarter),
                region.code_ranges,
                transfer,
                refresh=refresh,
            ): quarter
            for quarter in quarters
        }
        try:
            _watch(tasks, transfer, progress)
        except BaseException:
            transfer.stopped.set()
            stop_reading()
            pool.shutdown(cancel_futures=True)
            raise
    errors = {quarter: task.exception() for task, quarter in tasks.items()}
    unreached = {q: error for q, error in errors.items() if isinstance(error, UnreachableError)}
    answers = {
        quarter: task.result() for task, quarter in tasks.items() if quarter not in unreached
    }
    files = {quarter: file for quarter, file in answers.items() if file is not None}
    missing = tuple(quarter for quarter in answers if quarter not in files)
    answered = missing or any(file.checked for file in files.values())
    if unreached and (answered or not files):
        raise next(iter(unreached.values()))
    return QuarterFiles(files, missing, unreached)


def _watch(
    tasks: Mapping[Future[LocalFile | None], int], transfer: Transfer, progress: Progress | None
) -> None:
    """Wait for all downloads; raise the first error other than UnreachableError at once."""
    waiting = set(tasks)
    while waiting:
        done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
        for task in done:
            error = task.exception()
            if error is not None and not isinstance(error, UnreachableError):
                raise error
        if progress is not None and transfer.received:
            note = f"{transfer.received / 1e6:.1f} MB read"
            progress(len(tasks) - len(waiting), len(tasks), note)


def _labels(quarters: Sequence[int] | Mapping[int, object]) -> str:
    return ", ".join(map(quarter_label, sorted(quarters)))
