"""The memory of a process, measured without loading torch."""

from pathlib import Path


def peak_bytes() -> int:
    """Return the largest resident memory so far of this process."""
    # ru_maxrss would include the peak of the parent process.
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
