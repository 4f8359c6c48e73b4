# Every target sets itself up on a machine that has Python 3.11+, make and git.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
STAMP  := $(VENV)/.installed-dev
# One BLAS thread per process: the library runs its own threads over chunks.
export OMP_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1
export MKL_NUM_THREADS = 1
export MPLBACKEND = Agg
# Commands that tests start would compile the library anew each time.
unexport PYTHONDONTWRITEBYTECODE
# What is still to be done is taken over by whoever is idle; neighbouring tests share what a module sets up.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: run test lint types layers unit docs test-full test-browser test-lowest test-lomas test-r bench coverage-study clean

run: $(READY)
	$(BIN)/curvedp demo --force

# mypy needs one core for a while, and the tests wait for each other at their start.
test: lint layers
	$(MAKE) --no-print-directory -j 2 types unit

lint: $(STAMP)
	$(BIN)/ruff check src studies lomas tests benchmarks docs
	$(BIN)/ruff format --check src studies lomas tests benchmarks docs

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP)
	$(PYTEST) -m "not full and not browser"

test-full: $(STAMP) test-lomas
	$(BIN)/python -m pip install --quiet -e ".[audit]"
	$(PYTEST) -m "full or not browser"

# The documentation site; every warning is an error. Examples of the gallery that did not change are not run again.
docs: $(STAMP)
	rm -rf build/site
	$(BIN)/python -m sphinx -j 2 -E -b html -d build/doctrees -W --keep-going docs build/site
	@echo "Open build/site/index.html"

test-browser: $(STAMP) docs
	sh .ci/chromium
	$(PYTEST) -m browser

# The page for R, by Debian's R.
test-r: $(STAMP)
	sh .ci/r
	$(BIN)/python -m pytest tests/docs/test_r.py

# The adapter for Lomas beside lomas-server, whose pins want an environment of their own.
test-lomas: .venv-lomas/.installed
	.venv-lomas/bin/python -m pytest -c lomas/pyproject.toml lomas/tests

.venv-lomas/.installed: pyproject.toml lomas/pyproject.toml
	test -x .venv-lomas/bin/python || $(PYTHON) -m venv .venv-lomas
	.venv-lomas/bin/python -m pip install --quiet --upgrade pip
	.venv-lomas/bin/python -m pip install --quiet -e . -e "lomas[test]"
	touch .venv-lomas/.installed

# The declared minimum of every dependency, in an environment of its own.
test-lowest: .venv-lowest/.installed
	.venv-lowest/bin/python -m pytest -n 2 --dist worksteal -m "not full and not browser"

.venv-lowest/.installed: pyproject.toml constraints-lowest.txt
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --upgrade pip
	.venv-lowest/bin/python -m pip install --quiet -c constraints-lowest.txt -e ".[dev]" -e studies
	touch .venv-lowest/.installed

bench: $(STAMP)
	$(BIN)/python -m benchmarks

$(READY): pyproject.toml studies/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e ".[demo]"
	touch $(READY)

$(STAMP): $(READY)
	$(BIN)/python -m pip install --quiet -e ".[dev]" -e studies
	touch $(STAMP)

# Intervals on known populations: docs/inference.md. DATA is a folder of tables with their public bounds.
coverage-study: $(STAMP)
	$(BIN)/python -m pip install --quiet -e "studies[coverage]"
	$(BIN)/curvedp coverage $(if $(DATA),--data $(DATA)) --folder results/coverage

clean:
	rm -rf $(VENV) .venv-lowest .venv-lomas curvedp-demo build .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf docs/auto_gallery docs/reference/api docs/sg_execution_times.rst
