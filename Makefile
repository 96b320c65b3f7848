# Eyrie's build. `make help` lists the targets. Everything that is built lands in build/ (a staged
# prefix) and in $(EYRIE_CACHE), outside of the clone, where later builds find it again.

EYRIE_CACHE ?= $(HOME)/.cache/eyrie
export EYRIE_CACHE
export CARGO_TARGET_DIR ?= $(EYRIE_CACHE)/target
CARGO ?= cargo
-include $(EYRIE_CACHE)/tools.mk
export CARGO

# Of Cargo.toml. `make demo` takes what is staged already, if anything is.
BUILD_PROFILE ?= release
STAGED := $(shell cat build/profile 2>/dev/null)
RELEASE := $(CARGO_TARGET_DIR)/$(BUILD_PROFILE)
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
CFLAGS ?= -std=c11 -O2 -Wall -Wextra
C_EXAMPLES := heat cg sort farm adi stencil_ulfm
EXAMPLES := $(addprefix build/examples/,$(C_EXAMPLES)) build/examples/heat_f \
    build/examples/stencil_ulfm_f

.PHONY: help setup test-setup build rust libraries fortran examples demo demo-build demo-parts install uninstall \
    package test lint docs reference soak clean

help:
	@echo 'make build    the staged prefix in build/: bin, lib, libexec, include, and the examples'
	@echo 'make install  PREFIX=DIR [DESTDIR=DIR]: stripped, debug symbols apart in lib/debug; make uninstall'
	@echo '              takes away what it has put there (default PREFIX: /usr/local)'
	@echo 'make package  OUT=DIR (default build/packages) [KINDS="tar deb wheel rpm"]'
	@echo 'make demo     runs cg three times, kills a rank and then a node, compares the results bit for bit'
	@echo 'make test     all tests; the last line says how many passed and failed. Of cases that differ in'
	@echo '              a row of a table only, a part that covers it: make test ALL=1 runs them all'
	@echo 'make lint     rustfmt, clippy with warnings denied, the house rules (tests/tidy.py)'
	@echo 'make docs     the documentation as a book in build/docs (mdBook: scripts/setup --docs)'
	@echo 'make reference  the pages of docs/reference that are made from the code'
	@echo 'make soak     SEEDS (default 100000) simulated jobs on many nodes, then benches/kill-storm'
	@echo '              with RUNS (default 100) runs of each example program, and twice as many'
	@echo '              parted among all modes'
	@echo 'make clean    removes build/ and this clone'\''s build artefacts'
	@echo 'scripts/setup installs what the machine lacks; build, demo and test run it first'

setup:
	@scripts/setup

# A second make, so that it reads what the setup found out.
build: setup
	@$(MAKE) --no-print-directory examples

# The simulator is for tests, which build their own.
rust:
	$(CARGO) build --profile $(BUILD_PROFILE) --locked --workspace --exclude eyrie-sim

