PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The folder with the data of the experiments; without it tests that need it are skipped.
HETMOGP_DATA ?= $(abspath $(wildcard ../shared/data))
export HETMOGP_DATA

.PHONY: install peers demo browser test lint docs outputs stress shapes fuzz bench experiments out_of_core calibration discovery slow scale tables fine_detail local_truth local_scale group_means forecasting draws effects slopes costs weather dist clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

peers: .venv-peers/.ready

.venv-peers/.ready: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

demo: $(READY)
	$(BIN)/hetmogp demo --out demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The report is also tested in Chromium where there is one; this installs Debian's.
browser:
	command -v chromium || (apt-get update --quiet && apt-get install --yes --quiet chromium)

# A file of tests stays in one process, so that its models are fitted once; the longest go first.
LONGEST := $(addprefix tests/test_,distributed.py docs.py walk.py fitting.py cli.py storage.py model.py \
    families.py report.py disk.py checkpoint.py likelihoods.py)

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(LONGEST) tests src

# What takes too long for every change; Ray is installed for it.
slow: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[ray]"
	$(BIN)/python -m pytest -n 2 -m slow tests

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# What the code of the pages prints, put under each block, and the figures that it saves.
OUTPUTS := ../README.md index.md install.md tour.md worked_case.md missing_data.md effects.md questions.md \
    forecasting.md weights.md validation.md comparing.md optimum.md large_data.md saved_models.md \
    your_own_kernel.md your_own_likelihood.md coming_from.md

outputs: $(READY)
	$(BIN)/python docs/outputs.py $(OUTPUTS)

stress: $(READY)
	$(BIN)/python benchmarks/stress.py --fits 200

# 500 fits of different shapes in one process, whose memory must not grow.
shapes: $(READY)
	$(BIN)/python benchmarks/shapes.py --fits 500

# Ten minutes of unkind data, model files, tables and command lines.
fuzz: $(READY)
	$(BIN)/python benchmarks/fuzz.py --seconds 600

# GPflow and GPyTorch are measured too where `make peers` has installed them (about 2 GB).
bench: $(READY)
	$(BIN)/python benchmarks/speed.py --out docs

# About two hours on two cores; all but the gap need the data in HETMOGP_DATA.
EXPERIMENTS := --out docs/experiments --page docs/experiments.md

experiments: $(READY)
	$(BIN)/hetmogp experiment gap $(EXPERIMENTS)
	$(BIN)/hetmogp experiment london $(EXPERIMENTS)
	$(BIN)/hetmogp experiment register --page docs/experiments.md
	$(BIN)/hetmogp experiment arrhythmia $(EXPERIMENTS)
	$(BIN)/hetmogp experiment behaviour $(EXPERIMENTS) --workers 2

# Writes 50 million rows (about 2 GB) to a folder beside the build outputs.
out_of_core: $(READY)
	$(BIN)/python benchmarks/out_of_core.py --rows 50000000 --folder build/rows

# Rows a second by batch size, from memory and from the same table on disk.
scale: $(READY)
	$(BIN)/python benchmarks/scale.py --folder build/rows

calibration: $(READY)
	$(BIN)/python benchmarks/calibration.py --seeds 5 --workers 2 --out docs

# The default fit on ordinary tables, beside its rivals; they lie in the folder HETMOGP_TABLES.
tables: $(READY)
	$(BIN)/python benchmarks/tables.py --out build/tables.csv

# London's sales with and without local latents; needs the data in HETMOGP_DATA.
fine_detail: $(READY)
	$(BIN)/python benchmarks/fine_detail.py --splits 5 --out docs/images/london_local.png

# How often intervals of group means hold the truth, over 200 simulated tables; about ten minutes.
group_means: $(READY)
	$(BIN)/python benchmarks/group_means.py --simulations 200

# Held-out tails of three series, against the seasonal naive forecast.
forecasting: $(READY)
	$(BIN)/python benchmarks/forecasting.py

# The time and memory of joint draws.
draws: $(READY)
	$(BIN)/python benchmarks/draws.py --million

# Lengthscales and standard deviations of local latents on simulated places.
local_truth: $(READY)
	$(BIN)/python benchmarks/local_truth.py --places 1000

# Local latents of long series, against a Kalman smoother; about six minutes.
local_scale: $(READY)
	$(BIN)/python benchmarks/local_scale.py --rows 10000,100000,1000000 --local 1

# What the patient as a group is worth, on visits of known patients; needs the tables of HETMOGP_TABLES.
effects: $(READY)
	$(BIN)/python benchmarks/effects.py --splits 3

# How often intervals of slopes and intercepts hold the truth, over 2 times 20 simulated tables.
slopes: $(READY)
	$(BIN)/python benchmarks/slopes.py --tables 20

# CPU seconds of fits with hurdles, limits and rounding, beside the plain likelihoods.
costs: $(READY)
	$(BIN)/python benchmarks/costs.py

# Discovery and "auto" on simulated daily weather: times, choices, and every output beside its constant.
weather: $(READY)
	$(BIN)/python benchmarks/weather.py
	$(BIN)/python benchmarks/weather.py --fit

discovery: $(READY)
	$(BIN)/python benchmarks/discovery.py --seeds 10 --workers 2

# Wheel and source for a release, checked and tried in empty environments of Python 3.11 to 3.13.
dist:
	$(PYTHON) benchmarks/dist.py --out dist

clean:
	rm -rf $(VENV) .venv-peers demo experiments site dist .mypy_cache .ruff_cache
