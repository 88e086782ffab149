# One command sets up what it needs (a virtual environment in .venv) and does its job.
# uv is used if it is there, else venv and pip. The second time is quick.
# No target but system-packages changes anything outside this folder.

PYTHON ?= python3
# The Pythons of `make test-pythons`: names or paths of interpreters.
PYTHONS ?= python3.11 python3.12 python3.13
VENV ?= .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
# The versions that are installed here and in CI. Users of hereish get those that they like.
CONSTRAINTS := constraints.txt
# Dependency groups of pyproject.toml; other stamps in $(VENV) are extras of hereish.
GROUPS := dev docs lint test

.PHONY: help demo demo-gateway docs test check quick lint format coverage test-pythons hooks lock \
	system-packages reproduce bench bench-write clean

help:
	@echo "make demo          sanitise the embedded sample, print a table, draw a picture"
	@echo "make demo-gateway  start the gateway, post what a phone would post, show the answer and the budget"
	@echo "make test          lint, type-check, run all tests and the examples of the docs"
	@echo "make check         lint, type-check and the quick tests, in less than a minute"
	@echo "make coverage      all but the slow tests, and the lines and branches of hereish that they run"
	@echo "make test-pythons  the quick tests with every supported Python that is installed"
	@echo "make format        format the code"
	@echo "make hooks         have ruff and mypy run before each commit"
	@echo "make lock          renew $(CONSTRAINTS), the versions that these commands install"
	@echo "make system-packages  install the browser and Java for the tests with apt-get, as root"
	@echo "make reproduce DATA=…  the paper's case study on a data set, or on a made-up city without one"
	@echo "make docs          build the documentation site into site/"
	@echo "make bench         measure, and print ratios"
	@echo "make clean         remove .venv and what the others made"

demo: $(VENV)/.plot
	@echo "== sanitising a synthetic day of a few people, with and without prediction"
	@$(BIN)/python -m hereish.demo

demo-gateway: $(VENV)/.gateway
	@BIN=$(BIN) PORT=$(or $(PORT),8035) sh examples/demo-gateway.sh

# Every test once. What they run of hereish is not measured here, since measuring makes Python code
# a third slower: that is `make coverage`.
test: lint
	@echo "== all tests, and the examples of README and docs"
	@$(BIN)/pytest

check: lint quick

quick: $(VENV)/.dev
	@echo "== the quick tests"
	@$(BIN)/pytest -q --quick

# For whoever adds modules, and before a release. No percentage is asked for, but no module may be
# left out.
coverage: $(VENV)/.dev
	@echo "== all but the slow tests, and the lines and branches that they run"
	@$(BIN)/pytest --without-slow --cov --cov-report=term
	@$(BIN)/python -m tests.support.untested_modules

lint: $(VENV)/.dev
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== mypy --strict"
	@$(BIN)/mypy

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# Each Python has a virtual environment of its own: .venv-3.12 and so on.
test-pythons:
	@for python in $(PYTHONS); do \
		version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || \
			{ echo "== $$python is not installed: skipped"; continue; }; \
		echo "== Python $$version"; \
		$(MAKE) --no-print-directory quick PYTHON=$$python VENV=.venv-$$version || exit 1; \
	done

hooks: $(VENV)/.dev
	@$(BIN)/pre-commit install

# For every Python and system at once; the file names versions, and no index or path.
lock:
ifndef UV
	$(error make lock needs uv: pip install uv)
endif
	@uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras \
		$(GROUPS:%=--group %) --no-annotate --custom-compile-command "make lock" \
		--output-file $(CONSTRAINTS) pyproject.toml

# The pages are tested in a real browser, and Spark on a real Java. Without them those tests are
# skipped, and say so.
system-packages:
	@if [ -n "$$HEREISH_CHROMIUM" ] || command -v chromium >/dev/null || command -v google-chrome >/dev/null; \
	then echo "== there is a browser already"; \
	else echo "== installing chromium with apt-get"; \
		apt-get update -qq && apt-get install -y -qq chromium >/dev/null; fi
	@if [ -n "$$JAVA_HOME" ] || command -v java >/dev/null; \
	then echo "== there is Java already"; \
	else echo "== installing Java 17 with apt-get"; \
		apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless >/dev/null; fi

# DATA is what `hereish evaluate` reads; ARGS are more of its options, such as --quick.
reproduce: $(VENV)/.all
	@$(BIN)/hereish evaluate $(DATA) -o reproduction $(ARGS)

bench bench-write: $(VENV)/.dev
	@echo "== benchmarks: ratios measured on this machine"
	@$(BIN)/python -m benchmarks $(if $(filter bench-write,$@),--write)

# What is wrong with a page, a link or a docstring ends it; everything that the site loads is in it.
docs: $(VENV)/.docs
	@$(BIN)/python -m sphinx -W --keep-going -q -E docs site
	@echo "== the documentation is in site/index.html: open it in a browser, no server is needed"

clean:
	rm -rf .venv .venv-* demo-trace.png reproduction site .coverage* \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis .schemathesis

$(VENV)/pyvenv.cfg:
	@echo "== creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
ifdef UV
	@uv venv --quiet --python $(PYTHON) $(VENV)
else
	@$(PYTHON) -m venv $(VENV)
endif

# With a group comes hereish with all its extras. pip knows groups since 25.1; an older one in the
# virtual environment is upgraded.
$(GROUPS:%=$(VENV)/.%): $(VENV)/.%: pyproject.toml $(CONSTRAINTS) | $(VENV)/pyvenv.cfg
	@echo "== installing hereish[all] and the group $* into $(VENV)"
ifdef UV
	@uv pip install --quiet --python $(BIN)/python --constraint $(CONSTRAINTS) \
		--editable '.[all]' --group $*
else
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) \
		--editable '.[all]' --group $*
endif
	@touch $@

$(VENV)/.%: pyproject.toml $(CONSTRAINTS) | $(VENV)/pyvenv.cfg
	@echo "== installing hereish[$*] into $(VENV)"
ifdef UV
	@uv pip install --quiet --python $(BIN)/python --constraint $(CONSTRAINTS) --editable '.[$*]'
else
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) \
		--editable '.[$*]'
endif
	@touch $@

# Never rebuilt only because the environment's own files changed.
.PRECIOUS: $(VENV)/.%
