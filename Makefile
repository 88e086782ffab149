# One command sets up what it needs (a virtual environment in .venv) and does its job.
# uv is used if it is there, else venv and pip. The second time is quick.

PYTHON ?= python3
BIN := .venv/bin
UV := $(shell command -v uv 2>/dev/null)

.PHONY: demo demo-gateway docs test reproduce bench bench-write lint browser clean help

help:
	@echo "make demo    sanitise the embedded sample, print a table, draw a picture"
	@echo "make demo-gateway  start the gateway, post what a phone would post, show the answer and the budget"
	@echo "make test    lint, type-check, run all tests and the examples of the docs"
	@echo "make reproduce DATA=…  the paper's case study on a data set, or on a made-up city without one"
	@echo "make docs    build the documentation site into site/"
	@echo "make bench   measure, and print ratios"
	@echo "make clean   remove .venv and what the others made"

demo: .venv/.plot
	@echo "== sanitising a synthetic day of a few people, with and without prediction"
	@$(BIN)/python -m hereish.demo

demo-gateway: .venv/.gateway
	@BIN=$(BIN) PORT=$(or $(PORT),8035) sh examples/demo-gateway.sh

test: lint browser
	@echo "== tests, and the examples of README and docs"
	@$(BIN)/pytest

lint: .venv/.dev
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== mypy --strict"
	@$(BIN)/mypy

# DATA is what `hereish evaluate` reads; ARGS are more of its options, such as --quick.
reproduce: .venv/.all
	@$(BIN)/hereish evaluate $(DATA) -o reproduction $(ARGS)

# The page of `hereish show` is tested in a real browser: Debian's, installed where that is allowed.
browser:
	@if [ -n "$$HEREISH_CHROMIUM" ] || command -v chromium >/dev/null || command -v google-chrome >/dev/null; \
	then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "== installing chromium"; \
		{ apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1 \
		|| echo "== chromium could not be installed: the tests in a browser will be skipped"; \
	else echo "== there is no chromium: the tests in a browser will be skipped"; fi

bench bench-write: .venv/.dev
	@echo "== benchmarks: ratios measured on this machine"
	@$(BIN)/python -m benchmarks $(if $(filter bench-write,$@),--write)

# What is wrong with a page, a link or a docstring ends it; everything that the site loads is in it.
docs: .venv/.all
ifdef UV
	@uv pip install --quiet --python $(BIN)/python --group docs
else
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
endif
	@$(BIN)/python -m sphinx -W --keep-going -q -E docs site
	@echo "== the documentation is in site/index.html: open it in a browser, no server is needed"

clean:
	rm -rf .venv demo-trace.png reproduction .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/pyvenv.cfg:
	@echo "== creating .venv"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
ifdef UV
	@uv venv --quiet --python $(PYTHON) .venv
else
	@$(PYTHON) -m venv .venv
endif

.venv/.%: pyproject.toml | .venv/pyvenv.cfg
	@echo "== installing hereish[$*] into .venv"
ifdef UV
	@uv pip install --quiet --python $(BIN)/python --editable '.[$*]'
else
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
endif
	@touch $@

# Never rebuilt only because the environment's own files changed.
.PRECIOUS: .venv/.plot .venv/.gateway .venv/.dev .venv/.all
