"""Where a run that is opened again reads its tiles and boundaries from."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from geogp.errors import RequestError
from geogp.geodata.store.addresses import PUBLIC_BOUNDARIES, PUBLIC_SOURCE, is_address

if TYPE_CHECKING:
    from geogp.records.run_record import OpenedSettings

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

    def places(self, file: Path, settings: "OpenedSettings") -> tuple[str, str | None]:
        """Return the source and the boundaries of a run.

        Parameters
        ----------
        file
            Its run.json.
        settings
            Its settings.

        Raises
        ------
        RequestError
            Its run.json names another address, which the user has not.
        """
        for text in (settings.region_file, settings.strata_file):
            if is_address(text or ""):
                raise RequestError(
                    f"{file} takes polygons from {text!r}, which is no file of this machine. Make "
                    "the run again with --fresh."
                )
        source, boundaries = settings.source, settings.boundaries
        if self.source is None:
            _check_own(file, source, "tiles", "source", PUBLIC_SOURCE)
        if self.boundaries is None and boundaries is not None:
            _check_own(file, boundaries, "boundaries", "boundaries", PUBLIC_BOUNDARIES)
        return (
            source if self.source is None else self.source,
            boundaries if self.boundaries is None else self.boundaries,
        )


def _check_own(file: Path, held: str, what: str, option: str, own: str) -> None:
    """Refuse an address other than that which geogp itself would take."""
    if held != own and is_address(held):
        raise RequestError(
            f"{file} takes its {what} from {held!r}. An address that somebody else wrote is asked "
            f"only where you name it: give --{option} with that address, or with a folder or "
            "address of yours that holds the same files."
        )


AS_TOLD = ReadFrom()
"""Where run.json says."""
