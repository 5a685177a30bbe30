"""Checks that all workers share the folder of a batch with this machine."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from geogp.commands.batch.batch_place import Place
from geogp.errors import LONGEST_PATH, RequestError, named
from geogp.files import write_text


def check_shared(place: Place, ask: Callable[..., dict[str, Any]]) -> list[str]:
    """Return the addresses of the workers that read and write the files of this machine.

    `ask` calls a function on workers, and returns the results or errors by address. A lost worker
    is left out. Raises RequestError if a worker has another folder under the path of the batch.
    """
    # A new name each time, because a network file system remembers for a while what was absent.
    probe = place.folder / f".geogp-probe-{uuid4().hex}"
    write_text(probe, "")
    try:
        answers = {
            worker: answer
            for worker, answer in ask(answer_probe, probe).items()
            if not isinstance(answer, OSError)
        }
        apart = [
            f"{worker} ({answer if isinstance(answer, Exception) else 'its files are not here'})"
            for worker, answer in answers.items()
            if isinstance(answer, Exception) or not answer.is_file()
        ]
    finally:
        for path in place.folder.glob(f"{probe.name}*"):
            path.unlink()
    if apart:
        raise RequestError(
            f"expected workers that share the folder of the batch, {place.folder}, with this "
            f"machine; these workers do not: {named(apart, longest=LONGEST_PATH)}. Choose a folder "
            f"that all machines share with {place.option}, or stop these workers."
        )
    return list(answers)


def answer_probe(probe: Path) -> Path:
    """Return a new copy of the file `probe` in its folder.

    Raises RequestError if this worker cannot copy the file. Dask itself raises OSError for a lost
    worker.
    """
    try:
        return shutil.copyfile(probe, probe.with_name(f"{probe.name}-{uuid4().hex}"))
    except OSError as error:
        raise RequestError(str(error)) from error
