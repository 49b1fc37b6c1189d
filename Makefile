# `make release` makes the archive for users, `make demo` shows all (profile real programs, compare policies, report), `make test` tests all.
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)/release
STEER := $(TARGET)/steer
PLUGIN := $(TARGET)/libcountersteer_capture.so
LIBRARY := $(TARGET)/libcountersteer_c
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# Where `make install` puts things; DESTDIR stands before it for packages.
PREFIX ?= /usr/local
# Folder of the QEMU that programs are recorded under; it is installed if it was built.
ENGINE ?= $(wildcard $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/countersteer/recorder)
SHELL := /bin/bash

.PHONY: demo test test-fast test-vm test-kernel test-python test-distributions wheel artifact fuzz mutants lint words bench build coverage install install-steer release setup setup-build setup-demo profiles reproduce manual bless deb clean

# Without the scheduler in the kernel: the demo simulates, so clang and libelf are not needed.
demo: setup-demo
	@echo "demo: building steer and its recorder; some 4 minutes of CPU time the first time" >&2
	scripts/build-progress $(CARGO) build --profile demo -p countersteer-cli -p countersteer-capture
	demo/run.sh $(dir $(TARGET))demo/steer

# JOBS="clippy rust" runs only these; scripts/test.sh names them all.
test: setup
	CARGO=$(CARGO) scripts/test.sh $(JOBS)

# What a change breaks most often, in a minute or two: format, words, unit tests. No virtual machine, no recording.
test-fast: words
	$(CARGO) fmt --all --check
	$(CARGO) test --workspace --quiet --lib

# Only what needs a kernel or a PMU of its own: in virtual machines.
test-vm:
	CARGO=$(CARGO) vm/test.sh

# Makes the figures anew by which the model of Linux is judged; some forty minutes of a CPU.
test-kernel:
	vm/kernel.sh out/kernel
	COUNTERSTEER_KERNEL_RUNS=$(abspath out/kernel) $(CARGO) test --workspace --test kernel -- --ignored
	$(CARGO) test --workspace --test kernel

# The Python package: tests of an unoptimised wheel; then a wheel with `steer` and everything inside, into target/wheels.
test-python: setup
	CARGO=$(CARGO) python/test.sh

# Recording and judging in roots of Debian 12, Debian 13 and, if there is a wheel, a root with Python alone; needs root.
test-distributions: setup-demo
	$(CARGO) build --profile demo -p countersteer-cli -p countersteer-capture
	scripts/test-distributions.sh $(dir $(TARGET))demo

# BPF=no leaves the engine inside the kernel out, and with it the need for clang and libelf.
wheel: $(if $(filter no,$(BPF)),,setup)
	@scripts/install.sh python3 python3-venv
	CARGO=$(CARGO) python/wheel.sh target/wheels --release $(if $(filter no,$(BPF)),--no-default-features)

