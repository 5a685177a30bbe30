"""The files that a user names with ``--out``: which ones a command may overwrite.

All commands follow one rule. Nothing is written into a run folder, and the inputs of a command and
of its runs are never overwritten. A file that the same command wrote, and that is unchanged since
then, is overwritten; other files only with ``--force``.

geogp recognises its own files by the list `WRITTEN_FILE` beside them, which has the SHA-256 of each
written file. So the rule works for all formats, and protects a file that the user has edited.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from geogp.errors import DataError, RequestError
from geogp.files import ELSEWHERE, check_folder, check_path, read_json, sha256_of, write_bytes
from geogp.geodata.places.file_choice import existing_path
from geogp.runs.run_folder import run_folder_of
from geogp.runs.run_identity import input_paths
from geogp.runs.run_names import RUN_FILE, RUNS, printable

WRITTEN_FILE = ".geogp-written"
"""Name of the list of the files in a folder that geogp wrote; see `OutputFiles.write`."""

_TITLE = "# SHA-256, command and name of files that geogp wrote here, and may overwrite\n"


class OutputFiles:
    """The files that a command is about to write; make this object before the work of the command.

    Parameters
    ----------
    command
        Name of the command, such as ``at``.
    paths
        The files that the command may write.
    reads
        The inputs of the command: files, folders, or texts such as ``FILE:COLUMN``. Addresses, and
        texts that are no path, are ignored.
    runs
        The run folders that the command reads.
    own
        Whether the command wrote these files, if it knows that without the list `WRITTEN_FILE`.
    force
        Whether to overwrite files that the command did not write.
    cure
        Advice to the user if a file may not be written.

    Raises
    ------
    RequestError
        A path is a folder or in a run folder, or a file may not be overwritten.
    """

    def __init__(
        self,
        command: str,
        paths: Iterable[Path],
        *,
        reads: Iterable[Path | str | None] = (),
        runs: Sequence[Path] = (),
        own: bool = False,
        force: bool = False,
        cure: str = ELSEWHERE,
    ) -> None:
        self._command, self._own, self._force, self._cure = command, own, force, cure
        self._reads, self._runs = tuple(reads), tuple(runs)
        for path in paths:
            self.check(path)

    def check(self, path: Path) -> None:
        """Raise RequestError if the command may not write a file; see `OutputFiles`."""
        check_path(path)
        check_folder(path.parent)
        folder = run_folder_of(path)
        if folder is not None:
            raise self._refusal(
                f"{path} is in the run folder {folder}, but the output of geogp {self._command} "
                "needs a folder of its own."
            )
        if not os.path.lexists(path):
            return
        if path.is_dir():
            raise self._refusal(f"expected a file, found the folder {path}.")
        own = self._own or self.is_own(path)
        for kept, what in self._kept:
            if _same_file(path, kept) or (not own and _is_below(path, kept)):
                raise self._refusal(
                    f"{path} is {what}, which geogp never overwrites, even with --force."
                )
        if not (own or self._force):
            raise RequestError(
                f"{path} exists, and geogp {self._command} did not write it, or it was changed "
                f"since then. To keep it, {self._cure}; to overwrite it, add --force."
            )

    def write(self, path: Path, content: bytes) -> None:
        """Write a file as `write_bytes` does, and add it to the list `WRITTEN_FILE`.

        The file is checked again, because another process may have written it meanwhile.
        """
        self.check(path)
        _remember(path, self._command, hashlib.sha256(content).hexdigest())
        write_bytes(path, content)

    def is_own(self, path: Path) -> bool:
        """Return whether the command wrote a file, and the file is unchanged since then."""
        lines = [line.split()[:2] for line in _written(path)]
        with suppress(OSError):
            # A named pipe has no content to compare, and reading it would wait forever.
            return path.is_file() and [sha256_of(path), self._command] in lines
        return False

    @cached_property
    def _kept(self) -> list[tuple[Path, str]]:
        """What no command may overwrite: each file or folder, and what it is in words.

        The runs are those that the command reads, and those in the default folder of runs.
        """
        read = (existing_path(str(path)) for path in self._reads if path is not None)
        kept = [(path, "an input of this command") for path in read if path is not None]
        for run in (*self._runs, *(path.parent for path in RUNS.glob(f"*/{RUN_FILE}"))):
            own = list(run.iterdir()) if run.is_dir() else []
            kept += [(path, f"a file of the run {run}") for path in own]
            kept += [(path, f"an input of the run {run}") for path in _inputs_of(run)]
        return kept

    def _refusal(self, text: str) -> RequestError:
        return RequestError(f"{text} {self._cure[0].upper()}{self._cure[1:]}.")


def _inputs_of(run: Path) -> list[Path]:
    """Return the inputs of a run that run.json names; none if run.json cannot be read."""
    with suppress(DataError, LookupError, TypeError, AttributeError):
        return input_paths(read_json(run / RUN_FILE)["settings"])
    return []


def _same_file(path: Path, other: Path) -> bool:
    """Return whether two paths are one file, also by links or by the case of letters."""
    try:
        return path.samefile(other)
    except OSError:  # a link to a missing file
        return False


def _is_below(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def _written(path: Path) -> list[str]:
    """Return the lines of the list beside a file; none if there is no such list."""
    with suppress(OSError, ValueError):
        return path.with_name(WRITTEN_FILE).read_text("utf-8").splitlines(keepends=True)
    return []


def _remember(path: Path, command: str, digest: str) -> None:
    """Append a file to the list beside it; several processes may append at the same time.

    If the list cannot be written, the next call of the command needs ``--force``.
    """
    line, lines = f"{digest} {command} {printable(path.name)}\n", _written(path)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if line not in lines:
            with path.with_name(WRITTEN_FILE).open("a", encoding="utf-8") as stream:
                stream.write(line if lines else _TITLE + line)
