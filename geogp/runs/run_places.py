"""Where a run that is opened again reads its tiles and boundaries from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geogp.errors import RequestError
from geogp.geodata.store.addresses import PUBLIC_BOUNDARIES, PUBLIC_SOURCE, is_address

_OWN = {"source": ("tiles", PUBLIC_SOURCE), "boundaries": ("boundaries", PUBLIC_BOUNDARIES)}
"""What is read from each place, and the address that geogp itself would take."""


@dataclass(frozen=True)
class ReadFrom:
    """Where a user says that a run's tiles and boundaries are; None takes what run.json says.

    What it says is somebody else's word: it may name a folder, or one of geogp's own addresses,
    but no other address, which would be asked because of it.
    """

    source: str | None = None
    boundaries: str | None = None

    def places(self, file: Path, settings: dict[str, Any]) -> tuple[str, str | None]:
        """Return the source and the boundaries of a run.

        Parameters
        ----------
        file
            Its run.json.
        settings
            What it holds under that name.

        Raises
        ------
        RequestError
            Its run.json names another address, which the user has not.
        """
        for key in ("region_file", "strata_file"):
            if is_address(settings.get(key) or ""):
                raise RequestError(
                    f"{file} takes polygons from {settings[key]!r}, which is no file of this "
                    "machine. Make the run again with --fresh."
                )
        found = []
        for key, (what, own) in _OWN.items():
            held, named = settings[key], getattr(self, key)
            if named is None and held not in {None, own} and is_address(held):
                raise RequestError(
                    f"{file} takes its {what} from {held!r}. An address that somebody else wrote "
                    f"is asked only where you name it: give --{key} with that address, or with a "
                    "folder or address of yours that holds the same files."
                )
            found.append(held if named is None else named)
        source, boundaries = found
        return source, boundaries


AS_TOLD = ReadFrom()
"""Where run.json says."""
