# `make demo` and `make test` each set up what they need: a virtual environment in .venv, from the package registry.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
# The first that runs: a version manager may have a command for a Python that is not chosen.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do $$python -c "" 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
# Every version the tests ran with, on this Python; `make lock` writes them.
LOCK := constraints/python$(shell $(PYTHON) -c 'import sys; print("{}.{}".format(*sys.version_info))').txt
EXTENSION := $(wildcard shardwright/images/_region/*)
LOCKED := 3.11 3.12 3.13
# $(call environment,FOLDER,REQUIREMENTS) makes a virtual environment. uv fetches packages side by side, prints the large ones, and
# environments share its files. It reads no pip.conf; where that is needed, pip installs the same.
environment = $(PYTHON) -m venv $(1) \
	&& { .uv/bin/uv pip install --compile-bytecode --python $(1)/bin/python $(2) 2>&1 | sed '/^ [-+~] /d' \
	|| $(1)/bin/python -m pip install --quiet $(2); }
# One process more than cores, up to 4: some always wait for a store or a deadline.
PROCESSES := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# Files in their own order: else those of few and long tests come last, and two processes wait for the third.
# Compiled tests are kept, for the other processes and the next run.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses $(PROCESSES) --maxprocesses 4 --dist loadfile --no-loadscope-reorder --ignore tests/engines --ignore tests/browser

.DEFAULT_GOAL := help
.PHONY: help install lock torch servers demo test test-all golden mutants simulate torture torture-reader fuzz test-pillow test-prism test-flink test-dataflow test-airflow test-browser test-packaging test-signals docs lint lint-deploy format bench bench-all bench-tables bench-guard bench-coco bench-detection bench-encode bench-erase bench-growth bench-join bench-leaks bench-listing bench-million bench-near-duplicates bench-publishing bench-report bench-peers bench-plan bench-startup bench-storage bench-read bench-scale bench-runners bench-signals bench-write-python bench-damaged bench-gpu peers clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/' | expand -t 20

install: .venv/.installed  ## the package and its tools in .venv (about 3 minutes, 4 GB)

.venv/.installed: pyproject.toml setup.py $(LOCK) $(EXTENSION) | .uv/.installed
	@echo "== .venv with $$($(PYTHON) --version), Beam, TensorFlow, JAX and the tools of the tests: downloads 1.2 GB"
	rm -rf shardwright.egg-info  # an older one would hide the entry points of this one
	@$(call environment,.venv,--constraint $(LOCK) --editable '.[dev]')
	@$(BIN)/python -m pip install --quiet --upgrade pip  # benchmarks and the fake of Dataflow use it
	@$(BIN)/python -m compileall -q shardwright schemas transforms pipelines
	@$(BIN)/python -c 'from shardwright.images.regions import part_decoder_fix as fix; fix() and print(f"== JPEGs are decoded more slowly here: {fix()} (rm .venv/.installed)")'
	@touch $@

.uv/.installed:
	@echo "== uv, which installs packages, in .uv"
	@$(PYTHON) -m venv .uv
	@.uv/bin/python -m pip install --quiet uv==0.13.9
	@touch $@

constraints/%.txt:
	@echo "make needs Python 3.11, 3.12 or 3.13, and PYTHON=$(PYTHON) gives $*: give another one, such as make demo PYTHON=python3.13" >&2
	@echo "The package itself needs 3.11 to 3.14: pip install '.[build,reader]' (README.md, Install)." >&2
	@exit 1

lock: .uv/.installed  ## the newest versions of all packages, for each Python, in constraints/; then run the tests
	for version in $(LOCKED); do \
	.uv/bin/uv pip compile --quiet --upgrade --no-annotate --custom-compile-command 'make lock' --python-version $$version \
	--extra dev --extra test-torch --extra test-signals --output-file constraints/python$$version.txt pyproject.toml || exit 1; done

torch: .torch/.installed  ## another environment, with torch and neither TensorFlow nor Beam, in .torch (about 2 minutes, 6 GB)

.torch/.installed: pyproject.toml setup.py $(LOCK) $(EXTENSION) | .uv/.installed
	@echo "== .torch with PyTorch, for its tests: downloads 3 GB"
	@$(call environment,.torch,--constraint $(LOCK) --editable '.[test-torch]')
	@touch $@

servers: .servers/.built  ## the object stores tests run against, in .servers (needs Go; about 3 minutes)

.servers/.built: $(shell find tests/servers/gcs tests/servers/build.sh -type f)
	tests/servers/build.sh

demo: install  ## build, verify, read and train on real images, all made here; results under demo/
	$(BIN)/python examples/demo.py

test: install servers torch  ## the test suite, a process more than cores; sets up all it needs (the engines have targets of their own)
	$(PYTEST)

test-all: install servers torch  ## what `make test` leaves out: the long tests, and the random ones from new seeds for MINUTES=5
	$(PYTEST) --long --minutes $(or $(MINUTES),5)

golden: install  ## what users rely on, against tests/golden/expected: every published file of each input, texts (about 4 minutes)
	$(BIN)/python -m tests.golden

mutants: install servers torch  ## 300 fixed mutants of the source (LIST=guards: of what guards data) against the tests: which are killed; results in .mutants/
	rm -rf .mutants && mkdir .mutants
	$(PYTEST) -p tests.mutants.coverage_files --cov --cov-context test --cov-report= --junitxml .mutants/junit.xml
	$(BIN)/python -m tests.mutants $(LIST:%=--list %) .mutants/coverage .mutants/junit.xml .mutants/result.json

simulate: install  ## histories of datasets in a simulated store (builds, appends, erasures and readers at once, faults, kills), MINUTES=10
	$(BIN)/python -m tests.simulator --minutes $(or $(MINUTES),10)

torture: install servers  ## builds killed at random moments, lost workers, failing stores, changed bytes, with new seeds (MINUTES=60)
	$(PYTEST) --long --minutes $(or $(MINUTES),60) $(addprefix tests/,builds/test_torture.py builds/test_changing_processes.py builds/test_lost_workers.py \
	transforms/write/test_late_writers.py builds/test_damaged_builds.py shardwright/inspect shardwright/format fuzz)

torture-reader: install servers  ## READERS=64 on one small cache, of which one is killed each second (MINUTES=10)
	READERS=$(or $(READERS),64) $(PYTEST) -n 0 -s --long --minutes $(or $(MINUTES),10) tests/shardwright/reader/many_readers.py

fuzz: install .fuzz/.installed  ## every parser of bytes of others under atheris, MINUTES=10 of each; findings in .fuzz/
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10)

.fuzz/.installed:
	$(BIN)/python -m pip install --quiet --no-deps --target .fuzz/site atheris==3.0.0
	touch $@

# Of the folder first on the path; `Pillow>=11` in pyproject.toml gives Pillow==11.
test-pillow: install  ## parts of JPEGs with the libjpeg-turbo of the oldest Pillow allowed, and of the newest (under a minute)
	for pillow in $$(grep -o -m1 'Pillow>=[0-9.]*' pyproject.toml | tr '>' '=') Pillow; do rm -rf .pillow \
	&& $(BIN)/python -m pip install --quiet --no-deps --target .pillow $$pillow \
	&& PYTHONPATH=$$PWD/.pillow $(BIN)/python -m pytest -n 0 tests/shardwright/images/test_region.py || exit 1; done

test-prism: install  ## builds on Prism, which DirectRunner picks (needs Go; 4 minutes and 2 GB for Prism, 3 minutes for the tests)
	tests/engines/install_prism.sh
	$(BIN)/python -m pytest tests/engines/test_prism.py

test-flink: install servers  ## builds on a Flink cluster made here, its processes killed in mid-build (needs Java, Maven, Go; 160 MB, 3 GB of memory, about 6 minutes)
	deploy/flink/install.sh
	$(BIN)/python -m pytest tests/engines/test_flink.py tests/engines/test_flink_faults.py

test-dataflow: install servers  ## the real Dataflow client against a fake of its service, and what it stages run in fresh environments (about 4 minutes)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile tests/engines/test_dataflow*.py

test-airflow: install servers .airflow/.installed  ## the DAGs run by Airflow, in an environment of its own in .airflow (1.6 GB, about 4 minutes, then 5 for the tests; needs Go)
	PYTHONDONTWRITEBYTECODE= .airflow/bin/python -m pytest --timeout 900 --confcutdir tests/engines/airflow tests/engines/airflow

# Modules are compiled when they are first imported: few of them are.
.airflow/.installed: deploy/airflow/requirements.lock | .uv/.installed
	@$(call environment,.airflow,--no-compile --no-deps --requirement deploy/airflow/requirements.lock)
	@touch $@

test-browser: install .browser/.installed  ## report.html in a headless Chromium, judged by axe-core (needs chromium, npm; about 1 minute, 200 MB)
	PYTHONDONTWRITEBYTECODE= .browser/bin/python -m pytest --confcutdir tests/browser tests/browser

# Debian's Chromium: playwright's own is 3 times as large. Root gets it here, others have to ask root.
.browser/.installed: tests/browser/requirements.txt | .uv/.installed
	@command -v chromium chromium-browser >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -qq --yes --no-install-recommends chromium; } \
	|| { echo "the browser tests need Chromium: apt-get install chromium" >&2; exit 1; }
	@command -v npm >/dev/null || { echo "axe-core is installed by npm, and there is no npm here: apt-get install npm" >&2; exit 1; }
	@$(call environment,.browser,--requirement tests/browser/requirements.txt)
	npm install --silent --no-save --no-audit --no-fund --prefix .browser axe-core@4.14.1
	touch $@

test-signals: .signals/.installed  ## quality signals against CleanVision on 2,000 photographs with made faults, in an environment of its own in .signals (under 2 minutes)
	.signals/bin/python -m tests.signals.judge

.signals/.installed: pyproject.toml setup.py $(LOCK) | .uv/.installed
	@$(call environment,.signals,--constraint $(LOCK) --editable '.[test-signals]')
	@touch $@

test-packaging: install .engines/packaging/.installed  ## sdist and wheel, installed in empty environments and run from there (about 4 minutes, 3 GB)
	$(BIN)/python -m pytest tests/engines/test_packaging.py

.engines/packaging/.installed: tests/engines/packaging-requirements.txt | .uv/.installed
	@$(call environment,.engines/packaging/tools,--requirement tests/engines/packaging-requirements.txt)
	@touch $@

docs: .docs/.installed  ## the documentation as a site in build/site; fails on a broken link
	NO_MKDOCS_2_WARNING=1 .docs/bin/mkdocs build --strict

.docs/.installed: docs/requirements.txt | .uv/.installed
	@$(call environment,.docs,--requirement docs/requirements.txt)
	@touch $@

lint: install  ## ruff (lint and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lint-deploy: .engines/lint/.installed install  ## Dockerfile, Kubernetes manifest, workflow, shell scripts, Flex Template (needs Go; about 1 minute, 100 MB)
	.engines/lint/bin/hadolint deploy/Dockerfile
	.engines/lint/bin/kubernetes-validate --strict --quiet deploy/kubernetes/*.yaml
	.engines/lint/bin/shellcheck .ci/run $(shell git ls-files --cached --others --exclude-standard '*.sh')
	PATH="$$PWD/.engines/lint/bin:$$PATH" .engines/lint/bin/actionlint
	$(BIN)/python deploy/dataflow/make_template.py --check

.engines/lint/.installed: deploy/lint-requirements.txt | .uv/.installed
	@command -v go >/dev/null || { echo "actionlint is built with Go, and there is no go here: install it (https://go.dev/dl)" >&2; exit 1; }
	@$(call environment,.engines/lint,--requirement deploy/lint-requirements.txt)
	GOBIN="$$PWD/.engines/lint/bin" go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
	touch $@

format: install  ## put the code in ruff's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

BENCHMARKS := writing build startup growth plan join encode peers storage read scale detection runners decoders write_python damaged_images

bench-all: install servers torch peers  ## every benchmark; renders RESULTS.md, README.md, docs/ (needs 12 GB, about 2 hours)
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py --write --no-check || echo "not measured: $$name" >&2; done
	$(BIN)/python benchmarks/tables.py --check

# Each peer has an environment of its own, with its newest release: without our constraints, and without another's needs.
# uv links the files that environments share: 10 GB for all. Bytecode, because programs are timed with their imports.
PEERS := $(basename $(notdir $(wildcard benchmarks/peers/*.txt)))
peers: $(PEERS:%=peer-%)  ## the newest release of each peer of the benchmarks, in .peers/NAME (10 GB, about 10 minutes)

peer-%: benchmarks/peers/%.txt .uv/.installed
	@$(call environment,.peers/$*,--upgrade --requirement $<)

bench-tables: install  ## the tables of RESULTS.md, README.md and docs/ from benchmarks/results/; says which are older than the code
	$(BIN)/python benchmarks/tables.py

bench: install peer-beam peer-tensorflow peer-webdataset  ## whole-process speed and memory against tar, webdataset, tf.io and stock Beam (needs 12 GB, about 10 minutes)
	$(BIN)/python benchmarks/writing.py --write
	$(BIN)/python benchmarks/build.py --write

bench-guard: install  ## speed of building and planning against the commit in benchmarks/BASELINE (needs 5 GB, under 4 minutes for the usual ROUNDS=4)
	$(BIN)/python benchmarks/guard.py $(ROUNDS:%=--rounds %)

bench-startup: install  ## start-up: help, 8,000 photographs, 1,000,000 tiny files, built and up to date (needs 10 GB, about 6 minutes)
	$(BIN)/python benchmarks/startup.py --write

bench-growth: install servers  ## datasets that grow: appends against full builds, local and on S3; reading before and after compact (needs Go and 16 GB, about 12 minutes)
	$(BIN)/python benchmarks/growth.py --write

bench-erase: install  ## erases 100 ids of 100,000 photographs beside compact of the same (needs 20 GB, about 5 minutes)
	$(BIN)/python benchmarks/erasure.py

bench-join: install  ## a join of 100,000 and of 3,000,000 rows of labels (about 4 minutes)
	$(BIN)/python benchmarks/join.py --write

bench-encode: install  ## re-encoding against a plain Pillow loop, and memory with large images (needs 1 GB, about 3 minutes)
	$(BIN)/python benchmarks/encode.py --write

bench-coco: install  ## plans a COCO json of 1 GB made here, in bounded memory (needs 4 GB, about 2 minutes)
	$(BIN)/python benchmarks/coco.py

bench-leaks: install  ## looks for images in two splits of 10,000,000 records, in bounded memory (about a minute)
	$(BIN)/python benchmarks/leaks.py

bench-listing: install  ## lists 10,000,000 keys of a flat prefix of a server made here, 30 ms a page (about a minute)
	$(BIN)/python benchmarks/listing.py

bench-million: install  ## 1,000,000 tiny images in bounded memory, files and threads; a manifest of 50,000 shards (about 3 minutes)
	$(BIN)/python benchmarks/million.py

bench-near-duplicates: install  ## near-duplicates: 10,000,000 hashes, recall of copies, false merges (about 4 minutes)
	$(BIN)/python -m benchmarks.near_duplicates

bench-publishing: install  ## 10,000,000 rejects and 50,000 shards of 20,000 classes, published in bounded memory (about 1 minute)
	$(BIN)/python benchmarks/publishing.py

bench-report: install  ## report.html of 10,000,000 records in 1,000 classes: seconds, size, memory (about a minute)
	$(BIN)/python benchmarks/report_page.py

bench-peers: install peer-daft peer-ray  ## decode, resize and write against Daft and Ray Data (about 6 minutes)
	$(BIN)/python benchmarks/peers.py --write

bench-plan: install  ## a plan of 5,000,000 rows
	$(BIN)/python benchmarks/plan.py --write

bench-storage: install servers peer-beam peer-boto3 peer-gcsfs peer-google peer-s3fs  ## object stores: reading, building, uploading, listing, against their usual clients (needs Go and 6 GB, about 8 minutes)
	$(BIN)/python benchmarks/storage.py --write

bench-read: install peer-grain peer-lance peer-lancedb peer-litdata peer-streaming peer-tensorflow peer-torch peer-webdataset-torch  ## reading: images and records a second against tf.data, Keras, Grain, torch and its loaders (needs 8 GB, about 12 minutes)
	$(BIN)/python benchmarks/read.py --write

bench-write-python: install peer-tensorflow peer-webdataset  ## writing from Python, bytes and arrays, against tf.io.TFRecordWriter and webdataset (needs 2 GB, about 5 minutes)
	$(BIN)/python benchmarks/write_python.py --write

bench-damaged: install  ## the damaged images that each --check rejects, beside TensorFlow (about 2 minutes)
	$(BIN)/python benchmarks/damaged_images.py --write

bench-scale: install peer-grain peer-tensorflow  ## what one sw.Reader hands out on 64 simulated cores, beside tf.data and Grain (needs 1 GB, about 6 minutes)
	$(BIN)/python benchmarks/scale.py --write

bench-detection: install torch peer-tensorflow peer-torch  ## photographs of 320 KB with 7 boxes, against torch with torchvision v2 and tf.data (needs 1 GB, about 6 minutes)
	$(BIN)/python benchmarks/detection.py --write

bench-gpu: torch  ## whether the reader keeps a GPU busy with ResNet-50 (needs a GPU and DATASET=FOLDER, about 6 minutes)
	.torch/bin/python benchmarks/gpu_feed.py --dataset $(DATASET) --compile --write

bench-signals: install  ## CPU time to decode and to measure a photograph
	$(BIN)/python -m benchmarks.signals

bench-runners: install  ## one table of the runners that are installed (make test-prism, test-flink): equal bytes, speed, memory (needs 4 GB)
	$(BIN)/python benchmarks/runners.py --write

clean:  ## remove the environment and everything made here
	rm -rf .uv .venv .torch .peers .docs .servers .engines .airflow .signals .mutants .fuzz .pillow .browser demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
