# The words of this project. CI uses the same ones; `make help` lists them.
#
# Needed beforehand: make, and Python 3.11 or newer. Everything else goes into .venv.
#   PYTHON=…  the interpreter to build .venv with        ARGS=…  passed on by test, demo and bench

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Two more than there are cores: much of the suite waits for time to pass, or for servers.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) + 2)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Container images like to forbid it; then each of the suite's thousand processes compiles the package anew.
export PYTHONDONTWRITEBYTECODE :=
export PYTHON

# consumers/ and benchmarks/ are checked as soon as they hold Python.
TYPED := delayq tests $(if $(wildcard consumers/*.py consumers/*/*.py),consumers) $(if $(wildcard benchmarks/*.py),benchmarks)

.PHONY: help install lint format types check test chaos matrix fuzz build demo bench bench-flood bench-peers bench-database clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

help: ## list the words
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

install: $(VENV)/.installed-dev ## everything a developer needs, into .venv

lint: $(VENV)/.installed-test ## style, format and import contracts; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.installed-test ## write the format, and mend what ruff can mend safely
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-test
	$(BIN)/mypy $(TYPED)

check: lint types ## lint, and the types

test: $(VENV)/.installed-test ## the suite, on every core; ARGS='-k lua -x -n 0' picks from it
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

chaos: $(VENV)/.installed-test ## the fault suite in full (hours; goes on where it was); ARGS='kills --seed 7' picks
	$(BIN)/python -m tests.chaos $(ARGS)

# Each version over the one installed, in a folder of its own: nothing else of .venv changes.
matrix: $(VENV)/.installed-test ## what talks to Redis, with redis-py 6.2, 7 and 8; SERVER=/usr/bin/valkey-server too
	set -e; for version in '6.2.*' '7.*' '8.*'; do \
	  folder=build/redis-py-$${version%%.*}; \
	  $(BIN)/python -m pip install -qq --upgrade --no-deps --target $$folder "redis==$$version"; \
	  echo "redis-py $$version"; \
	  PYTHONPATH=$$folder $(BIN)/python -m pytest -q tests/integration/test_replies.py tests/integration/test_connect.py \
	    tests/integration/test_public_client.py tests/integration/test_durability.py \
	    tests/integration/test_large_replies.py tests/topology/test_cluster_client.py $(ARGS); \
	done
ifdef SERVER
	DELAYQ_TEST_SERVER=$(SERVER) DELAYQ_TEST_FLAVOURS=given $(BIN)/python -m pytest -q -n $(WORKERS) tests/lua \
	  tests/integration/test_replies.py tests/integration/test_connect.py tests/integration/test_public_client.py \
	  tests/integration/test_durability.py tests/integration/test_large_replies.py tests/integration/worker tests/access
endif

fuzz: $(VENV)/.installed-test ## two minutes of bad input for each parser; SECONDS=600 for twenty, ONLY=envelope
	DELAYQ_FUZZ_SECONDS=$(or $(SECONDS),60) $(BIN)/python -m pytest -s tests/fuzz $(if $(ONLY),-k $(ONLY)) $(ARGS)
	set -e; for parser in $(or $(ONLY),$$($(BIN)/python -m tests.fuzz.parsers)); do \
	  $(BIN)/python -m tests.fuzz.guided $$parser --seconds $(or $(SECONDS),60); \
	done

build: $(VENV)/.installed-test ## source archive and wheel, into dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

demo: $(VENV)/.installed-demo ## orders that close in seconds, on a private server
	@$(BIN)/delayq demo $(ARGS)

bench: $(VENV)/.installed-test ## the project's own measurements
	$(BIN)/python -m benchmarks $(ARGS)

bench-flood: $(VENV)/.installed-test ## honest requests beside 5,000 idle connections and 40 endless bodies
	$(BIN)/python -m benchmarks.flood $(ARGS)

bench-peers: $(VENV)/.installed-test ## delayq beside other queues, each in an environment of its own
	$(BIN)/python -m benchmarks.peers $(ARGS)

bench-database: $(VENV)/.installed-peers ## jobs in databases, beside procrastinate; needs PostgreSQL and MariaDB
	$(BIN)/python -m benchmarks.database $(ARGS)

clean: ## remove .venv, caches and what was built
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- .venv --------------------------------------------------------------------------------------------------------
# A stamp says what was installed; it is older than pyproject.toml when that has changed. Each stamp includes the
# ones below it (demo < test < dev), so going from test back to demo installs nothing.

# A .venv that was copied, moved, or lost its interpreter is built anew, and all stamps with it.
ifneq ($(shell sh scripts/venv.sh usable $(VENV) && echo yes),yes)
.PHONY: $(VENV)/pyvenv.cfg
endif

$(VENV)/pyvenv.cfg:
	@sh scripts/venv.sh make $(VENV)

$(VENV)/.installed-demo: pyproject.toml $(VENV)/pyvenv.cfg
	@echo 'Installing delayq into $(VENV) (once; about ten seconds) ...' >&2
	@$(BIN)/python -m pip install -qq --editable '.[demo]'
	@touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/pyvenv.cfg
	@echo 'Installing delayq and its test tools into $(VENV) (once; about half a minute) ...' >&2
	@$(BIN)/python -m pip install -qq --editable '.[test]'
	@touch $(VENV)/.installed-demo $@

$(VENV)/.installed-dev: $(VENV)/.installed-test
	@$(BIN)/python -m pip install -qq 'pip>=25.1' # the first that reads dependency groups
	@$(BIN)/python -m pip install -qq --group dev
	@touch $@

$(VENV)/.installed-peers: $(VENV)/.installed-test
	@$(BIN)/python -m pip install -qq 'pip>=25.1'
	@$(BIN)/python -m pip install -qq --group peers
	@touch $@
