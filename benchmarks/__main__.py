"""Run a script: ``python -m benchmarks FOLDER.SCRIPT OPTIONS``; README.md lists the scripts."""

import importlib
import sys

import torch

from benchmarks.trial import say
from geogp.errors import GeogpError


def main(arguments: list[str]) -> int:
    """Run the `main` of a script, and print an error of geogp in one line; return an exit code."""
    if not arguments:
        say("error: expected the name of a script, such as accuracy.few_rows; see README.md.")
        return 2
    name, *options = arguments
    sys.argv = [f"python -m benchmarks {name}", *options]  # what the script reads
    torch.set_flush_denormal(True)
    try:
        return importlib.import_module(f"benchmarks.{name}").main() or 0
    except GeogpError as error:
        say(f"error: {error}")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
