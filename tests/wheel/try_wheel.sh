#!/usr/bin/env bash
# Build the wheel, install it into an empty environment, and map its demo region in an empty folder.
#
# No constraints hold here: a user has none. Only torch is the pinned one, installed before, as the
# README advises for machines without a GPU.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH PIP_CONSTRAINT
export PIP_DISABLE_PIP_VERSION_CHECK=1 GEOGP_CACHE="$work/cache"

"${PYTHON:-python3}" -m venv "$work/venv"
python="$work/venv/bin/python"
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$work/dist" "$root"
"$python" "$root/tests/wheel/check_contents.py" "$root" "$work"/dist/*.whl
"$python" -m pip install --quiet "$(grep '^torch==' "$root/constraints.txt")"
"$python" -m pip install --quiet "$work"/dist/*.whl
"$python" -m pip check

mkdir "$work/empty"
cd "$work/empty"
"$work/venv/bin/geogp" demo --json
for name in map.html report.html run.json grid.nc model.safetensors test_predictions.parquet; do
  test -s "runs/demo/$name" || { echo "the demo of the wheel wrote no $name" >&2; exit 1; }
done
