"""The rows of a fit."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from geogp.errors import DataError
from geogp.models.numerics.arrays import as_floats, check_devices

Floats = NDArray[np.float64]

FIELDS = ("x", "y", "tests", "devices", "groups", "error_variance", "side")
"""Names of the arrays of `Data`, in order."""


@dataclass(frozen=True)
class Data:
    """Inputs of shape (n, d) and targets of shape (n,), stored as float64.

    `tests`: number of tests averaged in each target, (n,); 1 by default.
    `devices`: number of devices behind these tests, (n,); by default one for each test.
    `groups`: the number of each row's group, (n,); by default each row is a group of its own. To
        estimate the errors of training rows, each row is predicted without the rows of its group.
        All rows at a place must be in the same group.
    `error_variance`: known variance of the error of each target, (n,), in addition to noise that
        is estimated; 0 by default.
    `side`: -1 if the target is only known to be below y, which is then a limit, 1 if it is known to
        be above, (n,); 0 by default. With limits, all targets are normal scores.
    `session`: the number of each row's session, (n,), whose rows share a part of their noise; by
        default None: there are no sessions.

    Raises DataError if shapes do not agree, there are no rows, a value is not a finite real number,
    a number of tests or devices is below 1, a row has more devices than tests, or a variance is
    below 0.
    """

    x: Floats
    y: Floats
    tests: Floats = None  # type: ignore[assignment]
    devices: Floats = None  # type: ignore[assignment]
    groups: NDArray[np.int64] = None  # type: ignore[assignment]
    error_variance: Floats = None  # type: ignore[assignment]
    side: NDArray[np.int8] = None  # type: ignore[assignment]
    session: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", as_floats(self.x, "inputs"))
        object.__setattr__(self, "y", as_floats(self.y, "targets"))
        n = len(self.y)
        if self.x.ndim != 2 or self.y.shape != (len(self.x),) or not n:
            raise DataError(
                "expected inputs of shape (n, d) and targets of shape (n,) with n >= 1, found "
                f"{self.x.shape} and {self.y.shape}."
            )
        self._take_numbers("tests", np.ones(n), 1)
        self._take_numbers("devices", self.tests, 1)
        self._take_numbers("error_variance", np.zeros(n), 0)
        check_devices(self.devices, self.tests)
        side = np.zeros(n, np.int8) if self.side is None else np.asarray(self.side, np.int8)
        if side.shape != (n,) or not np.isin(side, (-1, 0, 1)).all():
            raise DataError(f"expected -1, 0 or 1 for the side of each of {n} rows.")
        object.__setattr__(self, "side", side)
        groups = np.arange(n) if self.groups is None else np.asarray(self.groups)
        if groups.shape != (n,) or groups.dtype.kind not in "iu":
            raise DataError(
                f"expected a whole number for the group of each of {n} rows, found {groups.dtype} "
                f"of shape {groups.shape}."
            )
        # torch shares the memory of an array, so an array that is not writeable is copied.
        object.__setattr__(self, "groups", np.require(groups, np.int64, ["C", "W"]))

    @property
    def counts(self) -> Floats:
        """Tests and devices, (n, 2)."""
        return np.column_stack([self.tests, self.devices])

    def at(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> "Data":
        """Return some of the rows."""
        own = None if self.session is None else self.session[rows]
        chosen = {name: getattr(self, name)[rows] for name in FIELDS}
        return replace(self, **chosen, session=own)

    def joined(self, other: "Data") -> "Data":
        """Return these rows followed by other rows; groups of the two sets stay separate."""
        first, second = (
            replace(data, groups=np.unique(data.groups, return_inverse=True)[1])
            for data in (self, other)
        )
        second = replace(second, groups=second.groups + first.groups.max() + 1)
        pairs = ((getattr(first, name), getattr(second, name)) for name in FIELDS)
        joined = Data(*map(np.concatenate, pairs))
        if self.session is None or other.session is None:
            assert self.session is other.session, "both sets have sessions, or none has"
            return joined
        return replace(joined, session=np.concatenate([self.session, other.session]))

    def _take_numbers(self, name: str, default: Floats, least: int) -> None:
        given = getattr(self, name)
        values = as_floats(default if given is None else given, name)
        object.__setattr__(self, name, values)
        if values.shape != self.y.shape or (values < least).any():
            raise DataError(
                f"expected {len(self.y)} numbers of {name}, each {least} or more, found shape "
                f"{values.shape}{f' and numbers below {least}' if (values < least).any() else ''}."
            )
