# `make demo` and `make test` do all the set-up on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= 2

# Exponentials, sums and factorisations round in their own way on each processor. An x86-64 one
# can stand in for those without AVX-512, and without AVX2 and FMA: for PyTorch, MKL, OpenBLAS,
# NumPy and the C library.
AVX2 := ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 OPENBLAS_CORETYPE=Haswell \
  NPY_DISABLE_CPU_FEATURES=X86_V4
PLAIN := ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Nehalem \
  NPY_DISABLE_CPU_FEATURES=X86_V3,X86_V4 GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F
# Tests that rounding would break first.
ROUNDING := $(addprefix tests/,$(addsuffix .py, \
  $(addprefix distributions/test_,heavy_shapes prediction shapes warped_shapes) \
  evaluation/conformal/test_conformal_repair $(addprefix evaluation/test_,metrics paired) \
  geodata/tiles/test_thresholds \
  $(addprefix maps/test_,probabilities scales) \
  $(addprefix models/numerics/test_,linalg products) \
  $(addprefix models/process/test_,basis_functions diagonals exact objectives posteriors rbf rbf_readers) \
  $(addprefix models/joint/test_,excursions) \
  $(addprefix models/field/test_,field_rows)))

# Tests start many processes: Python keeps what it compiled for them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test checks trials test-processors test-oldest test-newest lint types schema wheel docs environment browser clean

demo: $(VENV)/.demo
	$(BIN)/geogp demo

test:
	@bash -c 'TIMEFORMAT="make test took %lR, and %lU + %lS of processor time (user + system)."; \
	  time $(MAKE) --no-print-directory checks'

checks: environment lint types browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not trial"

# Long evidence: killed and continued runs, coverage over many fits, fuzz, most browser tests,
# the benchmarks' own tests. By hand also some 160 faults put into the code (ten minutes).
trials: environment browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m trial
	$(if $(CI),,$(BIN)/python -m benchmarks mutants.mutants --workers $(WORKERS))

test-processors: environment
	$(AVX2) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) $(ROUNDING)
	$(PLAIN) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) $(ROUNDING)

# Some tests with the oldest versions that pyproject.toml promises, or with the newest there are.
test-oldest test-newest: environment
	WORKERS=$(WORKERS) tests/try_versions.sh $(@:test-%=%)

lint: environment
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: environment
	$(BIN)/mypy --num-workers $(WORKERS)

# The JSON Schema of run.json follows from the structs that runs are read by.
schema: environment
	$(BIN)/python -c "from geogp.records.record_reading import run_schema as made; print(made(), end='')" \
	  > docs/schema/run-2.json

# The wheel maps the demo region in an environment that has nothing else of this repository.
wheel:
	PYTHON=$(PYTHON) tests/wheel/try_wheel.sh

# Every build runs the examples anew; warnings are errors.
docs: environment
	rm -rf docs/_build docs/api
	mkdir docs/api
	$(BIN)/typer geogp_cli.main utils docs --name geogp --output docs/api/commands.md > /dev/null
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -n -b html docs docs/_build/html

environment: $(VENV)/.done

# Chromium, and the npm packages that the tests in it need.
browser:
	tests/browser/install.sh

# The demo needs only the package itself; all else extends the same environment. The versions in
# constraints.txt are those the project is tested with.
$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("geogp needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	touch $@

$(VENV)/.done: $(VENV)/.demo
	$(INSTALL) -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) docs/_build docs/api .pytest_cache .mypy_cache .ruff_cache tests/artefacts tests/browser/node_modules
