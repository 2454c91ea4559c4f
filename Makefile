# Cronwell's commands. Only make and Python 3.11+ are assumed; everything else goes into .venv from the lock.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Containers often forbid Python to keep what it compiled; then every process that a test starts compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
PEERS ?=
# Extra arguments of pytest, e.g. `make unit T="tests/model -k wheel"`.
T ?=

# The newest Python that really starts and can make environments (a pyenv shim may do neither).
PYTHON ?= $(shell for python in python3.14 python3.13 python3.12 python3.11 python3; do \
	"$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
		&& { command -v "$$python"; break; }; done)

##@ Use

run: $(VENV)/.run ## Install what is needed and start everything on 127.0.0.1:8420 (options: ARGS="--port 9000")
	@exec $(BIN)/cronwell up $(ARGS)

# Tests that watch the clock run two at once; all other tests, and the checks, take what those leave of the machine.
TIMED := $(wildcard tests/cluster tests/faults tests/guide tests/coordination/test_fallback.py)
# Collecting these takes as long as collecting all others, so not every test process does.
ATTACK := tests/api/test_openapi.py
BESIDE := .beside.log

test: $(VENV)/.dev ## Set up, then run every check and every test (what CI runs)
	@( (nice -n 10 $(MAKE) check && nice -n 10 $(BIN)/pytest -q $(ATTACK)) & \
		nice -n 10 $(BIN)/pytest -q -p no:schemathesis -n 3 --dist loadfile --no-loadscope-reorder --durations=15 \
			$(TIMED:%=--ignore=%) --ignore=$(ATTACK); others=$$?; \
		wait $$! && [ $$others -eq 0 ]) >$(BESIDE) 2>&1 & beside=$$!; \
	$(BIN)/pytest -p no:schemathesis -m "not faults and not slow" -n 2 --dist loadfile --durations=15 $(TIMED); timed=$$?; \
	echo "and all others, and the checks, beside them:"; wait $$beside; beside=$$?; cat $(BESIDE); \
	[ $$timed -eq 0 ] && [ $$beside -eq 0 ]

##@ Develop

setup: $(VENV)/.dev ## Make .venv with everything that development needs

unit: $(VENV)/.dev ## Run tests (options: T="tests/model -k wheel")
	$(BIN)/pytest -m "not faults and not slow" $(T)

slow: $(VENV)/.dev ## Run every row of the benchmark at a small size
	$(BIN)/pytest -m slow $(T) tests/cluster

coverage: $(VENV)/.dev ## Run the tests that watch no clock with coverage, which must be 90 % of lines and branches
	$(BIN)/pytest -q -n 3 --dist loadfile $(patsubst %,--ignore=%,$(filter-out %.py,$(TIMED))) --cov

# Scenarios: mixed behind takeover blackout restarts bus without_etcd rolling rescue calm cable host night broker limits. SEED repeats a run; EVIDENCE=docs/evidence keeps table, plot and JSON.
MINUTES ?= 5
SEED ?=
SCENARIO ?= mixed
COORDINATION ?= postgres
EVIDENCE ?=
KILLS ?= 50

faults: $(VENV)/.dev ## Inject faults for MINUTES and check every promise (options: SCENARIO, SEED, COORDINATION, EVIDENCE, KILLS)
	MINUTES=$(MINUTES) SEED=$(SEED) COORDINATION=$(COORDINATION) EVIDENCE=$(EVIDENCE) KILLS=$(KILLS) \
		$(BIN)/pytest -m faults -s -p no:cacheprovider tests/faults/test_scenarios.py -k "$(SCENARIO)" $(T)

check: lint types imports ## Run every check that runs no code: format, lint, types, imports

lint: $(VENV)/.dev ## Check format and lint
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(VENV)/.dev ## Check types, strictly, of src and tests
	$(BIN)/mypy

imports: $(VENV)/.dev ## Check the direction of dependencies
	@NO_COLOR=1 $(BIN)/lint-imports --no-logo

fmt: $(VENV)/.dev ## Format, and mend what lint can mend
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

# Small plans say nothing of a machine, so what came of them is not for docs/evidence.
QUICK := $(filter --quick,$(ARGS))
KEEP ?= $(if $(QUICK),bench/results,docs/evidence)
# The limit is that of a million executions: of fewer, whose indexes are small, it is a quarter higher, and no rate that lasts.
bench: $(VENV)/.dev ## Measure every row and then every peer, with JSON and plots into KEEP (docs/evidence): two hours (options: ARGS="--quick" PEERS="--peers none", which keeps them in bench/results)
	@mkdir -p $(KEEP)
	@$(BIN)/cronwell bench all $(if $(QUICK),,--limit-executions 1000000) --output $(KEEP)/performance.json --plots $(KEEP) $(ARGS)
	@$(BIN)/python -m bench.peers.run --patience 40 $(QUICK) --output $(KEEP)/peers.json $(PEERS)

peers: $(VENV)/.run ## Run the same work by Cronwell and by its peers (options: ARGS="--peers river --size jobs=5000")
	@exec $(BIN)/python -m bench.peers.run $(ARGS)

##@ Keep

docs: $(VENV)/.dev ## Write the generated pages of docs/reference
	$(BIN)/python tools/reference.py

lock: $(VENV)/.dev ## Write both lock files from pyproject.toml (UPGRADE=1 takes the newest of everything)
	$(LOCK) pyproject.toml --group build --output-file requirements.lock
	$(LOCK) pyproject.toml --group dev --constraint requirements.lock --output-file requirements-dev.lock

clean: ## Remove the environment and every cache; never data
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* .beside.log dist
	find src tests tools -name __pycache__ -prune -exec rm -rf {} +

help: ## Show this
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# One lock for every supported Python and platform, with hashes, and without the address of any index.
LOCK = $(BIN)/uv pip compile --quiet --system-certs --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-annotate --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)

# The stamps make the second run instant: an environment is set up again only when what defines it has changed.
$(VENV)/.run: requirements.lock pyproject.toml tools/environment.py
	@$(require-python)
	@$(PYTHON) tools/environment.py $(VENV) requirements.lock
	@touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml tools/environment.py
	@$(require-python)
	@$(PYTHON) tools/environment.py $(VENV) requirements-dev.lock
	@touch $(VENV)/.run $@

define require-python
test -n "$(PYTHON)" || { echo "Cronwell needs Python 3.11 or newer with venv (Debian: apt install python3-venv);" \
	"none is on PATH. To name one: make PYTHON=/path/to/python3" >&2; exit 1; }
endef

.PHONY: run test setup unit faults check lint types imports fmt bench peers lock clean help docs
