# Two commands for a new user, on a machine with only Rust and Python 3.11 or newer:
#
#   make demo    builds, then measures every module of Python's own standard library on every core
#   make test    builds, then passes all tests
#
# Others: demo-serve (a server of tools, called from several languages), dashboard-screenshots, build, test-rust,
# test-python, sanitize, generate, lint, mutants, bench, bench-signals, bench-results, bench-loop, bench-journal,
# bench-state, bench-messaging, bench-serving, bench-foundation, bench-compare, soak, doc, clean.
# `make test-python PYTHON=/path/to/python3.14` tests another interpreter, in a virtual environment of its own.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# An interpreter that is on the PATH may still refuse to run (a version manager's shim), so each one is asked.
OLD_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
ifndef PYTHON
PYTHON := $(shell for candidate in python3.14 python3.13 python3.12 python3.11 python3 python; do \
    if $$candidate -c '$(OLD_ENOUGH)' >/dev/null 2>&1; then command -v $$candidate; break; fi; done)
VENV ?= .venv
else
VENV ?= .venv-$(shell $(PYTHON) -c 'import sys, sysconfig; \
    print("%d.%d" % sys.version_info[:2] + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""))' 2>/dev/null)
endif

# What has no wheel for the free-threaded 3.13 and does not build there is left out; the tests that need it skip.
EXTRAS ?= test,numpy,joblib,dask,loop,telemetry$(shell $(PYTHON) -c 'import sysconfig; \
    print(",records-free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") \
    else ",property,loop-compiled,messaging,records,science,clients,top,browser")' 2>/dev/null)
BIN := $(abspath $(VENV))/bin
# How the extension is built; `PROFILE=dev` takes what `cargo test` has built, with its assertions.
PROFILE ?= release
# Further options of maturin's, such as `--config FILE` of cargo's.
BUILD_ARGS ?=
# What maturin and pip say is kept for the day it fails.
define MATURIN
log=$$(mktemp); if ! PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1 VIRTUAL_ENV=$(abspath $(VENV)) \
  PYO3_PYTHON=$(BIN)/python $(BIN)/maturin develop --profile $(PROFILE) $(BUILD_ARGS) --quiet $(1) >$$log 2>&1; then \
  cat $$log >&2; rm -f $$log; exit 1; fi; rm -f $$log
endef
PYTEST_ARGS ?=
DEMO_ARGS ?=
COMMA := ,

.PHONY: demo demo-serve test build test-rust test-python sanitize bench bench-signals bench-results bench-loop
.PHONY: bench-messaging bench-serving bench-journal bench-state dashboard-screenshots
.PHONY: bench-foundation bench-compare soak doc clean check-tools mutants
.PHONY: format generate lint lint-rust lint-python lint-types lint-stubs lint-layers lint-deny

demo: build
	@$(BIN)/python examples/demo.py $(DEMO_ARGS)

# A server of tools that programs in other languages, an agent and a browser use; what is not installed is skipped.
demo-serve: build
	@$(BIN)/python examples/demo_serve.py

test: test-rust test-python

build: $(VENV)/.ready
	@$(call MATURIN,--skip-install)

test-rust: check-tools
	@cargo test --workspace --quiet

# The tests of the C-API kit, of shared memory and of messaging with AddressSanitizer, which needs a nightly toolchain.
# The interpreter's objects lie in the C library's memory there, so that what is used after it was given back is seen;
# what the interpreter never gives back is not. CONTRIBUTING.md has the last result.
SANITIZED := os sync shm zmtp messaging

sanitize: check-tools
	@host=$$(rustc +nightly -vV | sed -n 's/^host: //p')
	export RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 CARGO_TARGET_DIR=target/sanitize
	cargo +nightly test --package ropewalk-capi --target $$host --test embedded --quiet
	cargo +nightly test $(addprefix --package ropewalk-,$(SANITIZED)) --target $$host --lib --tests --quiet

test-python: build
	@$(BIN)/python -m pytest -q $(PYTEST_ARGS)

# Only the first build asks pip for the dependencies; later ones replace the extension and nothing else.
$(VENV)/.ready: pyproject.toml | check-tools
	@echo "ropewalk: using $(PYTHON) ($$($(PYTHON) -V)) in $(VENV)"
	$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	echo "ropewalk: building the extension; the first time takes some minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'maturin>=1.9,<2'
	$(call MATURIN,--extras $(EXTRAS))
	touch $@

check-tools:
	@if [ -z "$(PYTHON)" ]; then
	  echo "ropewalk: no Python 3.11 or newer found; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1
	fi
	if ! $(PYTHON) -c '$(OLD_ENOUGH)' 2>/dev/null; then
	  echo "ropewalk: $(PYTHON) is not a working Python 3.11 or newer with the venv module" >&2; exit 1
	fi
	if ! command -v cargo >/dev/null; then
	  echo "ropewalk: cargo not found; install Rust 1.88 or newer (rustup does it)" >&2; exit 1
	fi

# Every check that needs no interpreter but this one; `.ci/run` runs them one by one and counts them.
lint: lint-rust lint-python lint-types lint-stubs lint-layers lint-deny

