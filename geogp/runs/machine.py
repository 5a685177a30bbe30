"""Sets how the process frees memory and objects, and counts the cores that the process may use."""

import ctypes
import gc
import os
import platform

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""Codes of parameters for glibc's mallopt, from malloc.h."""

LARGEST_MMAP_THRESHOLD = 32 * 2**20
LARGEST_INT = 2**31 - 1

NEW_OBJECTS = 50_000
"""Number of new objects after which Python searches for unused cycles of objects."""


def tune_process() -> None:
    """Let glibc keep freed memory for the next training step; other C libraries stay unchanged.

    Each training step frees tensors. By default, glibc returns this memory to the operating system,
    which clears it again: on two cores, this took a quarter of the time of a fit. By default,
    Python often searches for unused cycles, which took a sixth of the time of all imports. The
    settings hold for the whole process, so only a command may call this function, not the library.
    """
    gc.set_threshold(NEW_OBJECTS)
    if platform.libc_ver()[0] == "glibc":
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)
        library.mallopt(_TRIM_THRESHOLD, LARGEST_INT)


def cores_here() -> int:
    """Return the number of cores that this process may use: ``OMP_NUM_THREADS``, or all cores."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdigit() and int(threads):
        return int(threads)
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
