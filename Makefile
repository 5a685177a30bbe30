# `make demo` and `make test` do all the set-up on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: demo test lint types wheel docs environment browser clean

demo: environment
	$(BIN)/geogp demo

test: environment lint types browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

lint: environment
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: environment
	$(BIN)/mypy

# The wheel maps the demo region in an environment that has nothing else of this repository.
wheel:
	PYTHON=$(PYTHON) tests/wheel/try_wheel.sh

# Every build runs the examples anew; warnings are errors.
docs: environment
	rm -rf docs/_build docs/api
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going -n -b html docs docs/_build/html

environment: $(VENV)/.done

# Chromium and the npm packages that stand in for the CDN.
browser:
	tests/browser/install.sh

# The versions in constraints.txt are those the project is tested with.
$(VENV)/.done: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("geogp needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) docs/_build docs/api .pytest_cache .mypy_cache .ruff_cache tests/artefacts tests/browser/node_modules
