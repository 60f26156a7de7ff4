# The only entry points of the project; CI calls these targets and nothing else.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.everstep-installed
PYTHON ?= $(shell for each in python3.11 python3; do $$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$each && break; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
BENCHES := $(filter-out __init__ harness,$(basename $(notdir $(wildcard bench/*.py))))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo check test test-all bench bench-demo system-packages clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## everything into .venv, versions from constraints.txt

# The stamp is written last: an interrupted install starts over and finds what it had already downloaded.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" && "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "everstep: no Python 3.11 or newer$(if $(PYTHON), behind '$(PYTHON)'); install python3.11, or run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "everstep: $(PYTHON) has no venv module; install it, on Debian and Ubuntu with: apt-get install python3.11-venv" >&2; exit 1; }
	@$(PIP) --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV)
	$(PIP) install --quiet --constraint constraints.txt pip setuptools
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable '.[all,dev]'
	@touch $@

demo: install ## train a real job, break it, watch it heal
	@$(BIN)/everstep demo $(DEMO)

check: install ## lint, format, types, import rules, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m everstep.core.reference --check
	$(BIN)/python -m everstep.alertrules --check
	$(BIN)/python -m everstep.dashboards --check

test: install system-packages check ## everything but the slow tests; under 15 minutes on 2 cores
	$(BIN)/pytest -m 'not slow' $(PYTEST)

test-all: install system-packages check ## the slow tests and the benches too
	$(BIN)/pytest $(PYTEST)
	$(MAKE) bench

bench: install ## every bench in quick mode; tables in bench/results
	@for each in $(BENCHES); do $(BIN)/python -m everstep.bench.$$each --quick || failed="$$failed $$each"; done; \
	  test -z "$$failed" || { echo "everstep: goals not met:$$failed; see bench/results" >&2; exit 1; }

bench-demo: install ## five runs of each fault; writes bench/results/demo.md
	$(BIN)/python -m everstep.bench.demo --full

# What only a few tests need. Without root, apt or network they skip, each with its own line.
system-packages:
	@sh .ci/system-packages

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) build dist src/everstep.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
