# Eyrie's build. `make help` lists the targets. Everything that is built lands in build/ (a staged
# prefix) and in $(EYRIE_CACHE), outside of the clone, where later builds find it again.

EYRIE_CACHE ?= $(HOME)/.cache/eyrie
export EYRIE_CACHE
export CARGO_TARGET_DIR ?= $(EYRIE_CACHE)/target
CARGO ?= cargo
-include $(EYRIE_CACHE)/tools.mk
export CARGO

RELEASE := $(CARGO_TARGET_DIR)/release
CFLAGS ?= -std=c11 -O2 -Wall -Wextra
C_EXAMPLES := heat cg sort farm adi
EXAMPLES := $(addprefix build/examples/,$(C_EXAMPLES)) build/examples/heat_f

.PHONY: help setup test-setup build rust libraries fortran examples demo test lint soak clean

help:
	@echo 'make build    the staged prefix in build/: bin, lib, libexec, include, and the examples'
	@echo 'make demo     runs cg three times, kills a rank and then a node, compares the results bit for bit'
	@echo 'make test     all tests; the last line says how many passed and failed. Of cases that differ in'
	@echo '              a row of a table only, a part that covers it: make test ALL=1 runs them all'
	@echo 'make lint     rustfmt, clippy with warnings denied, the house rules (tests/tidy.py)'
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
	$(CARGO) build --release --locked --workspace --exclude eyrie-sim

libraries: rust
	@mkdir -p build/bin build/lib build/libexec build/include
	install -m 755 $(RELEASE)/eyrie $(RELEASE)/eyrie-image build/bin/
	install -m 755 $(RELEASE)/eyrie-restorer build/libexec/eyrie-restorer
	install -m 644 include/*.h fortran/eyrie_regions*.f90 build/include/
	install -D -m 644 include/veloc/veloc.h build/include/veloc/veloc.h
	install -m 755 $(RELEASE)/libeyrie_regions.so build/lib/libeyrie_regions.so.1
	ln -sf libeyrie_regions.so.1 build/lib/libeyrie_regions.so
	install -D -m 644 python/eyrie_regions.py build/lib/python/eyrie_regions.py
	install -m 755 scripts/mpicc scripts/mpicxx scripts/mpifort build/bin/
	sh scripts/link-abi $(RELEASE) build/lib

fortran: libraries
	sh fortran/build build

examples: libraries fortran
	@$(MAKE) --no-print-directory $(EXAMPLES)

# The compilers are wrappers of our own; a program is built again when they or the header change.
build/examples/%: examples/%.c examples/common.h build/include/mpi.h build/bin/mpicc
	@mkdir -p build/examples
	build/bin/mpicc $(CFLAGS) -o $@ $< -lm

build/examples/heat_f: examples/heat_f.f90 build/bin/mpifort
	@mkdir -p build/examples build/obj
	build/bin/mpifort -O2 -J build/obj -o $@ $<

demo: build
	@python3 scripts/demo

test: test-setup build
	@python3 tests/run $(if $(ALL),--all)

# Compilers that only tests need.
test-setup:
	@scripts/setup --test

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy -p eyrie-image-driver --features faults --locked -- -D warnings
	python3 tests/tidy.py

RUNS ?= 100
SEEDS ?= 100000
soak: test-setup build
	python3 tests/run --all e2e image
	for kind in '' --vault --units '--units --vault' --cluster-units --outside --routed --drain \
	    '--vault --drain' '--routed --drain' '--units --drain' '--cluster-units --drain' --halts \
	    '--units --vault --drain' '--cluster-units --vault' '--cluster-units --vault --drain' \
	    '--halts --cluster-units' '--halts --drain' --together '--together --vault' \
	    '--together --drain' '--together --vault --drain' --links --ties \
	    --reigns --led --watch; do \
	    $(CARGO) run --release --locked -q -p eyrie-sim -- $$kind 0 $(SEEDS) || exit 1; done
	for kind in '' --drain '--vault --drain' '--routed --drain' --units '--units --drain' \
	    '--cluster-units --drain' '--units --vault --drain' '--cluster-units --vault --drain' \
	    --halts --together '--together --vault' '--together --drain' \
	    '--together --vault --drain'; do \
	    $(CARGO) run --release --locked -q -p eyrie-sim -- \
	    --every-step $$kind 0 $$(($(SEEDS) / 500)) || exit 1; done
	benches/kill-storm --runs $(RUNS)
	benches/kill-storm --runs $(RUNS) --nodes 4 --spares 1
	benches/kill-storm --runs $$((2 * $(RUNS))) --modes all

clean:
	rm -rf build
	$(CARGO) clean
