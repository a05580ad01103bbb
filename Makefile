# Everything sets itself up: Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-browser test-cuda check bench docs verdicts tutorials format clean

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
	$(BIN)/python -m pytest -m browser tests/interfaces tests/test_site.py

# On a machine with an NVIDIA GPU: the same answers as on the CPU.
test-cuda: $(READY)
	$(BIN)/python -m pytest -m cuda tests/cuda

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m recipes.package
	$(BIN)/python -m website.reference | diff docs/commands.md - || (echo "make docs"; false)
	$(BIN)/python -m website.coverage docs/coverage | diff docs/coverage.md - || (echo "make docs"; false)
	$(BIN)/python -m mkdocs build --strict  # --quiet would not count the warnings

bench: $(READY)
	$(BIN)/python -m bench

# The site, strictly and offline: site/index.html can be opened as it is.
docs: $(READY)
	$(BIN)/python -m website.reference > docs/commands.md
	$(BIN)/python -m website.coverage docs/coverage > docs/coverage.md
	$(BIN)/python -m mkdocs build --strict

# The page of verdicts: make verdicts RESULTS="reproduced other", folders of `glauber paper all --out`.
RESULTS ?= reproduced
verdicts: $(READY)
	$(BIN)/python -m website.verdicts $(RESULTS) > docs/verdicts.new
	mv docs/verdicts.new docs/verdicts.md

# Executes the notebooks of examples/ and stores what they show; needs Chromium, takes minutes.
tutorials: $(READY)
	$(BIN)/python -m website.tutorials

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist demo site
