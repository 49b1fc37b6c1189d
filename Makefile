# Two commands do all: `make demo` (profile real programs, compare policies, report) and `make test`.
CARGO ?= cargo
STEER := target/release/steer
PLUGIN := target/release/libcountersteer_capture.so
SHELL := /bin/bash

.PHONY: demo test test-vm lint bench build setup setup-demo profiles bless clean

demo: setup-demo build
	demo/run.sh $(STEER)

test: setup lint
	$(CARGO) test --workspace --quiet 2>&1
	CARGO=$(CARGO) vm/test.sh

# Only what needs a kernel or a PMU of its own: in virtual machines.
test-vm:
	CARGO=$(CARGO) vm/test.sh

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings

bench: setup build
	bench/run.sh

build:
	$(CARGO) build --release --quiet -p countersteer-cli -p countersteer-capture

# What tests need that Rust's own tools don't bring.
setup:
	@scripts/install.sh gcc libc6-dev qemu-user python3

# What the demo profiles.
setup-demo: setup
	@scripts/install.sh gzip bzip2 xz-utils zstd coreutils python3 stockfish x264 perl

# Records the shipped profiles again.
profiles: setup-demo build
	demo/record.sh $(STEER) profiles/recorded

# Writes what golden tests expect; review the difference by eye.
bless:
	COUNTERSTEER_BLESS=1 $(CARGO) test --workspace --quiet

clean:
	$(CARGO) clean
	rm -rf out
