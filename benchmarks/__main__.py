"""Run a script: ``python -m benchmarks FOLDER.SCRIPT OPTIONS``; README.md lists the scripts."""

import importlib
import sys
from pathlib import Path

import torch

from benchmarks.script import say
from geogp.errors import GeogpError


def scripts() -> list[str]:
    """Return the names of all scripts."""
    paths = Path(__file__).parent.glob("*/*.py")
    held = [path for path in paths if "\ndef main() -> " in path.read_text("utf-8")]
    return sorted(f"{path.parent.name}.{path.stem}" for path in held)


def main(arguments: list[str]) -> int:
    """Run the `main` of a script, and print an error of geogp in one line; return an exit code."""
    name, *options = arguments or [""]
    if name not in scripts():
        say(f"error: expected the name of a script, found {name!r}: {', '.join(scripts())}.")
        return 2
    sys.argv = [f"python -m benchmarks {name}", *options]  # what the script reads
    try:
        return importlib.import_module(f"benchmarks.{name}").main() or 0
    except GeogpError as error:
        say(f"error: {error}")
        return error.exit_code


if __name__ == "__main__":
    torch.set_flush_denormal(True)  # here and not in `main`: tests call that in their process
    sys.exit(main(sys.argv[1:]))
