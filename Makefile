# `make demo` and `make test` are all a fresh machine needs: each prepares .venv first, once.
# Another interpreter:  make test PYTHON=python3.13
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test test-reproduction test-lowest test-rounding coverage lint docs look linkcheck format bench benchname reproduce studies studyname campaign release wheels clean

VENV := .venv
BIN := $(VENV)/bin
MADE := $(VENV)/.made
DEMO := $(VENV)/.demo-installed
DEV := $(VENV)/.all-installed
STUDIES := $(VENV)/.studies-installed

# The first interpreter on the path that is new enough; a macOS or older Debian `python3` may not be.
RECENT := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c '$(RECENT)' 2>/dev/null && echo $$p && break; done)
WORKERS ?= auto
PYTEST_ARGS ?=
# What `make test` leaves to `make test-reproduction`; empty where one run is to serve both.
LEFT_OUT ?= --ignore=tests/reproduction
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Packages are compiled where they are first imported, once: an environment that forbids keeping what was compiled, as
# images of containers do, would have every process of the tests compile them again.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 13

demo: $(DEMO) ## views of patients, alone and together, under a minute
	$(BIN)/kernelmosaic demo

test: lint ## lint, types and every test of the library
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses=8 --dist worksteal -m "not torch and not campaign" $(LEFT_OUT) $(PYTEST_ARGS)

test-reproduction: $(DEV) ## the tests of what runs the papers again
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses=8 --dist worksteal tests/reproduction $(PYTEST_ARGS)

test-lowest: ## the tests with the oldest versions that pyproject.toml allows, in .venv-lowest
	@test -n "$(PYTHON)" && "$(PYTHON)" -m venv .venv-lowest
	@.venv-lowest/bin/python -m pip install --quiet uv
	@.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct --editable ".[test]"
	.venv-lowest/bin/python -m pytest -n $(WORKERS) --maxprocesses=8 --dist worksteal -m "not torch" $(PYTEST_ARGS)

test-rounding: $(DEV) ## the tests under other BLAS kernels and instruction sets, threads, and last digits of samples; hours
	$(BIN)/python tools/rounding.py --pytest-args="-n $(WORKERS) $(PYTEST_ARGS)"

coverage: $(DEV) ## which lines the tests run
	@$(BIN)/python -m pip install --quiet --editable ".[coverage]"
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses=8 --dist worksteal -m "not torch" \
		--cov --cov-report=term:skip-covered --cov-report=html:coverage-html $(PYTEST_ARGS)

release: $(DEV) ## build, and check what was built: make release; then python tools/release.py --tag
	@$(BIN)/python -m pip install --quiet --editable ".[release]"
	$(BIN)/python tools/release.py

wheels: $(DEV) ## which dependencies lack a wheel somewhere; needs the network
	@$(BIN)/python -m pip install --quiet uv
	$(BIN)/python tools/check_wheels.py

lint: $(DEV) ## ruff, mypy, codespell; all of them, whichever complains
	@status=0; for tool in "ruff check ." "ruff format --check ." mypy codespell; do \
		echo "$$tool"; $(BIN)/$$tool || status=1; done; exit $$status

docs: $(DEV) ## the documentation, examples run, into docs/_build/html, its links checked
	@rm -rf docs/generated # pages of names that have moved
	$(BIN)/python -m sphinx -q -E -W --keep-going -j auto -b html -d docs/_build/doctrees docs docs/_build/html
	$(BIN)/python tools/check_site.py docs/_build/html

look: docs ## the documentation's pages in a browser, wide and narrow, light and dark, and its search
	$(BIN)/python tools/check_site.py docs/_build/html --look

linkcheck: $(DEV) ## links of the documentation to other sites; needs the network
	$(BIN)/python -m sphinx -q -b linkcheck -D plot_gallery=0 -d docs/_build/linkcheck-doctrees docs docs/_build/linkcheck

format: $(DEV) ## format all files, and correct what ruff can; what it cannot is listed
	@$(BIN)/ruff check --fix .; status=$$?; $(BIN)/ruff format .; exit $$status

bench: benchname $(DEV) ## one benchmark: make bench NAME=solver
	PYTHONPATH=. $(BIN)/python benchmarks/$(NAME).py

benchname:
	@test -f "benchmarks/$(NAME).py" || { echo "make bench NAME=…, one of:" \
		$(basename $(notdir $(wildcard benchmarks/[a-z]*.py))) >&2; exit 2; }

reproduce: $(DEV) ## the papers run again, all of them or make reproduce NAME=000-table1; goes on where it stopped
	$(BIN)/python -m reproduction $(or $(NAME),--all) $(if $(COMMIT),--commit $(COMMIT))

studies: studyname $(STUDIES) ## a study on published problems: make studies NAME=chemistry DATA=folder; goes on where it stopped
	PYTHONPATH=. $(BIN)/python studies/$(NAME).py $(if $(DATA),--data $(DATA))

studyname:
	@test -f "studies/$(NAME).py" || { echo "make studies NAME=…, one of:" \
		$(filter-out common,$(basename $(notdir $(wildcard studies/[a-z]*.py)))) >&2; exit 2; }

COMMIT ?= $(shell git rev-parse --short HEAD 2>/dev/null)
N ?= 1000
campaign: $(DEV) ## random problems, each checked by other means: make campaign N=10000
	$(BIN)/python -m pytest -q -n $(WORKERS) --maxprocesses=8 -m campaign tests
	$(BIN)/python -m tests.campaign --count $(N) --n-jobs 2 --log campaign.jsonl $(if $(SEED),--seed $(SEED))

clean: ## remove .venv, caches and what was built
	rm -rf $(VENV) .venv-lowest build dist coverage-html .coverage* campaign.jsonl .hypothesis .mypy_cache .pytest_cache .ruff_cache kernelmosaic-demo.html docs/_build docs/auto_examples docs/generated
	find src reproduction studies tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are written last: a failed or interrupted step is simply done again.
$(MADE):
	@test -n "$(PYTHON)" || { echo "kernelmosaic needs Python 3.11 or newer; none was found." \
		"If it is elsewhere: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@command -v "$(PYTHON)" >/dev/null || { echo "PYTHON=$(PYTHON): there is no such command." >&2; exit 1; }
	@"$(PYTHON)" -c '$(RECENT)' || { echo "kernelmosaic needs Python 3.11 or newer; $(PYTHON) is" \
		"$$("$(PYTHON)" --version 2>&1). Choose another: make PYTHON=python3.12" >&2; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { echo "$(PYTHON) could not make a virtual environment (its own message is above)." \
		"On Debian and Ubuntu the module is a package of its own: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(DEMO): pyproject.toml | $(MADE)
	@echo "Installing kernelmosaic and what draws its pictures into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --no-compile --editable ".[cli,plots]"
	@touch $@

$(DEV): pyproject.toml | $(MADE)
	@echo "Installing kernelmosaic and what its tests and documentation need into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --no-compile --editable ".[test,lint,docs]"
	@touch $(DEMO) $@

$(STUDIES): pyproject.toml | $(MADE)
	@echo "Installing kernelmosaic and what its studies need into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --editable ".[studies]"
	@touch $(DEMO) $@
