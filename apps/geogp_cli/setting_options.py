"""Options of a command, made from the fields of its request and the description of each field."""

import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from geogp.choices import REQUIRED, settings_of

Command = Callable[..., None]


def option_of(request: type, name: str) -> Any:
    """Return the annotation that turns a field of a request into an option or argument of typer."""
    hint, one = get_type_hints(request)[name], settings_of(request)[name]
    many = next((kind for kind in (hint, *get_args(hint)) if get_origin(kind) is tuple), None)
    if many is not None:
        hint = list[get_args(many)[0]] | None  # type: ignore[misc]
    if one.option == "":
        return Annotated[hint, typer.Argument(help=one.told)]
    words = one.option or f"--{name.replace('_', '-')}"
    return Annotated[hint, typer.Option(words, help=one.told)]


def parameters_of(request: type, leave: Collection[str] = ()) -> list[inspect.Parameter]:
    """Return a parameter for each setting except those in `leave`; required settings come first."""
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            # If the help text names the default, typer must not append it again.
            default=None if one.default == () or "Default:" in one.told else one.default,
            annotation=option_of(request, name),
        )
        for name, one in sorted(
            settings_of(request).items(), key=lambda pair: pair[1].default is not REQUIRED
        )
        if name not in leave
    ]


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that have a value, which the user gave or which is the default."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
        if value is not None and value != []
    }


def with_parameters(command: Command, parameters: Collection[inspect.Parameter]) -> Command:
    """Set the signature of a command, from which typer makes the options; return the command."""
    command.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def takes(request: type) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the options of a request.

    The first parameter of the decorated function is the request; the other parameters become
    further options.
    """

    def decorate(function: Command) -> Command:
        _, *own = inspect.signature(function).parameters.values()

        def command(**options: Any) -> None:
            rest = {one.name: options.pop(one.name) for one in own}
            function(request(**given(options)), **rest)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        return with_parameters(command, [*parameters_of(request), *own])

    return decorate
