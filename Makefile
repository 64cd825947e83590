# `make demo` and `make test` do all the set-up they need; a second call starts at once.

PYTHON ?= python3
WERROR ?=  # ON: warnings end native builds; OFF: they are shown (the default)

VENV := .venv
PY := $(VENV)/bin/python
DEV := build/dev
SANITIZE := build/sanitize
THREADS := build/threads
FUZZ := build/fuzz
FUZZ_SECONDS ?= 300
QUIET := tools/quiet.sh
WARNING := 'warning:'
PACKAGES := build/.packages
NATIVE_FILES = $(shell find native -name '*.h' -o -name '*.cpp')

CROSS := aarch64 armv7 windows macos
CROSS_RUN := aarch64 armv7 windows
TOOLCHAIN_windows := windows-x86_64
TOOLCHAIN_macos := macos-aarch64
CROSS_TESTS := OFF

.PHONY: help setup native demo check test pytest ctest conformance interop matrix mutation fuzz lint format sanitize sanitize-threads audit docs bench wheel runtime-wheel wheels clean distclean
.PHONY: test-levels test-avx512 cross cross-test firmware-test microcontroller-test web web-test java java-test android $(CROSS:%=cross-%) $(CROSS:%=cross-test-%) $(CROSS_RUN:%=cross-ctest-%) cross-build-tests-macos
.NOTPARALLEL:
.DEFAULT_GOAL := help

help:
	@echo "make setup      install what is missing, build the native parts for development"
	@echo "make demo       compile MobileNetV2, run it on the native runtime, show the figures"
	@echo "make check      before a commit, in 60 s: lint and tests of what changed, fast tests"
	@echo "make test       all tests: native (ctest), then Python (pytest)"
	@echo "make test-levels  the native tests as CPUs without AVX-512, AVX2 ... would run them"
	@echo "make conformance  kernels against eager PyTorch on its own samples, per operator"
	@echo "make mutation   small faults in the sources, and whether the tests notice (hours)"
	@echo "make interop    files of both sides on every release of ExecuTorch (downloads 6 GB once)"
	@echo "make matrix     the oldest and the newest Python and torch (downloads 2 GB once)"
	@echo "make lint       ruff, mypy, the layers of imports, clang-format"
	@echo "make format     let ruff and clang-format rewrite the sources"
	@echo "make sanitize   the native tests under AddressSanitizer and UBSan"
	@echo "make sanitize-threads  many threads at once under ThreadSanitizer"
	@echo "make fuzz       damaged files of each kind, made by libFuzzer (FUZZ_SECONDS=300)"
	@echo "make audit      known vulnerabilities of the Python packages (osv.dev)"
	@echo "make cross      the runtime for Arm Linux, 64-bit and 32-bit, Windows, macOS, in build/cross"
	@echo "make cross-test  those for Arm, built and run under qemu-user (one: cross-test-aarch64,"
	@echo "                cross-test-armv7); cross-test-windows: under Wine"
	@echo "                cross-test-macos: nothing runs it here; its files are read"
	@echo "make firmware-test  what firmware is given, compiled for a Cortex-M"
	@echo "make microcontroller-test  a program without an operating system, run in QEMU"
	@echo "make web        the runtime for web pages, in build/web/native/web; make web-test: in Chromium"
	@echo "make java       the runtime for Java here, in build/dev/native/java; make java-test: on a JVM"
	@echo "make android    the same for Android, in build/android: needs an NDK (ANDROID_NDK_HOME)"
	@echo "make docs       the documentation as a site, its links checked, in build/docs"
	@echo "make bench      the figures of benchmarks/, against the peers"
	@echo "make wheel      a wheel in dist/"
	@echo "make runtime-wheel  one that only runs programs, in dist/runtime"
	@echo "make wheels     both, for other machines: x86-64 and 64-bit Arm, in dist/wheels"
	@echo "make clean      remove build/ and dist/; make distclean: the environment as well"

# ---- set-up: every step leaves a file and is repeated when what it depends on changes

$(PACKAGES): tools/install_packages.sh
	@tools/install_packages.sh $(PYTHON)
	@mkdir -p build && touch $@

$(VENV)/.installed: pyproject.toml tools/install_python.sh | $(PACKAGES)
	@tools/install_python.sh $(PYTHON) $(VENV)
	@touch $@

$(DEV)/build.ninja: | $(VENV)/.installed
	@$(QUIET) --show '^-- XNNPACK' build/logs/configure.log "configure" \
	  cmake -S . -B $(DEV) -G Ninja -DCMAKE_BUILD_TYPE=Release \
	  -DEDGEWISE_BUILD_PYTHON=ON -DEDGEWISE_BUILD_TESTS=ON \
	  -DPython_EXECUTABLE=$(CURDIR)/$(PY)