# What a job of a C program needs of the prefix.
define stage_for_c
	@mkdir -p build/bin build/lib build/libexec build/include
	install -m 755 $(RELEASE)/eyrie build/bin/
	install -m 755 $(RELEASE)/eyrie-restorer build/libexec/eyrie-restorer
	install -m 644 include/*.h build/include/
	install -m 755 scripts/mpicc scripts/mpicxx scripts/mpifort build/bin/
endef

libraries: rust
	$(stage_for_c)
	@echo $(BUILD_PROFILE) > build/profile
	install -m 755 $(RELEASE)/eyrie-image build/bin/
	install -m 644 fortran/eyrie_regions*.f90 build/include/
	install -D -m 644 include/veloc/veloc.h build/include/veloc/veloc.h
	install -m 755 $(RELEASE)/libeyrie_regions.so build/lib/libeyrie_regions.so.1
	ln -sf libeyrie_regions.so.1 build/lib/libeyrie_regions.so
	$(CC) $(CFLAGS) -fPIC -shared -Iinclude -Wl,-soname,libeyrie_image.so.1 c/eyrie_image.c \
	    -o build/lib/libeyrie_image.so.1 -ldl
	ln -sf libeyrie_image.so.1 build/lib/libeyrie_image.so
	install -D -m 644 python/eyrie_regions.py build/lib/python/eyrie_regions.py
	for name in mpic++ mpiCC; do ln -sf mpicxx build/bin/$$name; done
	for name in mpiexec mpirun; do ln -sf eyrie build/bin/$$name; done
	@mkdir -p build/lib/pkgconfig
	for name in eyrie eyrie-fortran eyrie-image mpi; do sed 's/@VERSION@/$(VERSION)/' \
	    scripts/pkgconfig/$$name.pc.in > build/lib/pkgconfig/$$name.pc || exit 1; done
	@mkdir -p build/lib/cmake/eyrie-regions
	for name in config config-version; do sed 's/@VERSION@/$(VERSION)/' \
	    scripts/cmake/eyrie-regions-$$name.cmake.in \
	    > build/lib/cmake/eyrie-regions/eyrie-regions-$$name.cmake || exit 1; done
	sh scripts/link-abi $(RELEASE) build/lib

fortran: libraries
	sh fortran/build build
	sh cxx/build build

examples: libraries fortran
	@$(MAKE) --no-print-directory $(EXAMPLES)

# The compilers are wrappers of our own; a program is built again when they or the header change.
build/examples/%: examples/%.c examples/common.h build/include/mpi.h build/bin/mpicc
	@mkdir -p build/examples
	build/bin/mpicc $(CFLAGS) -o $@ $< -lm

build/examples/heat_f: examples/heat_f.f90 build/bin/mpifort
	@mkdir -p build/examples build/obj
	build/bin/mpifort -O2 -J build/obj -o $@ $<

# Its hash counts modulo 2^64.
build/examples/stencil_ulfm_f: examples/stencil_ulfm_f.f90 build/bin/mpifort
	@mkdir -p build/examples build/obj
	build/bin/mpifort -O2 -fwrapv -J build/obj -o $@ $<

PREFIX ?= /usr/local

install: build
	@scripts/install build "$(PREFIX)" "$(DESTDIR)"

uninstall:
	@scripts/install --remove "$(PREFIX)" "$(DESTDIR)"

# KINDS: tar deb wheel, and rpm where rpmbuild is.
package: build
	@scripts/package build "$(or $(OUT),build/packages)" $(KINDS)

# Of all that is built, only what the demonstration needs; build/profile is left to whole builds.
demo:
	@$(MAKE) --no-print-directory $(if $(STAGED),build BUILD_PROFILE=$(STAGED),demo-build)
	@python3 scripts/demo

demo-build: setup
	@$(MAKE) --no-print-directory demo-parts BUILD_PROFILE=demo

demo-parts:
	$(CARGO) build --profile $(BUILD_PROFILE) --locked -p eyrie-cli -p eyrie-restorer -p eyrie-abi
	$(stage_for_c)
	sh scripts/link-abi $(RELEASE) build/lib standard
	@$(MAKE) --no-print-directory build/examples/cg build/examples/heat

test: test-setup
	@$(MAKE) --no-print-directory build BUILD_PROFILE=$(if $(ALL),release,ci)
	@python3 tests/run $(if $(ALL),--all)

# Compilers that only tests need.
test-setup:
	@ALL=$(ALL) scripts/setup --test

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy -p eyrie-image-driver --features faults --locked -- -D warnings
	python3 tests/tidy.py

# mdBook is in the tools that `scripts/setup --docs` installs, unless the machine has it.
docs:
	@scripts/setup --docs
	@PATH="$(EYRIE_CACHE)/tools/bin:$$PATH" mdbook build docs
	@echo 'the book is in build/docs/index.html'

reference: build
	scripts/reference

RUNS ?= 100
SEEDS ?= 100000
soak: test-setup build
	python3 tests/run --all e2e image
	for kind in '' --drain --halts '--halts --drain' --outside --unfit --topology --fallback --vault \
	    '--vault --drain' --shares '--shares --drain' '--shares --vault' '--shares --routed' \
	    --units '--units --drain' '--units --vault' '--units --vault --drain' --cluster-units \
	    '--cluster-units --drain' '--cluster-units --vault' '--cluster-units --vault --drain' \
	    '--cluster-units --halts' --routed '--routed --drain' coordinated 'coordinated --drain' \
	    'coordinated --vault' 'coordinated --vault --drain' 'coordinated --halts' links heartbeat \
	    election returns lease watchdog consensus; do \
	    $(CARGO) run --release --locked -q -p eyrie-sim -- $$kind 0 $(SEEDS) || exit 1; done
	for kind in '' --drain '--vault --drain' '--routed --drain' --units '--units --drain' \
	    '--cluster-units --drain' '--units --vault --drain' '--cluster-units --vault --drain' \
	    --halts coordinated 'coordinated --vault' 'coordinated --drain' \
	    'coordinated --vault --drain'; do \
	    $(CARGO) run --release --locked -q -p eyrie-sim -- \
	    --every-step $$kind 0 $$(($(SEEDS) / 2000)) || exit 1; done
	benches/kill-storm --runs $(RUNS)
	benches/kill-storm --runs $(RUNS) --nodes 4 --spares 1
	benches/kill-storm --runs $$((2 * $(RUNS))) --modes all

clean:
	rm -rf build
	$(CARGO) clean
