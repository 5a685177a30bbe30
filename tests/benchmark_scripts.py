"""The scripts of `benchmarks`, imported, or started as their users would."""

import importlib
import io
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "benchmarks"


def load(name: str) -> ModuleType:
    """Import a script, by folder and name (``speed.states``)."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    with warnings.catch_warnings():  # GPyTorch still compiles by torch.jit.script
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"benchmarks.{name}")


def told(name: str, *options: object) -> str:
    """Run a script that succeeds in this process, and return what it prints."""
    script, said = load(name), io.StringIO()
    with redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("default")  # as in a process of its own
        assert script.main([str(option) for option in options]) == 0
    return said.getvalue()


def started(name: str, *options: object, path: str = "") -> str:
    """Run a script that succeeds in a process of its own, and return what it prints.

    Its PYTHONPATH begins with `path`.
    """
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *map(str, options)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(
                filter(None, [path, str(ROOT), os.environ.get("PYTHONPATH")])
            ),
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
