# `make demo` and `make test` each set up what they need: a virtual environment in .venv, from the package registry.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help install torch servers demo test lint format bench bench-encode bench-join bench-plan bench-storage bench-read clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/' | expand -t 20

install: .venv/.installed  ## the package and its tools in .venv (about 5 minutes, 3.5 GB)

.venv/.installed: pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("shardwright needs Python 3.11 or later, and $(PYTHON) is %s: make PYTHON=..." % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	rm -rf shardwright.egg-info  # an older one would hide the entry points of this one
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m compileall -q shardwright schemas transforms pipelines
	touch $@

torch: .torch/.installed  ## another environment, with torch and neither TensorFlow nor Beam, in .torch (about 2 minutes, 6 GB)

.torch/.installed: pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv .torch
	.torch/bin/python -m pip install --quiet --upgrade pip
	.torch/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[test-torch]'
	touch $@

servers: .servers/.built  ## the object stores tests run against, in .servers (needs Go; about 3 minutes)

.servers/.built: $(shell find tests/servers/gcs tests/servers/build.sh -type f)
	tests/servers/build.sh

demo: install  ## build, verify, read and train on real images, all made here; results under demo/
	$(BIN)/python examples/demo.py

test: install  ## the whole test suite
	$(BIN)/python -m pytest

lint: install  ## ruff (lint and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install  ## put the code in ruff's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install  ## whole-process speed and memory against tar, webdataset, tf.io and stock Beam (needs 12 GB, about 15 minutes)
	$(BIN)/python benchmarks/writing.py --write
	$(BIN)/python benchmarks/build.py --write

bench-join: install  ## a join of 100,000 and of 3,000,000 rows of labels (about 4 minutes)
	$(BIN)/python benchmarks/join.py --write

bench-encode: install  ## re-encoding against a plain Pillow loop, and memory with large images (needs 1 GB, about 3 minutes)
	$(BIN)/python benchmarks/encode.py --write

bench-plan: install  ## a plan of 5,000,000 rows
	$(BIN)/python benchmarks/plan.py --write

bench-storage: install servers  ## object stores: reading, building, uploading, listing, against their usual clients (needs Go and 6 GB, about 14 minutes)
	$(BIN)/python benchmarks/storage.py --write

bench-read: install .torch/.peers  ## reading: images and records a second against tf.data, Keras, Grain, torch and its loaders (needs 10 GB, about 25 minutes)
	$(BIN)/python benchmarks/read.py --write

.torch/.peers: .torch/.installed
	.torch/bin/python -m pip install --quiet --constraint constraints.txt torchvision webdataset mosaicml-streaming litdata
	touch $@

clean:  ## remove the environment and everything made here
	rm -rf .venv .torch .servers demo build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
