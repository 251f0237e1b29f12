# Builds, checks and shows TraceML; everything lands in .venv, from nothing.

PYTHON ?= python3
# 2.13.0 from PyPI is a CUDA build on most machines; for a smaller one add pip's options, for example
#   make demo TORCH_PIP="--index-url <an index of CPU wheels>"
TORCH ?= torch==2.13.0
TORCH_PIP ?=
REPEAT ?= 5
# tests that run at the same time; most of them sleep
JOBS ?= 3
WAITING_JOBS ?= 4

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
export PIP_ROOT_USER_ACTION := ignore
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))

.DEFAULT_GOAL := help
.PHONY: help demo pictures test check bench bench-long gpu-check scenarios ranks-grid compare-budget format lint types unit processes ranks trainings
.PHONY: terminal long floor39 matrix clean

help: ## what `make` can do
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

demo: $(VENV)/.stamp-package ## trains a small network under TraceML, about 15 s, and ends with its verdict
	@$(BIN)/traceml run --mode=cli --interval=5 examples/train.py

test: unit processes ## the unit tests, then those with real processes

check: lint types unit processes ## what CI runs: format, lint, types, floors, all tests, each scenario once, Python 3.9
	$(BIN)/python -m pytest -q -n 2 tests/scenarios
	$(BIN)/python -m pytest -q -n 2 tests/trainings/test_trainings.py
	@bash .ci/python39

pictures: $(VENV)/.stamp-dev ## draws the README's pictures anew, from two real runs of examples/train.py; 1 min or so
	PYTHONPATH=. $(BIN)/python docs/pictures/draw.py

bench: $(VENV)/.stamp-dev ## our figures beside the budgets, 10 min or so; TRACEML_UPSTREAM_PYTHON=... adds upstream's
	$(BIN)/python benchmarks/bench.py

gpu-check: ## the device clock, copies and memory on a real GPU, under 4 min; installs nothing, skips where there is none
	@$(GPU_PYTHON) tests/gpu/check.py

bench-long: $(VENV)/.stamp-dev ## what must not grow: a million steps of a training, ten million in the store; 5 to 10 min
	$(BIN)/python benchmarks/bench_long.py

scenarios: $(VENV)/.stamp-dev ## trainings with known causes, each right REPEAT (5) times in a row; without NAMES the two below behind it
	$(BIN)/python tests/scenarios/check.py --all --repeat $(REPEAT) $(NAMES)
	$(if $(NAMES),,@$(MAKE) --no-print-directory ranks-grid compare-budget)

ranks-grid: $(VENV)/.stamp-dev ## how often the right rank and phase is named, of four: 40 min or so; resumed when called again
	$(BIN)/python -m tests.scenarios.ranks_grid

compare-budget: $(VENV)/.stamp-dev ## how often `traceml compare` errs on real runs, 1 h or so; resumed when called again
	$(BIN)/python benchmarks/compare_budget.py

format: $(VENV)/.stamp-dev ## puts the code in its shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/.stamp-dev ## format, lint and the floors of the house
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/.stamp-dev ## mypy, strict
	$(BIN)/mypy

unit: $(VENV)/.stamp-dev ## the unit tests
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not alone and not long" tests/unit
	$(BIN)/python -m pytest -q -m alone tests/unit/recorder

processes: $(VENV)/.stamp-dev ## the tests with real processes, without those of `make ranks`, `make terminal`, `make long`
	$(BIN)/python -m pytest -q -n $(WAITING_JOBS) -m "not ranks and not terminal and not long" tests/processes

terminal: $(VENV)/.stamp-dev ## both views in drawn terminals and in tmux, which is installed where it is missing
	@bash .ci/tmux
	$(BIN)/python -m pytest -q -n $(JOBS) tests/unit/launch tests/processes/test_faces.py tests/processes/test_panel.py tests/processes/test_inline*.py tests/processes/test_attach.py

long: $(VENV)/.stamp-dev ## tests that CI leaves out, because they take long
	$(BIN)/python -m pytest -q -m long tests/processes tests/unit

ranks: $(VENV)/.stamp-dev ## the tests with several ranks, those that CI leaves out too; 4 min or so
	$(BIN)/python -m pytest -q tests/processes/test_ranks.py

trainings: $(VENV)/.stamp-dev ## all of tests/trainings: also habits, faults, off, side by side with a bare run; 12 min or so
	$(BIN)/python -m pytest -q -n 2 tests/trainings

floor39: ## installs, imports and runs the torch-free unit tests on Python 3.9, where there is one
	@bash .ci/python39

matrix: ## the recorder's tests and the trainings on other Pythons and torches (MATRIX="3.9:1.12.1 ..."); GBs, 20 min or so
	@bash .ci/matrix $(MATRIX)

clean: ## removes the environments and caches, never logs/
	rm -rf .venv .venv-39 .venv-matrix-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache benchmarks/out

$(VENV)/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 9))' || \
	  { echo "TraceML needs Python 3.9 or newer; choose one with: make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make environments; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.stamp-torch: $(VENV)/.stamp-venv
	$(PIP) install $(TORCH_PIP) '$(TORCH)' numpy # which torch misses with a warning
	@touch $@

$(VENV)/.stamp-package: pyproject.toml $(VENV)/.stamp-torch
	$(PIP) install --editable .
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml $(VENV)/.stamp-torch
	$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.stamp-package
