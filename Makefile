# Every target works on a fresh clone with Python 3.11 or newer and make: the first one installs into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-all check bench clean

demo: $(INSTALLED)  ## the whole life cycle on generated text, minutes on two CPU cores
	$(BIN)/orchestrator demo

test: $(INSTALLED)  ## the tests, near 15 minutes on two cores
	$(BIN)/pytest -m "not slow"

test-all: $(INSTALLED)  ## the long checks too
	$(BIN)/pytest

check: $(INSTALLED)  ## lint, format, strict types, import walls
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/contracts

bench: $(INSTALLED)  ## paired benchmarks; results belong in benchmarks/results/
	$(BIN)/python -m benchmarks

clean:  ## the installation alone; runs, models and the record in .orchestrator stay
	rm -rf $(VENV)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@
