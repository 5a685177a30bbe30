"""Makes commands of typer from the fields of a request and their descriptions."""

import inspect
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from rich.table import Table

from geogp.choices import REQUIRED, settings_of
from geogp.runs.progress import ProgressListener
from geogp_cli import console

Command = Callable[..., None]


@dataclass(frozen=True)
class CommandResult:
    """The result of a command: `described` is printed with ``--json``, else `told` is printed."""

    described: dict[str, Any]
    told: Iterable[Table | Path | str]
    exit_code: int = 0


_AS_JSON = inspect.Parameter(
    "as_json",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object and nothing else on standard output."),
    ],
)


_SEVERAL = "You can give this option several times."


def option_of(request: type, name: str, panel: str | None = None) -> Any:
    """Return the annotation that turns a field of a request into an option or argument of typer.

    `panel` is the title above the option in the help.
    """
    hint, one = get_type_hints(request)[name], settings_of(request)[name]
    many = next((kind for kind in (hint, *get_args(hint)) if get_origin(kind) is tuple), None)
    if many is not None:
        hint = list[get_args(many)[0]] | None  # type: ignore[misc]
    if one.option == "":
        return Annotated[hint, typer.Argument(help=one.told)]
    text = one.told if many is None else f"{one.told} {_SEVERAL}"
    return Annotated[hint, typer.Option(one.option_name(name), help=text, rich_help_panel=panel)]


def panels_of(request: type) -> dict[str, str]:
    """Return the title of the help panel of each setting, in order; none for most requests.

    The settings that are most used stand in the first panel, the others in those of their groups.
    """
    used: tuple[str, ...] = getattr(request, "most_used", ())
    panels = dict.fromkeys(used, "Most used")
    own = {
        name: kind.title
        for kind in request.__mro__
        if hasattr(kind, "title")
        for name in inspect.get_annotations(kind)
    }
    for group in getattr(request, "groups", ()):
        names = [name for name in settings_of(group) if own[name] == group.title]
        panels |= dict.fromkeys([name for name in names if name not in panels], group.title)
    return panels


def parameters_of(
    request: type, leave: Collection[str] = (), *, in_panels: bool = True
) -> list[inspect.Parameter]:
    """Return a parameter for each setting except those in `leave`.

    Required settings come first, then those in panels, in their order.
    """
    panels = panels_of(request) if in_panels else {}
    order = list(panels)
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            # If the help text names the default, typer must not append it again.
            default=None if one.default == () or "Default:" in one.told else one.default,
            annotation=option_of(request, name, panels.get(name)),
        )
        for name, one in sorted(
            settings_of(request).items(),
            key=lambda pair: (
                pair[1].default is not REQUIRED,
                order.index(pair[0]) if pair[0] in order else -1,
            ),
        )
        if name not in leave
    ]


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that have a value; lists become tuples."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
        if value is not None and value != []
    }


def answering(
    function: Callable[..., CommandResult], parameters: Iterable[inspect.Parameter] | None = None
) -> Command:
    """Return a command that prints the answer of a function, and has the option ``--json``.

    If the user interrupts the function, the command prints how to continue. The other options come
    from `parameters`, or else from the parameters of the function.
    """
    own = inspect.signature(function).parameters.values() if parameters is None else parameters

    def command(as_json: bool, **options: Any) -> None:
        try:
            answer = function(**options)
        except KeyboardInterrupt:
            how = " without --fresh" if "fresh" in options else ""
            console.fail(f"interrupted; to continue, give the same command again{how}.")
            raise
        if as_json:
            print(json.dumps(answer.described))
        else:
            console.tell(*answer.told)
        if answer.exit_code:
            raise typer.Exit(answer.exit_code)

    signature = inspect.Signature([*own, _AS_JSON])
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    return command


def takes(request: type) -> Callable[[Callable[[Any, ProgressListener], CommandResult]], Command]:
    """Return a decorator for a function that gets a request and a listener; it makes a command."""

    def decorate(function: Callable[[Any, ProgressListener], CommandResult]) -> Command:
        def answer(**options: Any) -> CommandResult:
            asked = request(**given(options))
            with console.working() as listener:
                return function(asked, listener)

        answer.__name__, answer.__doc__ = function.__name__, function.__doc__
        return answering(answer, parameters_of(request))

    return decorate
