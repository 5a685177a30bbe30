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

SCRIPTS = Path(__file__).parents[1] / "benchmarks"


def load(name: str) -> ModuleType:
    """Import a script."""
    if str(SCRIPTS) not in sys.path:
        sys.path.insert(0, str(SCRIPTS))
    with warnings.catch_warnings():  # GPyTorch still compiles by torch.jit.script
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(name)


def told(name: str, *options: object) -> str:
    """Run a script that succeeds in this process, and return what it prints."""
    script, said = load(name), io.StringIO()
    with redirect_stdout(said):
        assert script.main([str(option) for option in options]) == 0
    return said.getvalue()


def start(name: str, *options: object, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, `path` first on its PYTHONPATH."""
    before = [path] if path else []
    return subprocess.run(
        [sys.executable, str(SCRIPTS / f"{name}.py"), *map(str, options)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([*before, os.environ.get("PYTHONPATH", "")]),
        },
    )


def started(name: str, *options: object, path: str = "") -> str:
    """Run a script that succeeds in a process of its own, and return what it prints."""
    done = start(name, *options, path=path)
    assert done.returncode == 0, done.stderr
    return done.stdout
