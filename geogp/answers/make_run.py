"""The function that makes a map from Python, with the settings as keyword arguments."""

import inspect
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec

from geogp.answers.run import Run, open_run
from geogp.answers.shown_map import make_shown_map
from geogp.arguments import check_kind
from geogp.choices import nearest, setting, settings_of
from geogp.errors import RequestError, quoted
from geogp.geodata.places.file_choice import file_and_rest
from geogp.records.map_settings import MapSettings
from geogp.runs.progress import ProgressListener

Given = ParamSpec("Given")


@dataclass(frozen=True)
class MapCall(MapSettings):
    """The arguments of `make_map`: the settings of a map, and a listener."""

    # Users give more types of values than the settings have.
    region: str | Path | None = setting(  # type: ignore[assignment]
        "A state, such as PR; or a file of polygons. None means the extent of points."
    )
    _: KW_ONLY
    out: Path | str | None = setting(  # type: ignore[assignment]
        settings_of(MapSettings)["out"].told
    )
    listener: ProgressListener | None = None

    def __post_init__(self) -> None:
        check_kind("region", self.region, str | Path | None)
        check_kind("listener", self.listener, ProgressListener | None)
        text = None if self.region is None else str(self.region)
        is_path = isinstance(self.region, Path) or bool(text and file_and_rest(text)[0].is_file())
        if is_path and self.region_file is None:
            object.__setattr__(self, "region_file", text)
            text = None
        object.__setattr__(self, "region", text)
        super().__post_init__()


def _parameters() -> str:
    """Return the parameters of the docstring, from the help texts of the settings."""
    settings, kinds = settings_of(MapCall), inspect.signature(MapCall).parameters
    names = {choice.option_name(name): f"``{name}``" for name, choice in settings.items()}
    return "\n".join(
        f"{name} : {inspect.formatannotation(kinds[name].annotation)}\n"
        f"    {re.sub(r'--[a-z-]+', lambda option: names[option[0]], choice.told)}"
        for name, choice in settings.items()
    )


def _called_with(
    call: Callable[Given, MapCall],
) -> Callable[[Callable[[MapCall], Run]], Callable[Given, Run]]:
    """Return a decorator that gives a function the arguments of `MapCall` as its own.

    The docstring has their help texts instead of ``{settings}``.
    """
    signature = inspect.signature(call)

    def decorate(function: Callable[[MapCall], Run]) -> Callable[Given, Run]:
        @wraps(function)
        def called(*args: Given.args, **kwargs: Given.kwargs) -> Run:
            settings = list(signature.parameters)
            unknown = [name for name in kwargs if name not in settings]
            if unknown:
                near = nearest(unknown[0], settings, 1)
                raise RequestError(
                    f"geogp.{function.__name__} has no setting {quoted(unknown[0])}. "
                    f"{f'Did you mean {near[0]}? ' if near else ''}"
                    f"The settings are {', '.join(settings)}."
                )
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"geogp.{function.__name__}: {error}.") from None
            return function(call(*args, **kwargs))

        called.__doc__ = str(inspect.getdoc(function)).replace("{settings}", _parameters())
        vars(called)["__signature__"] = signature.replace(return_annotation=Run)
        return called

    return decorate


@_called_with(MapCall)
def make_map(call: MapCall) -> Run:
    """Make a map of a region, as ``geogp map`` does, and return the finished run.

    Parameters
    ----------
    {settings}
    listener : ProgressListener | None
        Receives stages, progress and warnings.

    Returns
    -------
    Run
        The finished run. A later call with the same settings returns the stored run.

    Raises
    ------
    RequestError
        A setting is wrong, or the folder contains a run with other settings.
    DataError
        The data are wrong or missing.
    NetworkError
        A remote source failed.
    OutputError
        The results could not be written.
    """
    made = make_shown_map(call, call.listener)
    return open_run(made.path, device=call.device, listener=call.listener)
