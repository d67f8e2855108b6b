PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
JOBS   ?= 3# on two cores: some tests wait for processes of their own
SAMPLE ?= 150
SEED   ?= 0
ONLY   ?=
SITE   ?= /# where the site will be: its versions have addresses below it
BENCH  ?= --tune 60 -d log
TARGET ?= $(BUCKETIZE_TARGET)

# What `make check` tries: the laws, then the way of a model, of a call and of a log.
CHECK  := layers types text ir op_laws semantics dispatch dispatchers decision_table bounds transforms verify \
          onnx plan runtime capture rounds save log search verdict confirm

PYTEST := $(BIN)/pytest -q -n $(JOBS) --dist worksteal
PAGES  := tests/test_documents.py tests/test_notebooks.py

export BUCKETIZE_TARGET := $(TARGET)

.PHONY: docs docs-links docs-test help install demo notebooks recording style test test-all test-arm64 test-ray check fuzz dist mutate \
	lint format bench clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  \1\t/' | expand -t 12

install: $(READY) ## .venv with all that tests need; then: source .venv/bin/activate

demo: $(READY) ## one program at any size: a net over images, an encoder over real lengths; writes demo-output/
	@$(BIN)/bucketize demo

notebooks: $(READY) ## run examples/*.ipynb and keep what they show, but for times
	@$(BIN)/python tests/notebooks.py

recording: $(READY) ## docs/recording: a few commands in a terminal, as they run
	@docs/recording/record.sh

test: style ## most of what CI runs: lint, types, size table, tests (TARGET=avx2: with narrower vectors)
	@$(BIN)/python benchmarks/size_table.py
	@$(BIN)/mypy & types=$$!; $(PYTEST) --durations 25 $(addprefix --ignore=,$(PAGES)); tests=$$?; wait $$types && exit $$tests

test-all: lint ## every case of sweeps, of which `make test` runs a sixteenth: dtypes, widths, sizes, seeds
	@$(PYTEST) --durations 25 --every-case

