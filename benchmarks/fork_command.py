"""Runs the command `geogp` in copies of one process, which has loaded everything already.

Reads lines of JSON (arguments, environment, log), and prints the process id of each copy and, when
it has ended, its exit code. Starting Python anew would take most of the time of a hundred runs.
"""

import json
import os
import sys
from pathlib import Path

import geogp.fetching  # noqa: F401 - what the command loads when it is called
from geogp_cli.main import run


def _become_the_command(asked: dict[str, object]) -> int:
    with Path(str(asked["log"])).open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        os.environ.update(dict(asked["environment"]))  # type: ignore[call-overload]
        sys.argv = ["geogp", *map(str, list(asked["arguments"]))]  # type: ignore[call-overload]
        try:
            run()
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0


def main() -> None:
    """Serve until standard input ends."""
    for line in sys.stdin:
        process = os.fork()
        if not process:
            code = 70
            try:
                code = _become_the_command(json.loads(line))
            finally:
                sys.stdout.flush()
                os._exit(code)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
