PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
JOBS   ?= 2

.PHONY: help demo test fuzz lint format bench clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  \1\t/' | expand -t 12

demo: $(READY) ## dispatch, tune, run and compare a model; writes demo-output/
	@$(BIN)/bucketize demo

test: lint ## everything that CI runs: lint, types, tests, size table
	@$(BIN)/python benchmarks/size_table.py
	@$(BIN)/pytest -q -n $(JOBS) --dist worksteal

fuzz: $(READY) ## thousands of random graphs, compiled in every way, beside references; mutated models
	@$(BIN)/pytest -q -n $(JOBS) --dist worksteal --graphs 5000 tests/test_fuzz.py tests/test_fuzz_onnx.py tests/test_mutants.py

lint: $(READY) ## ruff and mypy, without changing a file
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY) ## rewrite the files as ruff would have them
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY) ## side by side with the engines that are installed
	@$(BIN)/python -m benchmarks

clean: ## remove everything that make made
	@rm -rf $(VENV) build demo-output .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit(f"bucketize needs Python >= 3.11; $(PYTHON) is {sys.version.split()[0]} (try: make PYTHON=python3.12)")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --quiet --no-compile --disable-pip-version-check --editable '.[test,bench]'
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib # pip would use one core, and take the packages' tests too
	@touch $@
