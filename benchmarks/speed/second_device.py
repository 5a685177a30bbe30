"""A second device on a machine without a GPU.

Inside `second_device()`, tensors on `DEVICE` keep their values in a CPU tensor, but behave like
tensors on a GPU: they report another device, do not mix with CPU tensors, and cannot be read by
NumPy. `Counts` has the number of kernel launches, and of host synchronisations with the lines of
geogp that caused them. PyTorch's C++ code sees the tensors as CPU tensors, because a backend that
is registered from Python has no device guard for the threads of autograd.
"""

import inspect
import itertools
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import geogp

NAME = "testgpu"
_setup_privateuseone_for_python_backend(NAME)
DEVICE = torch.device(NAME, 0)

PACKAGE = str(Path(geogp.__file__).parent)

VIEWS = frozenset(
    [
        *("_unsafe_view", "alias", "as_strided", "detach", "diagonal", "empty", "empty_like"),
        *("empty_strided", "expand", "lift_fresh", "new_empty", "new_empty_strided", "permute"),
        *("select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind"),
        *("unfold", "unsqueeze", "view", "view_as_real"),
    ]
)
"""Operations that start no kernel."""

DATA_DEPENDENT = frozenset(
    [
        *("nonzero", "masked_select", "unique_dim", "_unique2", "unique_consecutive"),
        *("repeat_interleave", "bincount"),
    ]
)
"""Operations whose result has a size that depends on values: the host must wait for them."""

CHECKED = frozenset(
    (
        "_linalg_check_errors",
        "linalg_cholesky",
        "linalg_inv",
        "linalg_lu_factor",
        "linalg_solve",
        "linalg_eigh",
    )
)
"""Operations that wait for an error code; those ending in `_ex` do not."""


@dataclass
class Counts:
    """Kernel launches by operation, and host synchronisations by cause and line of geogp.

    `sequence` has the name of each launch in order, with the shapes of the tensors that it reads.
    `record` is a `Recorder` (see `geogp.models.fitting.recorded_steps`).
    """

    launches: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    sequence: list[tuple[Any, ...]] = field(default_factory=list)
    record: Any = None

    def clear(self) -> None:
        """Set all counts to 0."""
        self.launches.clear()
        self.waits.clear()
        self.sequence.clear()


