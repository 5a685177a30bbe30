#!/usr/bin/env bash
# Pack what `gpu_suite.py` needs on a machine with a GPU, but without geopandas and a network:
#
#   benchmarks/speed/gpu_pack.sh DATA PACK [PYTHON]
#
# DATA has a folder census (boundaries) and the file uci/protein.parquet. PYTHON is the version of
# Python there, 3.12 if not given. The pack has the rows of a simulated Georgia, protein, and wheels
# of safetensors and msgspec.
set -euo pipefail

data=${1:?"the folder with census and uci"} pack=${2:?"the folder to write"} version=${3:-3.12}
here=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python}
most=$((60 * 1024))

mkdir -p "$pack/wheels"
if [ ! -e "$pack/georgia.npz" ]; then
  PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" "$python" -m benchmarks speed.paper_scale \
    --boundaries "$data/census" --npz "$pack/georgia.part.npz"
  mv "$pack/georgia.part.npz" "$pack/georgia.npz"
fi
cp "$data/uci/protein.parquet" "$pack/protein.parquet"
"$python" -m pip download --quiet --disable-pip-version-check -c "$here/constraints.txt" \
  --no-deps --only-binary=:all: --implementation cp --python-version "$version" \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 \
  --platform manylinux2014_x86_64 --dest "$pack/wheels" safetensors msgspec

size=$(du -sk "$pack" | cut -f1)
if [ "$size" -gt "$most" ]; then
  echo "the pack has $size KiB, more than $most" >&2
  exit 1
fi
echo "$pack has $((size / 1024)) MiB. On the machine with the GPU, in the folder of the repository:"
echo "  python -m pip install --no-index --no-deps --target site PACK/wheels/*.whl"
echo "  PYTHONPATH=site python -m benchmarks speed.gpu_suite --pack PACK --out gpu-results"
echo "  tar -czf gpu-results.tar.gz gpu-results benchmarks/results/gpu"
