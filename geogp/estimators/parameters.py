"""Parameters of estimators, kept as given: scikit-learn's conventions without scikit-learn."""

import inspect
from collections.abc import Mapping
from typing import Any, Self

from geogp.errors import RequestError

_MORE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Parameters:
    """Keyword arguments for `get_params`, `set_params` and scikit-learn's `clone`."""

    counts = False
    """Whether targets are numbers of 0 or more."""

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """Return the constructor's arguments; where it takes ``**``, also of its base class."""
        names: dict[str, None] = {}
        for one in cls.__mro__:
            if "__init__" not in vars(one):
                continue
            _, *given = inspect.signature(vars(one)["__init__"]).parameters.values()
            names |= {part.name: None for part in given if part.kind not in _MORE}
            if not any(part.kind is inspect.Parameter.VAR_KEYWORD for part in given):
                break
        return tuple(names)

    def keep(self, given: Mapping[str, Any]) -> None:
        """Keep the arguments of the constructor, which are its local variables, as given."""
        for name, value in given.items():
            if name not in {"self", "__class__"}:
                setattr(self, name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - none are nested
        """Return the parameters by name, as they were given."""
        return {name: getattr(self, name) for name in self.parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and return the estimator.

        Raises
        ------
        RequestError
            There is no such parameter.
        """
        for name, value in params.items():
            if name not in self.parameter_names():
                raise RequestError(
                    f"expected a parameter {', '.join(self.parameter_names())}, found {name!r}."
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        usual = {
            part.name: part.default
            for one in reversed(type(self).__mro__)
            if "__init__" in vars(one)
            for part in inspect.signature(vars(one)["__init__"]).parameters.values()
        }
        told = ", ".join(
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if value is not usual[name] and not _equal(value, usual[name])
        )
        return f"{type(self).__name__}({told})"

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether `fit` was called, for scikit-learn."""
        return hasattr(self, "network_")

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags; only scikit-learn calls this."""
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags  # noqa: PLC0415

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, positive_only=self.counts),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(),
        )


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays
        return False
