"""The machine: what memory the process keeps, and the cores that it may use."""

import ctypes
import os
import platform

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""Parameters of glibc's mallopt, from its malloc.h."""

LARGEST_MMAP_THRESHOLD = 32 * 2**20
LARGEST_INT = 2**31 - 1


def tune_process() -> None:
    """Keep freed memory for the next step; for a process that is geogp's own.

    Each step of training frees the tensors of the one before. glibc would hand them back to the
    kernel and have every page cleared anew: on two cores that took a quarter of a fit's time.
    Nothing but the speed depends on it, so other C libraries are left as they are. It cannot be put
    back: the command does it, the library leaves it to the program that calls it.
    """
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
        library.mallopt(_TRIM_THRESHOLD, LARGEST_INT)


def cores_here() -> int:
    """Return the cores that this process may use: those ``OMP_NUM_THREADS`` names, or all."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked):
        return int(asked)
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
