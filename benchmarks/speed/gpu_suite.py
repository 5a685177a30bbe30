"""All that a GPU must show, in nine minutes: proofs first, then times and scores.

    benchmarks/speed/gpu_pack.sh FOLDER_WITH_DATA gpu-pack      # on a machine with geopandas
    python -m benchmarks speed.gpu_suite --pack gpu-pack --out gpu-results
    python -m benchmarks speed.gpu_suite --dry --out dry-results  # without a GPU, at small sizes

The parts run in this order, each in a process of its own with a limit of time:

- a: which operations of a training step a CUDA graph records, and what they take;
- b: the tests that compare the GPU with the CPU;
- c: fits to four rows at each input, as tiles in several quarters;
- d: steps of `dbk-rbf` at rank 1,024, recorded and not, as shares of the card's peak;
- e: steps and predictions beside GPyTorch (`speed.py`);
- f: all 517,139 rows of a simulated Georgia by `dbk-rbf` (h 256, r 1,024) and by `FieldGP`;
- g: protein by the paper's recipe for `dbk-rbf`, with alpha 0, 0.01, 0.1 and 1;
- h: all other tests of models that run on every device.

Each part writes NAME.json into --out when it ends, and what it prints into NAME.log as it goes. The
same command continues with the parts that have no result or failed tests; its exit code is 0 if
there are none. After a change of the code or the card, give another folder. With --dry, the second
device of `second_device.py` stands in for a GPU: this executes all code, but no time says anything.
"""

import json
import os
import signal
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from time import monotonic

import numpy as np

from benchmarks.markdown import table
from benchmarks.script import RESULTS, Figures, forking, parser, say, write_results
from benchmarks.speed.gpu_parts import DEVICE, PARTS, SMALL, Asked, Sizes, run_part
from geogp.files import write_text

GB = 1e9

DRY_ROWS = 1_500


def work(name: str, asked: Asked) -> None:
    """Run a part in this process, and write its figures, its log, and its error, if any."""
    os.setsid()  # a group of its own, which ends with the part
    (asked.out / f"{name}.error").unlink(missing_ok=True)
    with (
        (asked.out / f"{name}.log").open("w", buffering=1) as log,
        redirect_stdout(log),
        redirect_stderr(log),
    ):
        try:
            found = run_part(name, asked)
        except Exception as error:  # noqa: BLE001 - the log has it, and the next part follows
            traceback.print_exc()
            first = str(error).strip().partition("\n")[0]
            write_text(asked.out / f"{name}.error", f"{type(error).__name__}: {first}\n")
            sys.exit(1)
        write_text(asked.out / f"{name}.json", json.dumps(found, indent=1) + "\n")


def run_all(asked: Asked, seconds: float, folder: Path) -> dict[str, str]:
    """Run the parts without a sound result while there is time; return reasons by part."""
    context, ends = forking("benchmarks.speed.gpu_parts"), monotonic() + seconds
    asked.out.mkdir(parents=True, exist_ok=True)
    reasons: dict[str, str] = {}
    for name, (share, _) in PARTS.items():
        limit = min(share * seconds, ends - monotonic())
        done = results_of(asked.out).get(name)
        if done is not None and not done.get("failed"):
            continue
        if limit <= 0:
            reasons[name] = "no time was left"
            continue
        say(f"{name}: at most {limit:.0f} s")
        process = context.Process(target=work, args=(name, asked))
        started = monotonic()
        process.start()
        process.join(limit)
        if process.is_alive():
            with suppress(ProcessLookupError):  # a process that has not begun has no group yet
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()
            reasons[name] = f"ended after its limit of {limit:.0f} s; its log has what was done"
        elif process.exitcode:
            reasons[name] = error_of(asked.out / f"{name}.error", process.exitcode)
        found = results_of(asked.out)
        if failed := found.get(name, {}).get("failed"):
            reasons[name] = f"{len(failed)} tests failed: {', '.join(failed)}"
        say(f"{name}: {reasons.get(name, 'done')} ({monotonic() - started:.0f} s)")
        if found:
            write_results(folder, page(found, reasons), found)
    return reasons


def error_of(path: Path, code: int) -> str:
    """Return the reason of a part that failed: its error, or the exit code of a crash."""
    if path.exists():
        return f"failed: {path.read_text('utf-8').strip()}"
    return f"failed: the process ended with the code {code}"


def results_of(out: Path) -> dict[str, Figures]:
    """Return the figures of all parts that have a result."""
    paths = {name: out / f"{name}.json" for name in PARTS}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def page(found: dict[str, Figures], reasons: dict[str, str]) -> str:
    """Return all results as Markdown."""
    devices = sorted({one["machine"]["device"] for one in found.values()})
    one = next(iter(found.values()))["machine"]
    shown = [make(found) for make in (_proofs, _steps, _beside, _fits)]
    missing = "".join(f"- {name}: {reason}\n" for name, reason in reasons.items())
    return f"""# On a GPU

    python -m benchmarks speed.gpu_suite

{", ".join(devices)}; {one["processor"]}, torch {one["torch"]}, geogp {one["geogp"]}, {one["date"]}.
Parts with a result: {", ".join(found)}.
{f"Without a result:{chr(10)}{chr(10)}{missing}" if missing else ""}
{"".join(shown)}"""