# The module is put beside the Python sources, where the editable installation finds it.
native: $(VENV)/.installed $(DEV)/build.ninja
	$(if $(WERROR),@$(QUIET) build/logs/configure.log "configure" \
	  cmake -DEDGEWISE_WERROR=$(WERROR) $(DEV))
	@$(QUIET) --show $(WARNING) build/logs/native.log "native build" \
	  cmake --build $(DEV) --target _native edgewise_run
	@$(QUIET) build/logs/install.log "native install" \
	  cmake --install $(DEV) --component python --prefix src

setup: native

# ---- what you came for

demo: native
	@$(PY) examples/demo.py

# Lint of what differs from main, fast tests, tests of what changed: CHECK="--since HEAD~3".
check: native
	@OMP_NUM_THREADS=1 $(PY) tools/check.py $(CHECK)

test: ctest pytest

# Freed memory is overwritten (by glibc), so that a test that reads it fails always.
CTEST := env MALLOC_PERTURB_=165 ctest

ctest: native
	@$(QUIET) --show $(WARNING) build/logs/tests.log "native tests build" cmake --build $(DEV)
	@$(QUIET) --show '^[0-9]+% tests passed' build/logs/ctest.log "ctest" \
	  $(CTEST) --test-dir $(DEV) --output-on-failure --no-tests=error

# The native tests once for each EDGEWISE_CPU below what this CPU has; and, if `make
# cross-ctest-aarch64` has built them, those of kernels on CPUs that qemu-user plays (7.2 has no
# neoverse-v1; a64fx has SVE, and max all), and on one with SME2, for which a later QEMU is fetched;
# after `make cross-ctest-armv7` all on 32-bit Arm. Cases of kernels run on every level by themselves.
ARM_CPUS := cortex-a53 cortex-a76 a64fx max
SME_BYTES := 16 64 256
SME_TESTS = build/cross/aarch64/native/tests/edgewise_xnnpack_*_test
test-levels: ctest
	@for level in $$($(PY) -c 'from edgewise.runtime import _native; print(*_native.cpu_levels()[:-1])'); do \
	  EDGEWISE_CPU=$$level $(QUIET) --show '^[0-9]+% tests passed' build/logs/ctest-$$level.log \
	    "ctest as $$level" $(CTEST) --test-dir $(DEV) --output-on-failure --no-tests=error \
	    -E '^kernels\.Operators' || exit 1; done
	@if [ -d build/cross/aarch64/native/tests ]; then for cpu in $(ARM_CPUS); do \
	  QEMU_CPU=$$cpu $(QUIET) --show '^[0-9]+% tests passed' build/logs/ctest-$$cpu.log \
	    "ctest as $$cpu" ctest --test-dir build/cross/aarch64 --output-on-failure \
	    --no-tests=error -j 2 -R '^(kernels|xnnpack)\.' || exit 1; done; \
	  qemu=$$(tools/sme_qemu.sh) || exit 1; \
	  for bytes in $(SME_BYTES); do for test in $(SME_TESTS); do \
	    $(QUIET) build/logs/sme-$$bytes.log "$$(basename $$test) with SME2 of $$bytes bytes" \
	      env EDGEWISE_CPU=sme2 $$qemu -L /usr/aarch64-linux-gnu \
	      -cpu max,sme-default-vector-length=$$bytes $$test --gtest_brief=1 || exit 1; \
	  done; done; fi
	@if [ -d build/cross/armv7/native/tests ]; then \
	  $(QUIET) --show '^[0-9]+% tests passed' build/logs/ctest-armv7.log "ctest for armv7" \
	    ctest --test-dir build/cross/armv7 --output-on-failure --no-tests=error -j 2; fi

# Kernels for AVX-512 where the CPU has none, in Bochs: TESTS="weight_only unary:*Log*".
test-avx512: ctest
	@$(PY) tools/emulated_tests.py $(TESTS)

# As many processes as there are cores, but each takes up to 3 GB. A file's tests share models.
pytest: native
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -n auto --maxprocesses 4 --dist loadfile \
	  --no-loadscope-reorder

# Small faults in the sources, and whether the tests of the file notice them.
mutation: native
	@OMP_NUM_THREADS=1 $(PY) tools/mutation

conformance: native
	@$(PY) -W ignore tests/conformance

# Environments of the releases are kept in ~/.cache/edgewise/releases.
interop: native
	@OMP_NUM_THREADS=1 $(PY) -W ignore tests/interop/releases/matrix.py

