PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist worksteal
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: help demo test test-nightly test-weekly mutants check format bench docs

help: ; @echo "make demo | test | test-nightly | test-weekly | mutants | check | format | bench | docs: see README.md and CONTRIBUTING.md"

demo: $(READY) ; $(BIN)/python examples/demo.py

test: $(READY) ; $(PYTEST) $(TESTS)

test-nightly: $(READY) ; $(BIN)/python -m pip install --quiet --editable '.[hosts,beam,bench,browser,docs,onnx]' && $(PYTEST) -m nightly $(TESTS)

test-weekly: $(READY) ; $(BIN)/python -m pip install --quiet --editable '.[hosts,beam,bench,browser,peers]' && $(PYTEST) -m weekly $(TESTS)

mutants: $(READY) ; $(BIN)/python -m tests.mutants $(AREA)

check: $(READY) ; $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: $(READY) ; $(BIN)/ruff check --fix . && $(BIN)/ruff format .

bench: $(READY) ; $(BIN)/python -m pip install --quiet --editable '.[bench]' && $(BIN)/python -m benchmarks --output runs/bench/RESULTS.md $(BENCH)

docs: $(READY) ; $(BIN)/python -m pip install --quiet --editable '.[docs]' && NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet && echo "The site: runs/site/index.html"

$(READY): requirements.txt pyproject.toml
	@echo "Setting up .venv (about a minute)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@
