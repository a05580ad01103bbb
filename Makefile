# Everything sets itself up: Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-browser check bench docs format clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q $(shell grep '^torch==' constraints.txt)
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/python examples/demo.py

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# The explorer in a real browser. Chromium comes from the system (Debian: apt-get install chromium).
test-browser: $(READY)
	$(BIN)/python -m pytest -m browser tests/explorer tests/figures

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m recipes.package

bench: $(READY)
	$(BIN)/python -m bench

docs: $(READY)
	$(BIN)/python -m glauber.cli.reference > docs/commands.md

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist demo