# Their environments are kept in ~/.cache/edgewise/matrix.
matrix: native
	@OMP_NUM_THREADS=1 $(PY) tests/versions/matrix.py

lint: $(VENV)/.installed
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --quiet --check . || \
	  { $(VENV)/bin/ruff format --check .; exit 1; }
	@$(QUIET) build/logs/mypy.log "mypy" $(VENV)/bin/mypy
	@$(QUIET) build/logs/imports.log "imports" $(VENV)/bin/lint-imports --cache-dir build/imports
	@clang-format --dry-run -Werror $(NATIVE_FILES)
	@echo "lint: clean"

format: $(VENV)/.installed
	@$(VENV)/bin/ruff check --quiet --fix .
	@$(VENV)/bin/ruff format --quiet .
	@clang-format -i $(NATIVE_FILES)

$(SANITIZE)/build.ninja: | $(PACKAGES)
	@$(QUIET) --show '^-- XNNPACK' build/logs/sanitize-configure.log "configure" \
	  cmake -S . -B $(SANITIZE) -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -DEDGEWISE_SANITIZE=ON \
	  -DEDGEWISE_BUILD_TESTS=ON -DEDGEWISE_EMULATE_AVX_VNNI=ON

# Warnings are errors in the development build; instrumented code makes compilers guess wrong.
sanitize: $(SANITIZE)/build.ninja
	@$(QUIET) build/logs/sanitize.log "sanitized build" cmake --build $(SANITIZE)
	@UBSAN_OPTIONS=print_stacktrace=1 $(QUIET) --show '^[0-9]+% tests passed' \
	  build/logs/sanitize-ctest.log "ctest under sanitizers" \
	  ctest --test-dir $(SANITIZE) --output-on-failure --no-tests=error -j 2
	@if grep -qs avx2 /proc/cpuinfo; then for level in avx2 avxvnni; do \
	  EDGEWISE_CPU=$$level UBSAN_OPTIONS=print_stacktrace=1 $(QUIET) \
	  --show '^[0-9]+% tests passed' build/logs/sanitize-$$level.log "8-bit products as $$level" \
	  ctest --test-dir $(SANITIZE) --output-on-failure --no-tests=error -j 2 -R 'RowGemm|Int8' \
	  || exit 1; done; fi

# Threads alone: ThreadSanitizer cannot share a build with the other sanitizers.
sanitize-threads: | $(PACKAGES)
	@$(QUIET) build/logs/threads-configure.log "configure" \
	  cmake -S . -B $(THREADS) -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -DEDGEWISE_SANITIZE=thread -DEDGEWISE_KERNELS_FOR_AVX2=OFF \
	  -DEDGEWISE_BUILD_TESTS=ON -DEDGEWISE_BUILD_C=OFF -DEDGEWISE_BUILD_TOOLS=OFF
	@$(QUIET) build/logs/threads.log "build for ThreadSanitizer" \
	  cmake --build $(THREADS) --target edgewise_xnnpack_threads_test
	@$(QUIET) build/logs/threads-test.log "threads under ThreadSanitizer" \
	  $(THREADS)/native/tests/edgewise_xnnpack_threads_test

# Fuzzers of each kind of file, for FUZZ_SECONDS each. Level 0: the loops of others are the same.
fuzz: native
	@command -v clang++ > /dev/null || { echo "[fuzz] libFuzzer is clang's; try:" \
	  "apt-get install clang libclang-rt-14-dev" >&2; exit 1; }
	@$(QUIET) --show '^-- XNNPACK' build/logs/fuzz-configure.log "configure" \
	  cmake -S . -B $(FUZZ) -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -DCMAKE_C_COMPILER=clang \
	  -DCMAKE_CXX_COMPILER=clang++ -DEDGEWISE_SANITIZE=ON -DEDGEWISE_BUILD_FUZZERS=ON \
	  -DEDGEWISE_KERNELS_FOR_AVX2=OFF \
	  -DEDGEWISE_BUILD_C=OFF -DEDGEWISE_BUILD_TOOLS=OFF
	@$(QUIET) build/logs/fuzz.log "fuzzers" cmake --build $(FUZZ)
	@tools/run_fuzzers.sh $(FUZZ) $(FUZZ_SECONDS)

audit: $(VENV)/.installed
	@$(VENV)/bin/python tools/audit.py

# ---- other processors

cross: $(CROSS:%=cross-%)

