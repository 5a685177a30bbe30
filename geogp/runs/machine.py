"""The machine: memory that the process keeps, and the cores that it may use."""

import ctypes
import os
import platform

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""Parameters of glibc's mallopt, from its malloc.h."""

LARGEST_MMAP_THRESHOLD = 32 * 2**20
LARGEST_INT = 2**31 - 1


def tune_process() -> None:
    """Keep freed memory for the next step; only for a process of the geogp command.

    Each step of training frees the tensors of the step before. By default, glibc returns them to
    the kernel, which clears every page again: on two cores this took a quarter of the time of a
    fit. Only the speed depends on it, so other C libraries are left alone. It cannot be undone, so
    the library leaves it to the program that calls it.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
        library.mallopt(_TRIM_THRESHOLD, LARGEST_INT)


def cores_here() -> int:
    """Return the cores that this process may use: ``OMP_NUM_THREADS``, or all."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked):
        return int(asked)
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