class DeviceTensor(Tensor):
    """A tensor on `DEVICE`; `held` has its values."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # noqa: SLF001

    @staticmethod
    def __new__(cls: type[Self], held: Tensor) -> Self:  # noqa: D102
        return Tensor._make_wrapper_subclass(  # noqa: SLF001
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device="cpu",
        )

    def __init__(self, held: Tensor) -> None:
        self.held = held

    def __repr__(self, **_: Any) -> str:
        return f"DeviceTensor({self.held!r})"

    @property
    def device(self) -> torch.device:
        """The device that the tensor reports."""
        return DEVICE

    def __deepcopy__(self, _memo: Any) -> Tensor:
        copy = DeviceTensor(self.held.clone())
        if isinstance(self, torch.nn.Parameter):
            return torch.nn.Parameter(copy, self.requires_grad)
        return copy.requires_grad_(self.requires_grad)

    @classmethod
    def __torch_dispatch__(cls, op: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert _CURRENT is not None, "a device tensor is used outside second_device()"
        return _CURRENT.run(op, args, kwargs or {})


class _Dispatch(TorchDispatchMode):
    """Runs every operation on the held values, and counts it."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts
        counts.record = self.record
        self.tape: list[tuple[Any, ...]] | None = None
        self.before: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, op: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.run(op, args, kwargs or {})

    def run(self, op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        given, _ = tree_flatten((args, kwargs))
        tensors = [value for value in given if isinstance(value, Tensor)]
        here = [isinstance(value, DeviceTensor) for value in tensors]
        device = kwargs.get("device")
        if not any(here) and not _is_second(device):
            found = self._done(op, args, kwargs)
            made = not tensors and device in {None, torch.device("cpu")}
            # For autograd, `DEVICE` is the CPU, where it makes zeros for outputs that no loss uses.
            return _wrapped(found, {}) if made and _in_backward() else found
        name = op.overloadpacket.__name__
        if name == "_to_copy":
            return self._copied(op, args, kwargs)
        if name == "copy_":
            return self._copy(op, *args)
        if name == "_local_scalar_dense":
            self.waits("item")
            return op(args[0].held)
        self._check(name, tensors, kwargs)
        held = {id(value.held): value for value in tensors if isinstance(value, DeviceTensor)}
        args, kwargs = tree_map(_unwrapped, (args, kwargs))
        if name not in VIEWS:
            self.counts.launches[name] += 1
            self.counts.sequence.append((name, *(tuple(value.shape) for value in tensors)))
        masks = name.startswith("index") and any(value.dtype == torch.bool for value in tensors[1:])
        if masks or name in DATA_DEPENDENT or name in CHECKED:
            self.waits(name)
        return _wrapped(self._done(op, args, kwargs), held)

    def _done(self, op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if self.tape is None:
            return op(*args, **kwargs)
        for argument, given in zip(op._schema.arguments, args, strict=False):  # noqa: SLF001
            if argument.alias_info is not None and argument.alias_info.is_write:
                self.before += [(value, value.clone()) for value in tree_flatten(given)[0]]
        found = op(*args, **kwargs)
        self.tape.append((op, args, kwargs, found))
        return found

    def record(self, step: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
        """Record a step as a GPU would: its kernels, with the addresses of their arrays.

        A GPU does not make the step while it records it; here, the step is made and undone. As a
        GPU does, it raises RuntimeError where the host would wait, or would lock memory.
        """
        self.tape, self.before, tape = [], [], []
        try:
            found = step()
            tape = self.tape
        finally:
            self.tape = None
            with _disable_current_modes(), torch.no_grad():
                for value, earlier in reversed(self.before):
                    value.copy_(earlier)
        return found, partial(self._replay, tape)

    def _replay(self, tape: list[tuple[Any, ...]]) -> None:
        self.counts.launches["recorded step"] += 1
        with _disable_current_modes(), torch.no_grad():
            for op, args, kwargs, found in tape:
                again = op(*args, **kwargs)
                for old, new in zip(tree_flatten(found)[0], tree_flatten(again)[0], strict=True):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)

    def waits(self, cause: str) -> None:
        """Count a host synchronisation; refuse it while a step is recorded."""
        self.refuse_recording(cause)
        self.counts.waits[f"{cause} at {_line()}"] += 1

    def refuse_recording(self, cause: str) -> None:
        """Raise RuntimeError while a step is recorded."""
        if self.tape is not None:
            raise RuntimeError(
                f"operation not permitted when stream is capturing: {cause} at {_line()}"
            )

    def _check(self, name: str, tensors: list[Tensor], kwargs: dict[str, Any]) -> None:
        if kwargs.get("generator") is not None:
            raise RuntimeError(f"{name}: a generator of the CPU on {DEVICE}, at {_line()}")
        for value in tensors:
            if not isinstance(value, DeviceTensor) and value.dim() > 0:
                raise RuntimeError(
                    f"{name}: a CPU tensor of shape {tuple(value.shape)} meets tensors on "
                    f"{DEVICE}, at {_line()}"
                )

    def _copied(self, op: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
        source, device = args[0], kwargs.get("device")
        kept = isinstance(source, DeviceTensor) and (device is None or _in_backward())
        to = kept or _is_second(device)
        self._transfer(source, to)
        plain = {**kwargs, "device": torch.device("cpu")} if device is not None else kwargs
        found: Tensor = self._done(op, (_unwrapped(source), *args[1:]), plain)
        self.counts.launches["_to_copy"] += 1
        return DeviceTensor(found) if to else found

    def _copy(self, op: Any, target: Tensor, source: Tensor, *_: Any) -> Tensor:
        self._transfer(source, isinstance(target, DeviceTensor))
        self.counts.launches["copy_"] += 1
        self._done(op, (_unwrapped(target), _unwrapped(source)), {})
        return target

    def _transfer(self, source: Tensor, to: bool) -> None:
        if isinstance(source, DeviceTensor) != to:
            self.waits("copy to the device" if to else "copy to the CPU")


class _Down(torch.autograd.Function):
    """A differentiable copy to the CPU."""

    @staticmethod
    def forward(_context: Any, value: DeviceTensor) -> Tensor:
        return value.held.clone()

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:
        return DeviceTensor(gradient.clone())


class _Up(torch.autograd.Function):
    """A differentiable copy to the device."""

    @staticmethod
    def forward(_context: Any, value: Tensor) -> Tensor:
        return DeviceTensor(value.detach().clone())

    @staticmethod
    def backward(_context: Any, gradient: DeviceTensor) -> Tensor:
        return gradient.held.clone()


class _Functions(TorchFunctionMode):
    """Answers in Python what PyTorch's C++ code would answer for a CPU tensor."""

    def __init__(self, dispatch: _Dispatch) -> None:
        super().__init__()
        self.dispatch = dispatch

    def __torch_function__(self, call: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else None
        if call is Tensor.to:
            return self._to(first, *args[1:], **kwargs)
        if call is Tensor.pin_memory:
            self.dispatch.refuse_recording("pin_memory")
            first.pinned = True
            return first
        if not isinstance(first, DeviceTensor):
            return call(*args, **kwargs)
        if call in {Tensor.numpy, Tensor.__array__}:
            raise TypeError(f"cannot convert a tensor on {DEVICE} to NumPy, at {_line()}")
        if call is Tensor.cpu:
            return self.down(first)
        if call is Tensor.tolist:
            return self.down(first.detach()).tolist()
        return call(*args, **kwargs)

    def up(self, value: Tensor, *, at_once: bool = True) -> Tensor:
        """Return a copy on the device; `at_once` means that the host waits for the copy."""
        if at_once:
            self.dispatch.waits("copy to the device")
        if value.requires_grad:
            return _Up.apply(value)  # type: ignore[no-any-return]
        return DeviceTensor(value.detach().clone())

    def down(self, value: DeviceTensor) -> Tensor:
        """Return a copy on the CPU."""
        self.dispatch.waits("copy to the CPU")
        if value.requires_grad:
            return _Down.apply(value)  # type: ignore[no-any-return]
        return value.held.detach().clone()

    def _to(self, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        device, dtype = kwargs.get("device"), kwargs.get("dtype")
        for given in args:
            if isinstance(given, Tensor):
                device, dtype = given.device, given.dtype
            elif isinstance(given, str | torch.device):
                device = given
            elif isinstance(given, torch.dtype):
                dtype = given
        there, to = isinstance(value, DeviceTensor), _is_second(device)
        if there and device is not None and not to:
            # PyTorch's own training code asks C++ for the device, which is the CPU there.
            value = value if _in_training_of_torch() else self.down(value)
        elif to and not there:
            # Only memory that is locked ("pinned") can be copied while the host goes on.
            at_once = not (kwargs.get("non_blocking") and getattr(value, "pinned", False))
            value = self.up(value, at_once=at_once)
        return value if dtype is None else Tensor.to(value, dtype)


_CURRENT: _Dispatch | None = None


@contextmanager
def second_device() -> Iterator[Counts]:
    """Make `DEVICE` available, and return its counts."""
    global _CURRENT  # noqa: PLW0603 - subclasses of Tensor have no other way to find it
    overwrite = torch.__future__.get_overwrite_module_params_on_conversion()
    threads = torch.autograd.is_multithreading_enabled()
    counts = Counts()
    dispatch = _Dispatch(counts)
    before, _CURRENT = _CURRENT, dispatch
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    torch.autograd.set_multithreading_enabled(False)
    try:
        with dispatch, _Functions(dispatch):
            yield counts
    finally:
        _CURRENT = before
        torch.__future__.set_overwrite_module_params_on_conversion(overwrite)
        torch.autograd.set_multithreading_enabled(threads)


def _is_second(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def _unwrapped(value: Any) -> Any:
    if isinstance(value, DeviceTensor):
        return value.held
    return torch.device("cpu") if isinstance(value, torch.device) and _is_second(value) else value


def _wrapped(found: Any, known: dict[int, DeviceTensor]) -> Any:
    def wrap(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return known[id(value)] if id(value) in known else DeviceTensor(value)

    return tree_map(wrap, found)


def _line() -> str:
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            return f"{Path(name).relative_to(PACKAGE).as_posix()}:{frame.f_lineno}"
        frame = frame.f_back
    return "a caller of geogp"


def _in_training_of_torch() -> bool:
    """Return whether an optimiser of PyTorch calls, or a function that clips gradients."""
    callers = traceback.walk_stack(inspect.currentframe())
    names = (frame.f_globals.get("__name__", "") for frame, _ in itertools.islice(callers, 6))
    return any(name.startswith(("torch.optim.", "torch.nn.utils.")) for name in names)


def _in_backward() -> bool:
    """Return whether autograd's engine calls, to differentiate a value on `DEVICE`.

    A backward function of geogp, which the engine calls, does not count.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return False
        if frame.f_code.co_name == "_engine_run_backward":
            return any(isinstance(value, DeviceTensor) for value in frame.f_locals["t_outputs"])
        frame = frame.f_back
    return False