$(CROSS:%=cross-%): cross-%: | $(PACKAGES)
	@tools/install_cross.sh $*
	@$(QUIET) --show '^-- XNNPACK' build/logs/cross-$*-configure.log "configure for $*" \
	  cmake -S . -B build/cross/$* -G Ninja -DCMAKE_BUILD_TYPE=Release \
	  --toolchain $(CURDIR)/cmake/toolchains/$(or $(TOOLCHAIN_$*),linux-$*).cmake $(WERROR:%=-DEDGEWISE_WERROR=%) \
	  -DEDGEWISE_BUILD_TESTS=$(CROSS_TESTS)
	@$(QUIET) build/logs/cross-$*.log "build for $*" cmake --build build/cross/$*

# Models under qemu-user or Wine, against this machine; of macOS, what is in the files.
cross-test: cross-test-aarch64 cross-test-armv7

$(CROSS:%=cross-test-%): cross-test-%: native cross-%
	@$(PY) -m pytest -q -m cross -k $* tests/cross

# The native tests, likewise.
$(CROSS_RUN:%=cross-ctest-%) cross-build-tests-macos: CROSS_TESTS := ON
cross-build-tests-macos: cross-macos
$(CROSS_RUN:%=cross-ctest-%): cross-ctest-%: cross-%
	@$(QUIET) --show '^[0-9]+% tests passed' build/logs/ctest-$*.log "ctest for $*" \
	  ctest --test-dir build/cross/$* --output-on-failure --no-tests=error -j 2

# What `edgewise ethosu package` writes, compiled for a Cortex-M.
firmware-test: native
	@tools/install_cross.sh cortex-m
	@$(PY) -m pytest -q tests/package/test_package_firmware.py

# examples/firmware for a Cortex-M55, run in QEMU: a build of four minutes.
microcontroller-test: native
	@tools/install_cross.sh cortex-m55
	@mkdir -p build/cross/cortex-m55
	@$(PY) -m pytest -q -s tests/cross/test_cross_microcontroller.py

# The runtime as WebAssembly: with XNNPACK about ten minutes the first time.
web: | $(PACKAGES)
	@tools/install_cross.sh wasm32
	@$(QUIET) --show '^-- XNNPACK' build/logs/web-configure.log "configure for wasm32" \
	  cmake -S . -B build/web -G Ninja -DCMAKE_BUILD_TYPE=Release \
	  --toolchain $(CURDIR)/cmake/toolchains/wasm32.cmake
	@$(QUIET) build/logs/web.log "build for wasm32" cmake --build build/web
	@ls -l build/web/native/web/edgewise*

web-test: native web
	@$(PY) -m pytest -q tests/web

# With the development build's objects.
java: native
	@tools/install_cross.sh java
	@$(QUIET) build/logs/java-configure.log "configure for Java" \
	  cmake -DEDGEWISE_BUILD_JAVA=ON $(DEV)
	@$(QUIET) --show $(WARNING) build/logs/java.log "build for Java" \
	  cmake --build $(DEV) --target edgewise_java

java-test: java
	@$(PY) -m pytest -q tests/java

# Android 7, API 24, is the first that knows Java 8.
ANDROID_ABIS ?= arm64-v8a armeabi-v7a x86_64
ANDROID_API ?= 24
android: | $(PACKAGES)
	@tools/install_cross.sh java
	@PYTHON=$(PYTHON) tools/android.sh $(ANDROID_API) $(ANDROID_ABIS)

docs: $(VENV)/.installed
	@$(QUIET) build/logs/docs.log "documentation in build/docs" \
	  $(VENV)/bin/sphinx-build -q -n -W --keep-going -b html docs build/docs

bench: native
	@$(PY) benchmarks/startup.py
	@$(PY) benchmarks/lowering.py
	@$(PY) benchmarks/latency.py

wheel: $(VENV)/.installed
	@$(QUIET) --show '^-- XNNPACK' build/logs/wheel.log "wheel" \
	  $(PY) -m pip wheel --no-deps --no-build-isolation -w dist .
	@ls -l dist/*.whl

# Without lowering, quantizers and sweeps: with numpy the smallest installation.
runtime-wheel: $(VENV)/.installed
	@EDGEWISE_RUNTIME_ONLY=1 $(QUIET) --show '^-- XNNPACK' build/logs/runtime-wheel.log \
	  "runtime wheel" $(PY) -m pip wheel --no-deps --no-build-isolation -w dist/runtime .
	@ls -l dist/runtime/*.whl

# Checked by auditwheel and abi3audit, and run where there is no compiler and under qemu-user.
wheels: $(VENV)/.installed native web
	@tools/install_cross.sh aarch64
	@$(PY) tools/wheels.py

clean:
	rm -rf build dist src/edgewise/runtime/_native*.so

distclean: clean
	rm -rf $(VENV)
