"""Folders or addresses of tiles and boundaries for a run that is opened again."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from geogp.errors import RequestError
from geogp.geodata.store.addresses import PUBLIC_BOUNDARIES, PUBLIC_SOURCE, is_address
from geogp.geodata.tiles.targets import SERVICES

if TYPE_CHECKING:
    from geogp.records.map_settings import DataSettings
    from geogp.records.run_settings import RunSettings


@dataclass(frozen=True)
class RunPlaces:
    """The user's folders or addresses of tiles and boundaries; None means the values in run.json.

    Another person may have written run.json. Therefore geogp reads from a folder in run.json or
    from one of geogp's own addresses, but sends no request to any other address in run.json.
    """

    source: str | None = None
    boundaries: str | None = None

    def places(self, file: Path, settings: "RunSettings") -> tuple[str, str | None]:
        """Return source and boundaries; raise RequestError for an unknown address in run.json."""
        where, data = settings.where, settings.data
        for text in (where.region_file, where.strata, data.points, *data.covariates):
            if is_address(text or ""):
                raise RequestError(
                    f"{file} takes a file from {text!r}, but this file does not exist on this "
                    f"machine. Make the run again with --fresh."
                )
        source, boundaries = self.source, self.boundaries
        if source is None:
            source = data.source if reads_tiles(data) else PUBLIC_SOURCE
            _check_own(file, source, "tiles", "source", PUBLIC_SOURCE)
        if boundaries is None and where.boundaries is not None:
            boundaries = where.boundaries
            _check_own(file, boundaries, "boundaries", "boundaries", PUBLIC_BOUNDARIES)
        return source, boundaries


def reads_tiles(data: "DataSettings") -> bool:
    """Return whether a run reads Ookla's tiles, as data or as a covariate."""
    return data.points is None or bool({*SERVICES} & {*data.covariates})


def _check_own(file: Path, place: str, what: str, option: str, own: str) -> None:
    """Raise RequestError if `place` is an address, but not geogp's own address."""
    if place != own and is_address(place):
        raise RequestError(
            f"{file} takes its {what} from {place!r}. geogp contacts an address from another "
            f"person's file only if you give the address. Give --{option} with this address, or "
            f"with your own folder or address that has the same files."
        )


PLACES_IN_RUN = RunPlaces()
"""Tiles and boundaries are read from the folders or addresses in run.json."""