# Writes what is made from tables in Rust: the heads of the classes of errors and their page; the numbers of messaging's
# enums and the page of socket options.
generate: check-tools
	@ROPEWALK_GENERATE=1 cargo test --quiet --package ropewalk-base --package ropewalk-messaging --test generated

lint-rust: check-tools
	@cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

# Changes the crates one place at a time, and asks the tests of the changed crate whether they notice:
# `make mutants CRATE=bus SHARD=0/10 JOBS=2` changes each tenth place of one crate. CONTRIBUTING.md has the scores.
CRATE ?= pool shm bus executor sync journal
SHARD ?= 0/1
JOBS ?= 1
CARGO_MUTANTS := 27.1.0

mutants: check-tools
	@if ! cargo mutants --version >/dev/null 2>&1; then
	  echo "ropewalk: building cargo-mutants $(CARGO_MUTANTS); it takes a minute or two"
	  cargo install --quiet --locked cargo-mutants --version $(CARGO_MUTANTS)
	fi
	failed=
	for crate in $(CRATE); do
	  mkdir -p target/mutants/$$crate
	  ROPEWALK_SEEDS=$${ROPEWALK_SEEDS:-100} cargo mutants --package ropewalk-$$crate \
	    --shard $(SHARD) --sharding round-robin --jobs $(JOBS) --output target/mutants/$$crate || failed+=" $$crate"
	done
	if [ -n "$$failed" ]; then
	  echo "ropewalk: not every change was noticed; target/mutants/CRATE/mutants.out/missed.txt lists them:$$failed" >&2
	  exit 1
	fi

# Formats everything, and mends what ruff can mend by itself.
format: $(VENV)/.dev
	@cargo fmt --all
	$(BIN)/ruff check --quiet --fix-only .
	$(BIN)/ruff format --quiet .

lint-python: $(VENV)/.dev
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-types: $(VENV)/.dev
	@$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

# The stubs of the extension's modules say what the compiled modules say; `_load` opens those that are not `_core`.
lint-stubs: $(VENV)/.dev build
	@MYPYPATH=python $(BIN)/python -c \
	  'import sys; from ropewalk._load import bus, gateway, journal, loop, results, state, zmq; \
	  from mypy.stubtest import main; sys.exit(main())' \
	  --concise --ignore-disjoint-bases --allowlist tests/law/stubtest-allowed.txt --ignore-unused-allowlist \
	  ropewalk._core ropewalk._worker ropewalk._bus ropewalk._gateway ropewalk._journal ropewalk._results ropewalk._state ropewalk._loop ropewalk._zmq

lint-layers: $(VENV)/.dev build
	@$(BIN)/lint-imports

lint-deny: $(VENV)/.dev
	@PATH="$(BIN):$$PATH" cargo deny --all-features check bans licenses sources

$(VENV)/.dev: $(VENV)/.ready
	@$(call MATURIN,--extras dev$(COMMA)$(EXTRAS))
	touch $@

dashboard-screenshots: build
	@ROPEWALK_SCREENSHOTS=docs/img $(BIN)/python -m pytest tests/unit/serving/test_dashboard_page.py -q \
		-k "pictures or flame"

bench: build $(VENV)/.bench
	@$(BIN)/python benchmarks pools $(BENCH_ARGS)

bench-signals: build $(VENV)/.bench
	@$(BIN)/python benchmarks signals $(BENCH_ARGS)

bench-results: build $(VENV)/.bench
	@$(BIN)/python benchmarks results $(BENCH_ARGS)

bench-journal: build $(VENV)/.bench
	@$(BIN)/python benchmarks journal $(BENCH_ARGS)

bench-state: build $(VENV)/.bench
	@$(BIN)/python benchmarks state $(BENCH_ARGS)

bench-loop: build $(VENV)/.bench
	@$(BIN)/python benchmarks loop $(BENCH_ARGS)

bench-messaging: build $(VENV)/.bench
	@$(BIN)/python benchmarks messaging $(BENCH_ARGS)

bench-serving: build $(VENV)/.bench
	@$(BIN)/python benchmarks serving $(BENCH_ARGS)

$(VENV)/.bench: benchmarks/requirements.txt | $(VENV)/.ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

# Needs no extension: programs in Rust and C++, and the standard library's Python around them.
bench-foundation: check-tools
	@$(PYTHON) benchmarks foundation --rounds 7 $(BENCH_ARGS)

# Two built wheels against each other: `make bench-compare BEFORE=/a/bin/python AFTER=/b/bin/python`.
bench-compare: check-tools
	@$(PYTHON) benchmarks compare $(BEFORE) $(AFTER) $(BENCH_ARGS)

# Chaos with accounts, ten minutes by default: `make soak SECONDS=60 SEED=7 THREADS=3` plays a shorter
# one, with workers that run three tasks at once.
# docs/telemetry.md has the last report.
SECONDS ?= 600
THREADS ?= 1
SEED ?=

soak: build
	@$(BIN)/python -m tests.faults.soak --seconds $(SECONDS) --threads $(THREADS) $(if $(SEED),--seed $(SEED))

doc: check-tools
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

clean:
	@cargo clean
	rm -rf .venv .venv-* python/ropewalk/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
