#!/usr/bin/env bash
# Run tests that use each dependency with the `oldest` versions that pyproject.toml promises, or with
# the `newest` versions that there are.
#
# All other packages, such as PyTorch and pytest, are those of the environment.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PIP_CONSTRAINT
export PIP_DISABLE_PIP_VERSION_CHECK=1
case $1 in
  oldest) versions='' ;;
  newest) versions='==.*' ;;
  *) echo "expected oldest or newest, found $1" >&2; exit 2 ;;
esac
wanted="$work/wanted.txt"
grep -v '^#' "$root/tests/oldest-versions.txt" | sed "s/$versions\$//" > "$wanted"

"$root/.venv/bin/python" -m venv --without-pip "$work/venv"
python="$work/venv/bin/python"
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$root"/.venv/lib/python3.*/site-packages > "$packages/environment.pth"
# Conflicts would be those of the tools of the tests, whose versions are newer.
"$root/.venv/bin/python" -m pip --python "$python" install --quiet --upgrade --no-compile \
  --no-warn-conflicts -r "$wanted" "$(grep '^torch==' "$root/constraints.txt")"
"$python" - "$wanted" <<'EOF'
import sys
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

for line in Path(sys.argv[1]).read_text().splitlines():
    wanted = Requirement(line)
    found = version(wanted.name)
    assert found in wanted.specifier, f"expected {wanted}, found {found}"
    print(wanted.name, found)
EOF

tests=(
  cli/test_{console,setting_options}
  commands/test_points_command
  distributions/test_class_prediction
  estimators/test_{field_covariates,point_columns,point_times}
  geodata/places/test_{archives,hexagons,region,vector_files}
  geodata/points/test_{point_cases,point_tests}
  geodata/store/test_{bucket,remote_tiles}
  maps/{figures/test_choropleth,page/test_interactive_page}
  maps/test_{grid,rasters,tile_table}
  reports/test_rendering
  records/test_{run_record,run_schema}
  runs/pipeline/test_whole_run
)
# Left out: what older versions of GDAL do without geogp (they read no Zarr store with the compressor
# Blosc, give empty names where a view asks an address, and do not follow a pointer in a GeoJSON
# file), and a test that replaces a function that zarr has since 3.1.1.
left_out="zarr_opens_in_gdal or _view or would_follow or store_that_cannot_be_written"
paths=("${tests[@]/#/tests/}")
cd "$root"
# Plugins of the environment are for the versions there. The two warnings are about what old versions
# of matplotlib and pyproj do.
PYTHONPATH="$root:$root/apps" PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 OMP_NUM_THREADS=1 \
  "$python" -m pytest -q -p xdist -n "${WORKERS:-2}" --dist loadfile -p no:cacheprovider \
  -m "not trial" -k "not ($left_out)" \
  -W ignore::pyparsing.warnings.PyparsingDeprecationWarning \
  -W "ignore:Conversion of an array with ndim > 0:DeprecationWarning" "${paths[@]/%/.py}" "${@:2}"