check: lint ## two minutes: lint, types, and the tests of what others rest on
	@$(PYTEST) $(foreach name,$(CHECK),$(wildcard tests/test_$(name).py tests/*/test_$(name).py))

fuzz: $(READY) ## thousands of random graphs, compiled in every way, beside references; mutated models
	@$(PYTEST) --graphs 5000 $(wildcard tests/model/test_fuzz*.py tests/model/test_mutants.py)

test-arm64: $(READY) ## tests on 64-bit Arm in emulation, half an hour: needs Debian and qemu-user-static
	@$(BIN)/python tests/arm64.py

test-ray: $(VENV)/.ray ## replicas and data sets on a Ray cluster of this machine, three minutes
	@$(BIN)/pytest -q -n 0 tests/integrations/test_ray.py

dist: $(READY) ## both wheels, and each `pip install` of a page, in empty environments: README's first lines run there, and blocks of Ray
	@rm -rf build/dist && $(BIN)/python -m pip wheel --quiet --quiet --disable-pip-version-check --no-deps --wheel-dir build/dist ./runtime .
	@$(PYTHON) -m venv build/dist/venv && $(PYTHON) -m venv build/dist/runtime
	@$(BIN)/python tests/blocks.py install build/dist/venv
	@build/dist/runtime/bin/python -m pip install --quiet --quiet --disable-pip-version-check build/dist/bucketize_runtime-*.whl
	@awk '/^```python/ {on = 1; next} /^```/ {if (on) exit} on' README.md > build/dist/readme.py
	@awk '/^```python/ {on = 1; next} /^```/ {if (on) exit} on' runtime/README.md > build/dist/runtime.py
	@cd build/dist && venv/bin/python readme.py && venv/bin/bucketize run zoo:mlp -d log --at N=3 && venv/bin/bucketize --version
	@cd build/dist && venv/bin/bucketize compile zoo:mlp -d log -o model.bkt && runtime/bin/python runtime.py && du -sh runtime/lib/python*/site-packages/bucketize
	@$(BIN)/python tests/blocks.py install --extras build/dist/venv
	@build/dist/venv/bin/python -m pip install --quiet --quiet --no-compile --disable-pip-version-check distributed sybil
	@mkdir build/dist/page && cd build/dist/page && ../venv/bin/python ../../../tests/blocks.py run ../../../docs/scaling.md

mutate: $(READY) ## seed faults into the core: do tests notice? (SAMPLE=0 for all, ONLY=dispatch/pad)
	@$(BIN)/python -P tests/mutate.py --sample $(SAMPLE) --seed $(SEED) --only '$(ONLY)'

style: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

lint: style ## ruff and mypy, without changing a file
	@$(BIN)/mypy --num-workers $(JOBS)

format: $(READY) ## rewrite the files as ruff would have them
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.docs ## the site of docs/, into build/site; its links are checked, and a warning is an error
	@$(BIN)/python docs/versions.py $(SITE)

docs-links: $(VENV)/.docs ## the site's links to elsewhere: needs the network, and says so without one
	@$(BIN)/python docs/links.py

docs-test: $(READY) ## every block of README and docs, and every notebook
	@$(BIN)/python tests/blocks.py
	@$(PYTEST) $(PAGES)

bench: $(VENV)/.bench ## beside other engines, an hour or two; a minute: make bench BENCH='--quick -m mlp'
	@$(BIN)/python -m benchmarks bench $(BENCH)

clean: ## remove everything that make made
	@rm -rf $(VENV) build demo-output bench-output mutants .mypy_cache .pytest_cache .ruff_cache .hypothesis

# What takes long is done beside a line that counts every second, for as long as the shell lives that runs both.
COUNTING = end='\n'; test -t 1 && end='\r'; \
	(s=0; while sleep 1 && kill -0 $$$$ 2>/dev/null; do s=$$((s + 1)); printf "  %s packages, %s s $$end" \
	"$$(ls -d $(VENV)/lib/python*/site-packages/*.dist-info 2>/dev/null | wc -l)" $$s; done) &

# Not compiled before it is imported: tests of packages, what few import or none, and torch, with files of other Pythons.
LEFT = /tests?/|/torch/|/(IPython|aiohttp|debugpy|fontTools|gevent|httpcore2|httpx2|huggingface_hub|ipykernel|jedi|libcst|mpl_toolkits)/|/(mypyc?|onnxruntime|parso|pip|playwright|prompt_toolkit|pygments/lexers|setuptools|textual|tritonclient|wcwidth|zmq|zope)/
OURS = bucketize benchmarks dispatchers tuning_logs

# The workers of a run share what one of them has compiled, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit(f"bucketize needs Python >= 3.11; $(PYTHON) is {sys.version.split()[0]} (try: make PYTHON=python3.12)")'
	@test -x $(BIN)/python || { echo "making $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "installing into $(VENV): some hundred megabytes the first time"
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --upgrade pip # an old one takes twice as long for what follows
	@$(COUNTING) $(BIN)/python -m pip install --quiet --quiet --no-compile --disable-pip-version-check --editable ./runtime --editable '.[test]'
	@$(COUNTING) $(BIN)/python -m compileall -qq -j 0 -x '$(LEFT)' $(VENV)/lib $(OURS) # pip would use one core, and take all
	@printf '%-40s\n' "installed: $(BIN)/bucketize"
	@touch $@

$(VENV)/.bench: $(READY) # an engine that cannot be had here is missing then, which the benchmark says
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable ./runtime --editable '.[bench]' && touch $@ || echo "not all engines could be installed"

$(VENV)/.ray: $(READY)
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable ./runtime --editable '.[ray]'
	@touch $@

$(VENV)/.docs: $(READY)
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable ./runtime --editable '.[docs]'
	@touch $@
