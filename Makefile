# make demo   set everything up and run the demo       make test   set everything up, check all
# make lint   format, lint, types, layers              make clean  remove what make made here
# make fuzz   hostile input, 50 times as long          make engines  with llama.cpp of other ages
# make soak   half an hour of traffic and faults on the real engine (SOAK_ARGS='--minutes 5')
# make reference   let README.md show what --help prints
# make systemd-test   boot a small Debian with a real systemd and try the service (as root)
#
# ENGINE=PATH uses a llama-server (or its folder) that you have; without one, llama.cpp is built
# once (about 14 minutes on 2 cores) and kept in ~/.cache/autospec. PYTHON=... picks a Python.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet --quiet
ENGINE ?= $(AUTOSPEC_ENGINE)
HELPERS := $(wildcard tests/*.py)

# A test run works with the engine that this prints, whatever else is on PATH.
FIND_ENGINE := $(BIN)/python autospec/demo/build_engine.py $(if $(ENGINE),--engine "$(ENGINE)")
WITH_ENGINE = engine=$$($(FIND_ENGINE)) || exit 1; export AUTOSPEC_ENGINE="$$engine";

.PHONY: demo test lint reference fuzz engines soak systemd-test clean help
.DEFAULT_GOAL := help

help:
	@sed -n '1,9s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "error: autospec needs Python 3.11 or newer; $(PYTHON) is" \
	    "$$($(PYTHON) --version 2>&1 | sed 1q)"; \
	  echo "  try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "  try: apt-get install python3-venv"; exit 1; }

# Everything, the engine apart: that one is found or built by build_engine.py.
$(VENV)/installed: pyproject.toml | $(BIN)/python
	@echo "installing autospec and the tools of its tests into $(VENV)"
	@$(PIP) install --root-user-action=ignore --editable '.[dev]'
	@touch $@

demo: $(VENV)/installed
	@$(WITH_ENGINE) $(BIN)/autospec demo $(DEMO_ARGS)

lint: $(VENV)/installed
	@$(BIN)/ruff format --check --quiet . || { echo "  try: $(BIN)/ruff format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary --package autospec
	@MYPYPATH=tests $(BIN)/mypy --no-error-summary $(HELPERS)
	@$(BIN)/lint-imports --no-cache > $(VENV)/lint-imports.log 2>&1 || \
	  { cat $(VENV)/lint-imports.log; exit 1; }
	@echo "format, lint, types and layers are clean"

# The models are made here so that their progress is seen and no test pays for them.
test: $(VENV)/installed lint
	@$(WITH_ENGINE) echo "engine: $$engine"; \
	$(BIN)/python -m autospec.demo.assets && \
	$(BIN)/python -m pytest --cov --cov-report=term $(PYTEST_ARGS)

fuzz: $(VENV)/installed
	@$(BIN)/python -m pytest -m fuzz --hypothesis-profile=long $(PYTEST_ARGS)

# The machine is made once (some 500 MB in the cache); after that `make test` tries it as well.
systemd-test: $(VENV)/installed
	@$(BIN)/python tests/systemd/machine.py
	@$(WITH_ENGINE) $(BIN)/python -m pytest -m systemd tests/systemd $(PYTEST_ARGS)

reference: $(VENV)/installed
	@{ sed '/^<!-- reference -->$$/q' README.md; $(BIN)/autospec man --markdown; \
	  sed -n '/^<!-- end of reference -->$$/,$$p' README.md; } > README.new && mv README.new README.md

# Each is built once, in about 15 minutes on 2 cores, and kept beside the engine's own wheel.
engines: $(VENV)/installed
	@for build in 9093 10248; do \
	  $(BIN)/python autospec/demo/build_engine.py --version $$build || exit 1; done
	@$(BIN)/python -m autospec.demo.assets
	@$(BIN)/python -m pytest -m engines $(PYTEST_ARGS)

soak: $(VENV)/installed
	@$(WITH_ENGINE) $(BIN)/python -m autospec.demo.assets && \
	$(BIN)/python tests/soak/soak.py --engine "$$engine" $(SOAK_ARGS)

clean:
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
	@find autospec tests -name __pycache__ -type d -prune -exec rm -rf {} +
