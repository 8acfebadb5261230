# `make report` and `make test` do everything on a fresh machine that has Python 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN := $(BIN)/extrapolate

LAST ?= 2468
ONLY ?=
JOBS ?= 2
OLDEST ?= tests
# One that every machine can install.
TORCH ?= 2.13.*
INSTALL = $(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python -c constraints.txt -e
# uv does not read pip's settings.
ifneq ($(PIP_FIND_LINKS),)
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
endif
ifdef QUICK
SCALE := --scale quick
endif

.PHONY: report zoo docs site test faults check wheel lock oldest gpu mutants clean

report: $(VENV)/installed  ## tokenise, train, evaluate, and write tables and plots (QUICK=1: in about a minute)
	$(RUN) sweep examples/studies/quick-start.toml $(SCALE)

zoo: $(VENV)/installed  ## a smoke run of every encoding, in about 10 minutes: not a ranking
	$(RUN) sweep examples/studies/frontier.toml --scale tiny

docs: $(VENV)/installed  ## remake the pages and pictures of docs/ that are made from code
	$(BIN)/python docs/generate.py

site: $(VENV)/site-installed  ## the documentation as a site, in site/index.html: runs the first notebook, in about a minute
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test: $(VENV)/test-installed  ## the test suite, but for faults and the project's own tools
	CUDA_VISIBLE_DEVICES= $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder  # a GPU has `make gpu`

faults: $(VENV)/test-installed  ## kills commands, fills disks, starts several processes, and tests tools/, in minutes
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/faults tests/tools -n auto --dist loadfile --no-loadscope-reorder

check: $(VENV)/test-installed  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

wheel: $(VENV)/test-installed  ## build the wheel, install it as users do, and run it there
	$(BIN)/python tools/wheel.py

lock: $(VENV)/bin/uv  ## write constraints.txt: the newest versions that go together, for every Python and system
	echo 'torch==$(TORCH)' | $(BIN)/uv pip compile pyproject.toml - --all-extras --universal --python-version 3.11 \
	  --upgrade --no-header --no-annotate -q -o $(VENV)/lock.txt
	{ echo '# The versions that `make` installs with, for every Python and system. Made by `make lock`.'; \
	  grep -Ev '^(nvidia-|cuda-|triton)' $(VENV)/lock.txt; } > constraints.txt  # torch has those for its own CUDA

oldest: $(VENV)-oldest/installed  ## the test suite with the oldest versions that pyproject.toml allows, in an environment of its own
	$(VENV)-oldest/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(OLDEST)

gpu: $(VENV)/test-installed  ## on a machine with a CUDA GPU: its tests and the speed of training, written to docs/gpu.md
	$(BIN)/python tools/gpu.py

mutants: $(VENV)/mutants-installed  ## mutation testing of the numeric modules, in about an hour (LAST=0123456789: all; ONLY=extrapolate.model: one room)
	@echo "Every mutant whose number ends in one of $(LAST): about $$(printf %s $(LAST) | wc -c) in 10 of every module's."
	OMP_NUM_THREADS=1 $(BIN)/mutmut run --max-children $(JOBS) "$(ONLY)*__mutmut_*[$(LAST)]"
	$(BIN)/python tools/mutants.py

clean:  ## remove the environment and everything the targets above made
	rm -rf $(VENV) $(VENV)-oldest mutants site data/stdlib sweeps/quick-start sweeps/quick-start-quick sweeps/frontier-tiny

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/bin/uv: | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check uv

$(VENV)/installed: pyproject.toml constraints.txt | $(VENV)/bin/uv
	$(INSTALL) .
	touch $@

$(VENV)/test-installed: pyproject.toml constraints.txt | $(VENV)/bin/uv
	$(INSTALL) '.[test]'
	touch $@ $(VENV)/installed

$(VENV)-oldest/installed: pyproject.toml tools/oldest.py | $(VENV)/bin/uv  # compiled, because the tests start many processes
	$(BIN)/uv venv -q --clear --python $(BIN)/python $(VENV)-oldest
	$(BIN)/python tools/oldest.py > $(VENV)-oldest/oldest.txt
	$(BIN)/uv pip install -q --compile-bytecode --python $(VENV)-oldest/bin/python -c $(VENV)-oldest/oldest.txt -e '.[test]' pip 'setuptools>=77'
	touch $@

$(VENV)/site-installed: pyproject.toml constraints.txt | $(VENV)/bin/uv
	$(INSTALL) '.[site]'
	touch $@ $(VENV)/installed

$(VENV)/mutants-installed: pyproject.toml constraints.txt | $(VENV)/bin/uv
	$(INSTALL) '.[mutants]'
	touch $@ $(VENV)/test-installed $(VENV)/installed