# What a reviewer needs to check our claims offline: wheel, profiles, a record, the claims and a script that runs them.
artifact: wheel
	packaging/artifact/make.sh $$(ls -t target/wheels/*.whl | head -1) out/countersteer-artifact.tar.gz

# Every parser of outside input on changed examples: FUZZ runs of each (those that simulate or read folders get a part of that).
FUZZ ?= 1000000
fuzz:
	COUNTERSTEER_FUZZ=$(FUZZ) $(CARGO) test --quiet --no-fail-fast -p countersteer-model -p countersteer-sim --test fuzz -- --nocapture --test-threads 1
	COUNTERSTEER_FUZZ=$(FUZZ) $(CARGO) test --quiet --no-fail-fast -p countersteer-counters -p countersteer-live --lib -- --nocapture --test-threads 1 makes_it_fall make_an_engine_fall
	COUNTERSTEER_FUZZ=$(FUZZ) $(CARGO) test --quiet --no-fail-fast -p countersteer-sysfs --lib --test detect -- --nocapture --test-threads 1 makes_it_fall
	COUNTERSTEER_FUZZ=$(FUZZ) $(CARGO) test --quiet -p countersteer-cache --test trace --test signature -- --nocapture a_reader_fall
	COUNTERSTEER_FUZZ=$(FUZZ) $(CARGO) test --quiet -p countersteer-report --lib --test report -- --nocapture changed_bytes
	COUNTERSTEER_FUZZ=$(FUZZ) $(CARGO) test --quiet -p countersteer-cli --lib -- --nocapture every_request

# Small changes of the code that no test notices, of a sample: MUTANTS of them, the SEED says which.
MUTANTS ?= 150
SEED ?= 1
mutants: setup
	scripts/mutants.sh $(MUTANTS) $(SEED)

# Format, clippy, links of the documentation, and words that docs/glossary.md rules out.
lint:
	CARGO=$(CARGO) scripts/test.sh words format clippy doc

words:
	scripts/words

bench: setup build
	bench/run.sh

# Runs the papers' experiments again.
reproduce: build
	$(STEER) reproduce all --markdown docs/reproduction.md

# Runs what the papers have, row by row, and writes docs/coverage.md; some twenty minutes, most of them in virtual machines.
coverage: build
	@scripts/install.sh python3 gcc libc6-dev
	CARGO=$(CARGO) scripts/coverage

# Writes docs/policies.md anew, from the heads of the policies' files.
manual:
	$(CARGO) run --quiet -p countersteer-cli -- policy manual >docs/policies.md.new && mv docs/policies.md.new docs/policies.md

# BPF=no leaves the engine inside the kernel out, and with it the need for clang and libelf.
build: setup-build
	scripts/build-progress $(CARGO) build --release -p countersteer-cli -p countersteer-capture -p countersteer-capi $(if $(filter no,$(BPF)),,--features scx)

# steer with its plugin, its QEMU if that was built, and its manual. Run `make build` first, as yourself.
install-steer: INTO := $(DESTDIR)$(PREFIX)
install-steer:
	@[ -f $(STEER) ] || { echo "nothing is built yet: run \`make build\` first"; exit 1; }
	install -D -m 755 $(STEER) $(INTO)/bin/steer
	install -d $(INTO)/lib/systemd/system
	sed 's|/usr/local/bin|$(abspath $(PREFIX))/bin|' systemd/countersteer.service >$(INTO)/lib/systemd/system/countersteer.service
	chmod 644 $(INTO)/lib/systemd/system/countersteer.service
	$(STEER) manual --into $(TARGET)/manual
	install -D -m 644 -t $(INTO)/share/man/man1 $(TARGET)/manual/man1/*.1
	install -D -m 644 $(TARGET)/manual/bash/steer $(INTO)/share/bash-completion/completions/steer
	install -D -m 644 $(TARGET)/manual/zsh/_steer $(INTO)/share/zsh/vendor-completions/_steer
	install -D -m 644 $(TARGET)/manual/fish/steer.fish $(INTO)/share/fish/vendor_completions.d/steer.fish
	install -D -m 644 systemd/rules.toml $(INTO)/share/countersteer/rules.toml
	install -D -m 755 $(PLUGIN) $(INTO)/lib/countersteer/libcountersteer_capture.so
	[ -z "$(ENGINE)" ] || { install -m 755 -t $(INTO)/lib/countersteer $(ENGINE)/qemu-*64 && \
	    install -D -m 644 -t $(INTO)/share/doc/countersteer $(ENGINE)/qemu-source.txt; }

# Besides these the C library, with header, pkg-config file and man page.
install: INTO := $(DESTDIR)$(PREFIX)
install: SO := libcountersteer.so
install: install-steer
	install -D -m 755 $(LIBRARY).so $(INTO)/lib/$(SO).$(VERSION)
	ln -sf $(SO).$(VERSION) $(INTO)/lib/$(SO).$(firstword $(subst ., ,$(VERSION)))
	ln -sf $(SO).$(VERSION) $(INTO)/lib/$(SO)
	install -D -m 644 $(LIBRARY).a $(INTO)/lib/libcountersteer.a
	! command -v strip >/dev/null || strip --strip-debug $(INTO)/lib/libcountersteer.a
	install -D -m 644 crates/capi/include/countersteer.h $(INTO)/include/countersteer.h
	install -D -m 644 crates/capi/man/libcountersteer.3 $(INTO)/share/man/man3/libcountersteer.3
	install -d $(INTO)/lib/pkgconfig
	sed -e 's|@PREFIX@|$(abspath $(PREFIX))|; s|@VERSION@|$(VERSION)|' crates/capi/countersteer.pc.in \
	    >$(INTO)/lib/pkgconfig/countersteer.pc

# An archive for any Linux of this architecture, into target: nothing has to be built or installed where it is unpacked. It is tested in an
# empty root.
release: setup-build
	archive=$$(CARGO=$(CARGO) BPF=$(BPF) packaging/static/make.sh $(TARGET)/..) && packaging/static/test.sh $$archive && ls -l $$archive

# A Debian package of all that `make install` puts in place, with QEMU inside, by cargo-deb (cargo install cargo-deb). Run `make build` first.
deb:
	@command -v cargo-deb >/dev/null || { echo "make deb needs cargo-deb: cargo install cargo-deb"; exit 1; }
	rm -rf $(TARGET)/package
	$(MAKE) install DESTDIR=$(abspath $(TARGET))/package PREFIX=/usr ENGINE=$$(scripts/recorder-engine.sh)
	$(CARGO) deb --no-build -p countersteer-cli

# What tests need that Rust's own tools don't bring.
setup:
	@scripts/install.sh gcc libc6-dev make pkg-config clang-19 libelf-dev zlib1g-dev python3 $(if $(filter x86_64,$(shell uname -m)),gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
	@scripts/recorder-engine.sh --unless-here >/dev/null

# What `make build` needs: it is installed if it is missing. BPF=no needs a C compiler alone, which Rust itself needs.
setup-build:
	@[ "$(BPF)" = no ] || scripts/bpf-tools.sh 2>/dev/null || \
	    { scripts/install.sh gcc libc6-dev pkg-config clang-19 libelf-dev zlib1g-dev && scripts/bpf-tools.sh; }

# What the demo profiles, and what records it: QEMU, which is built where the system's takes no plugins.
setup-demo:
	@scripts/install.sh gcc libc6-dev pkg-config gzip bzip2 xz-utils zstd coreutils python3 perl
	@scripts/recorder-engine.sh --unless-here >/dev/null

# Records the shipped profiles again.
profiles: setup setup-demo build
	@scripts/install.sh stockfish x264 brotli lua5.4 gawk gnugo x265 imagemagick libjpeg-turbo-progs webp povray xsltproc libxml2-utils \
	    sqlite3 glpk-utils minisat tetgen calculix-ccx bc clang-19 ruby guile-3.0 pari-gp python3-numpy z3 coinor-clp qhull-bin \
	    pigz lbzip2 zopfli vpx-tools flac vorbis-tools opus-tools lame sox espeak-ng bwa minimap2 fasttree graphviz jq \
	    ghostscript potrace primesieve openssl
	demo/record.sh --long $(STEER) profiles/recorded

# Writes what golden tests expect; review the difference by eye.
bless:
	COUNTERSTEER_BLESS=1 $(CARGO) test --workspace --quiet

clean:
	$(CARGO) clean
	rm -rf out
