# Every target works on a fresh clone with Python 3.11 or newer and make: the first one installs into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# What needs a server or another program, or takes long. Of it `make test` takes what is marked core.
HEAVY := heavy or ray or training or runs or postgres or hosts or published or browser or s3
CLUSTERS := ray or runs or hosts
ON_CLUSTERS := tests/hosts tests/orchestrator

# Where it is set, each of the thousands of processes that the tests start would compile the packages anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test-fast test test-models test-clusters test-long test-kernel test-trackers test-slow chaos check coverage docs bench clean

demo: $(INSTALLED)  ## the whole life cycle on generated text, minutes on two CPU cores
	$(BIN)/orchestrator demo

test-fast: $(INSTALLED)  ## before a commit, beside make check: no Ray, no training, no whole run, no server, nothing that takes a second
	$(BIN)/pytest -q -n auto --dist loadfile --ignore=tests/contracts -m "not ($(HEAVY) or slow)"

test: $(INSTALLED)  ## what a person runs: the fast ones, and on a real Ray and a PostgreSQL server what must never break
	$(BIN)/pytest -q -n auto --dist loadfile --ignore=tests/contracts -m "(core or not ($(HEAVY))) and not ($(CLUSTERS) or slow)"
	$(BIN)/pytest -m "core and ($(CLUSTERS)) and not slow" $(ON_CLUSTERS)

test-models: $(INSTALLED)  ## training, PostgreSQL, S3, pages in a browser, published weights, trackers, Triton
	$(BIN)/pytest -q -n auto --dist loadfile -m "($(HEAVY)) and not ($(CLUSTERS) or core or slow)"
	$(MAKE) test-kernel test-trackers

test-clusters: $(INSTALLED)  ## Ray, whole runs, the tutorial's questions, hosts
	$(BIN)/pytest -m "($(CLUSTERS)) and not (core or slow)" $(ON_CLUSTERS)

test-long: test-models test-clusters  ## all that make test leaves out, but for what takes minutes each

test-slow: $(INSTALLED)  ## what takes minutes each: before a release
	$(BIN)/pytest -m slow

# Triton has a folder of its own: where it is installed, PyTorch's compiler finds it, and the other tests run without it.
test-kernel: $(INSTALLED) build/triton
	PYTHONPATH=$(CURDIR)/build/triton $(BIN)/pytest -q tests/bert_core/kernels/test_fused_cross_entropy.py

# So have the libraries of other trackers, which nobody else needs.
test-trackers: $(INSTALLED) build/trackers
	PYTHONPATH=$(CURDIR)/build/trackers $(BIN)/pytest -q tests/orchestrator/reports/test_tracker_exports.py

build/triton: PACKAGES := --no-deps triton==3.9.0
build/trackers: PACKAGES := -c constraints.txt mlflow-skinny==3.17.2 wandb==0.31.0
build/triton build/trackers: | $(INSTALLED)
	rm -rf $@.part
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $@.part $(PACKAGES)
	mv $@.part $@

# MINUTES=30 SEED=1, and ONLY="worker killed" for one fault; a seed that is left out is drawn and told.
chaos: $(INSTALLED)  ## faults inflicted on real runs on several Ray nodes, with exact accounts afterwards
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)")

check: $(INSTALLED)  ## lint, format, strict types, import walls
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/contracts

# Not part of `make test`: on Python 3.11 counting lines made test modules 25 to 48 % slower. What Ray's workers and
# other processes run is not counted. `make coverage TESTS=tests/bert_core` counts a part.
coverage: $(INSTALLED)  ## the tests, and the lines that none of them runs
	$(BIN)/coverage run -m pytest -m "not slow" $(TESTS)
	$(BIN)/coverage report

docs: $(VENV)/.installed-docs  ## the site with the API reference, into build/site; warnings are errors
	$(BIN)/python docs/site/build.py

bench: $(INSTALLED)  ## paired benchmarks; results belong in benchmarks/results/
	$(BIN)/python -m benchmarks

clean:  ## the installation alone; runs, models and the record in .orchestrator stay
	rm -rf $(VENV)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(VENV)/.installed-docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@
