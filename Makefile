PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: install demo test lint stress bench calibration discovery clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/hetmogp demo --out demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2

stress: $(READY)
	$(BIN)/python benchmarks/stress.py --fits 20

bench: $(READY)
	$(BIN)/python benchmarks/gap.py --seeds 10
	$(BIN)/python benchmarks/london.py --splits 5

calibration: $(READY)
	$(BIN)/python benchmarks/calibration.py --seeds 5 --workers 2 --out docs

discovery: $(READY)
	$(BIN)/python benchmarks/discovery.py --seeds 10 --workers 2

clean:
	rm -rf $(VENV) demo .mypy_cache .ruff_cache