def _proofs(found: dict[str, Figures]) -> str:
    text = ""
    if "a-probe" in found:
        lines = [
            (name, f"{one['ms']:.3g}", _recorded(one))
            for name, one in found["a-probe"]["operations"].items()
        ]
        text += f"## What a graph records\n\n{table(('operation', 'ms', 'recorded'), lines)}\n"
    for key in sorted(found.keys() & {"b-tests", "h-tests"}):
        one = found[key]
        failed = f"; failed: {', '.join(one['failed'])}" if one["failed"] else ", none failed"
        unread = f" Not read: {', '.join(one['unread'])}." if one["unread"] else ""
        text += f"## Tests ({key})\n\n{one['passed']} passed{failed}.{unread}\n\n"
    if "c-repeats" in found:
        lines = [
            (
                *(f"`{name}`", f"{one['nll']:.4f}", f"{one['nll_cpu']:.4f}"),
                f"{one['gap']:.1e}" + ("" if one["alike"] else " (too much)"),
                "; ".join(one["log"]),
            )
            for name, one in found["c-repeats"]["models"].items()
        ]
        header = ("model", "log score", "on the CPU", "gap of the first losses", "steps")
        text += f"## Four rows at each input\n\n{table(header, lines, left=(0, 4))}\n"
    return text


def _recorded(one: Figures) -> str:
    if "refused" in one:
        return f"refused: {one['refused']}"
    return f"{one['recorded_ms']:.3g} ms" + ("" if one["equal"] else f", differs by {one['gap']:g}")


def _steps(found: dict[str, Figures]) -> str:
    if "d-steps" not in found:
        return ""
    one = found["d-steps"]
    refused = one["recorded_ms"] is None
    lines = [
        ("a step, alone", f"{one['alone_ms']:.3g} ms"),
        ("a step, recorded", "refused" if refused else f"{one['recorded_ms']:.3g} ms"),
        ("a step, the way that was kept", f"{one['kept_ms']:.3g} ms"),
    ]
    for name, peak in one["peaks"].items():
        short = name.removeprefix("torch.")
        lines.append((f"product of matrices, {short}", f"{peak / 1e12:.3g} Top/s"))
        lines.append((f"share of this in a step, {short}", f"{100 * one['shares'][name]:.1f} %"))
    said = "".join(f"- {line}\n" for line in one["log"])
    return f"## A step of `dbk-rbf`\n\n{table(('', 'found'), lines)}\n{said}\n"


def _beside(found: dict[str, Figures]) -> str:
    if "e-speed" not in found:
        return ""
    one = found["e-speed"]
    lines = [(key, f"{one[key]:.3g}") for key in one if key.endswith(("_gpytorch", "_torch"))]
    header = ("ratio (above 1: geogp is faster; its steps are recorded if that helps)", "")
    return f"## Beside GPyTorch and plain PyTorch\n\n{table(header, lines)}\n"


def _fits(found: dict[str, Figures]) -> str:
    lines = []
    for name in ("f-dbk-rbf", "f-field"):
        if name in found:
            one = found[name]
            memory = "" if one["gpu_bytes"] is None else f"{one['gpu_bytes'] / GB:.2f} GB"
            scores = one["rows"], one["epochs"], f"{one['seconds']:.1f}", f"{one['test_nll']:.4f}"
            lines.append((name, *scores, memory, f"{one['peak_bytes'] / GB:.2f} GB"))
    for name, one in found.items():
        if name.startswith("g-"):
            alpha = one["weights"]["alpha"]
            scores = one["epochs"], f"{one['seconds']:.1f}", f"{one['nll']:.4f}"
            lines.append((f"protein, alpha {alpha:g}", "", *scores, "", ""))
    header = ("fit", "rows", "epochs", "seconds", "log score", "memory, GPU", "memory, process")
    said = [
        f"- {name}: {line}\n" for name in found if name[0] in "fg" for line in found[name]["log"]
    ]
    return f"## Whole fits\n\n{table(header, lines)}\n{''.join(said)}" if lines else ""


def dry_pack(pack: Path) -> None:
    """Write rows for a dry run."""
    pack.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (DRY_ROWS, 2))
    y = np.sin(4 * x[:, 0]) + 0.3 * random.standard_normal(DRY_ROWS)
    np.savez(pack / "georgia.npz", x=x, y=y, tests=random.integers(1, 9, DRY_ROWS).astype(float))
    import pandas as pd  # noqa: PLC0415

    pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "y": y}).to_parquet(pack / "protein.parquet")


def main() -> int:
    """Run the parts that have no result yet, and write the table after each part."""
    asked = parser(__doc__, out="gpu", table="gpu", pack=Path, seconds=540.0, dry=False)
    given = asked.parse_args()
    if given.dry:
        if given.table == RESULTS / "gpu":
            asked.error("--dry measures nothing: give another folder as --table")
        given.out = given.out / "dry"  # never taken for results of a GPU
        given.pack = given.out / "pack"
        dry_pack(given.pack)
    elif given.pack is None:
        asked.error("give the folder of gpu_pack.sh as --pack, or --dry")
    device, sizes = (str(DEVICE), SMALL) if given.dry else ("cuda", Sizes())
    reasons = run_all(Asked(device, sizes, given.pack, given.out), given.seconds, given.table)
    for name, reason in reasons.items():
        say(f"{name}: {reason}")
    if reasons:
        say("start the same command again for these parts")
    return 1 if reasons else 0
