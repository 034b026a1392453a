# Plain `make` builds a release into build/ and installs nothing. `make help` lists the rest.

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
DESTDIR ?=
# Which tests the sanitizers run: fast, long, or both.
LABELS ?= fast|long
# How long each target of tests/fuzz looks for input that breaks something.
MINUTES ?= 10

# Memory that was freed, or is new, is never zero by chance: who counts on that fails always, not now and then.
CTEST := MALLOC_PERTURB_=165 ctest --output-on-failure --no-tests=error

.PHONY: all help setup demo check check-long check-vm asan tsan fuzz debug test format lint install uninstall clean

all: build/CMakeCache.txt
	cmake --build build -j$(JOBS)

help:
	@echo 'make             build/bin/grus, build/lib/libgrus.so, tests and benchmarks'
	@echo 'make demo        run a real program natively and through Grus, compare, and move a simulation while it runs'
	@echo 'make check       everything that must hold, in a quarter of an hour'
	@echo 'make check-long  the same with all programs, long tests and sanitizers'
	@echo 'make check-vm    virtual machines that are moved while their programs run, in ten minutes (as root)'
	@echo 'make test        only the fast tests'
	@echo 'make asan tsan   tests under the sanitizers: address and undefined, thread (LABELS=fast for fewer)'
	@echo 'make fuzz        look for input that breaks something, MINUTES=10 for each target'
	@echo 'make debug       a debug build in build/debug'
	@echo 'make format      format the sources; make lint checks them'
	@echo 'make install     into DESTDIR/PREFIX ($(PREFIX)); activates nothing: see `grus enable`'
	@echo 'make setup       install the Debian packages that all of this needs (as root)'

build/CMakeCache.txt: CMakePresets.json
	@.ci/setup --only-check build
	cmake --preset release
	@touch $@

setup:
	.ci/setup build demo check check-long

demo:
	.ci/setup build demo
	$(MAKE) all
	demo/run

check:
	.ci/setup build check
	$(MAKE) all
	$(MAKE) test
	tests/programs/run --fast

check-long: setup
	$(MAKE) all
	$(CTEST) --test-dir build -j$(JOBS)
	tests/programs/run
	tests/programs/run --vendor pocl --through unix
	tests/programs/run --vendor pocl --through tcp
	tests/programs/run --vendor pocl --move
	$(MAKE) asan
	$(MAKE) tsan
	.ci/lint

check-vm:
	.ci/setup build check-vm
	$(MAKE) all
	tests/vm/guest/build build/vm
	tests/vm/vm_test.py
	tests/vm/failures_test.py
	tests/vm/libvirt_test.py

test: all
	$(CTEST) --test-dir build -L fast -j$(JOBS)

asan tsan:
	cmake --preset $@
	cmake --build build/$@ -j$(JOBS)
	$(CTEST) --test-dir build/$@ -L '$(LABELS)' -j$(JOBS)

fuzz:
	.ci/setup build fuzz
	cmake --preset fuzz
	cmake --build build/fuzz -j$(JOBS) --target frame_fuzz ring_fuzz session_fuzz
	tests/fuzz/run --minutes $(MINUTES)

debug:
	cmake --preset debug
	cmake --build build/debug -j$(JOBS)

format:
	.ci/lint --format

lint: build/CMakeCache.txt
	.ci/lint

install: all
	DESTDIR='$(DESTDIR)' cmake --install build --prefix '$(PREFIX)'

uninstall:
	@test -f build/install_manifest.txt || { echo 'nothing was installed from this build'; exit 1; }
	xargs -d '\n' rm -fv < build/install_manifest.txt

clean:
	rm -rf build
