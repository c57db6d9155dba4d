# `make demo` and `make test` do all their own set-up: a virtual environment, by uv when it is on PATH, else by venv and pip.

PYTHON ?= $(firstword $(foreach name,python3.14 python3.13 python3.12 python3.11 python3,$(if $(shell $(name) -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo yes),$(name))))
UV ?= $(shell command -v uv 2>/dev/null)
BIN = .venv/bin
# In a variable: a comma would end an argument of `call`.
DEMO = -e '.[sql,server]'
# Where compiled modules are switched off, each of the thousand Pythons that the tests start would compile its own.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help demo test test-all test-fast test-core prove docs console bench conformance chaos storm frameworks gateway-kills clean

help: ## Say what there is.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: .venv/run.stamp ## Run the demo: a scripted model, a stand-in cluster, no key needed.
	@$(BIN)/handrail demo $(ARGS) || test $$? -eq 5  # a person who says no has seen the demo as well

test: .venv/dev.stamp ## Run lint, types, and tests of every kind; 8 minutes on two idle cores.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n 2 $(ARGS)

test-all: .venv/dev.stamp ## Run what is only volume too: every combination, every row, long storms; an hour.
	@HANDRAIL_LONG_TESTS=1 $(BIN)/python -m pytest -q -n 2 $(ARGS)

test-fast: .venv/dev.stamp ## Run the quick tests: no corpus, no server, no killed processes; under a minute on two idle cores.
	@$(BIN)/python -m pytest -q -x -n 2 --hypothesis-profile=quick -m "not (slow or server or corpus or proof)" $(ARGS)

test-core: .venv/dev.stamp ## Run the demo and the tests of the core where no other package is; PACKAGE=handrail_mcp: those of one with the core.
	@$(BIN)/python -m tests.core_alone $(PACKAGE) -n 2 $(ARGS)

prove: .venv/dev.stamp ## Check the promises in every order of up to two deaths, lost answers and words of people; 5 minutes on two idle cores.
	@$(BIN)/python -m tests.prove $(ARGS)

docs: .venv/docs.stamp ## Build the site strictly into build/site.
	@$(BIN)/python -m docs.build

console: ## Build the console's page from console/ into src/handrail_server/assets; needs Node 20.19 or newer.
	@cd console && npm ci --silent --no-audit --no-fund && npm run --silent build

bench: .venv/dev.stamp ## Print what handrail costs, as ratios to a hand-written loop.
	@$(BIN)/python -m benchmarks $(ARGS)

conformance: .venv/dev.stamp ## Run the official MCP suite against handrail; Node and the suite are installed into build/.
	@$(BIN)/python -W ignore -m tests.handrail_mcp.conformance $(ARGS)

chaos: .venv/dev.stamp ## Kill 1,000 runs at random and count what was repeated or lost; at most 10 minutes.
	@$(BIN)/python -m benchmarks.chaos $(ARGS)

storm: .venv/dev.stamp ## End 500 processes in four ways while they carry the same runs; ARGS="--kills 5000" for more.
	@$(BIN)/python -m benchmarks.storm $(ARGS)

frameworks: .venv/dev.stamp ## Kill conversations of other frameworks 200 times at random and count what was repeated or lost.
	@$(BIN)/python -m benchmarks.under_frameworks $(ARGS)

gateway-kills: .venv/dev.stamp ## Kill the MCP gateway in the middle of 1,000 writes and count what was sent twice.
	@$(BIN)/python -m benchmarks.gateway_kills $(ARGS)

clean: ## Remove the environment and caches.
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "handrail needs Python 3.11 or newer with the module venv; none was found on PATH."; \
	  echo "Install one (Debian: apt install python3.11 python3.11-venv), or name it: make PYTHON=/path/to/python3.11"; exit 2; }
	@echo "setting up .venv with $(PYTHON) ..."
	@if [ -n "$(UV)" ]; then "$(UV)" venv -q --python "$(PYTHON)" .venv; else "$(PYTHON)" -m venv .venv; fi

# The stamps are written last, so that an interrupted set-up is done again.
.venv/run.stamp: pyproject.toml | .venv/bin/python
	@$(call install,$(DEMO))
	@touch $@

.venv/dev.stamp: pyproject.toml | .venv/bin/python
	@$(call install,-e '.[dev]')
	@touch $@ .venv/run.stamp

.venv/docs.stamp: pyproject.toml | .venv/bin/python
	@$(call install,-e '.[docs]')
	@touch $@ .venv/run.stamp

define install
if [ -n "$(UV)" ]; then "$(UV)" pip install -q --python $(BIN)/python $(1); \
else $(BIN)/python -m pip install -q --disable-pip-version-check $(1); fi \
|| { echo "The packages could not be installed; see above. A network or a package mirror is needed once."; exit 2; }
endef
