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

.PHONY: run test lint types layers unit test-full test-browser bench clean

run: $(READY)
	$(BIN)/curvedp demo

test: lint types layers unit

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not full and not browser"

test-full: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "full or not browser"

test-browser: $(STAMP)
	sh .ci/chromium
	$(BIN)/python -m pytest -m browser

bench: $(STAMP)
	$(BIN)/python -m benchmarks

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e ".[demo]"
	touch $(READY)

$(STAMP): $(READY)
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) curvedp-demo build .mypy_cache .ruff_cache .import_linter_cache .hypothesis
