# What a person types; each target installs what it needs and says what it does.
#
#   make build   the command (build/venv/bin/headroom) and the MPI libraries (build/mpi/mpich, build/mpi/openmpi)
#   make demo    the five parts at work, in at most five minutes
#   make quick   in 3 minutes: the unit tests of the release build, and the tests that broke most often (tests/quick.txt)
#   make check   the tests; each with each MPI library and with each engine, but not with each of both
#   make suites  every variant of every test, and MPICH's, HDF5's and PnetCDF's own tests: hours (make check runs some of them)
#   make check-vm  network cards and version 2 cgroups, in a virtual machine with a newer kernel (about 13 minutes)
#   make wheel   one wheel for every x86-64 Linux with glibc 2.28 or newer: build/dist
#   make check-wheel  installs it in the oldest Debian at hand, and runs programs there, under its kernel, too (root; 5 minutes)
#   make figures measures every figure of README.md and docs/results on this machine, and writes them there (about an hour)
#   make lint    formatting, static analysis, generated docs; LINT=--without-analyzer leaves out what takes longest
#   make bench   ratios measured side by side on this machine
#   make soak    two hours of random work on memory, checked against a model
#   make format  formats all sources
#   make docs    makes the pages under docs/ that are generated from tables
.PHONY: build demo quick check check-vm suites wheel check-wheel figures lint bench soak format clean docs
SHELL := /bin/bash
sources := $(shell find src include python setup examples tests/programs CMakeLists.txt CMakePresets.json cmake packaging pyproject.toml -type f -not -name '*.pyc' 2>/dev/null)

build: build/.built

build/.built: $(sources)
	setup/system_packages.sh build
	setup/build.sh
	@touch $@

demo: build
	setup/system_packages.sh demo
	build/venv/bin/python examples/demo

quick: build
	setup/system_packages.sh check
	setup/quick.sh

check: build
	setup/system_packages.sh check
	setup/check.sh

suites: build
	setup/system_packages.sh check
	setup/system_packages.sh suites
	setup/suites.sh

check-vm: build
	setup/system_packages.sh check-vm
	setup/check_vm.sh

wheel: build
	setup/system_packages.sh wheel
	setup/wheel.sh

check-wheel: wheel
	setup/system_packages.sh check-wheel
	setup/check_wheel.sh

figures: build
	build/venv/bin/python bench/figures

lint: build
	setup/system_packages.sh lint
	setup/lint.sh $(LINT)

bench: build
	setup/system_packages.sh bench
	build/venv/bin/python bench/lammps.py
	build/venv/bin/headroom bench messages --mpi build/mpi/mpich --mpi build/mpi/openmpi --json build/messages.json
	build/venv/bin/python bench/message_goals.py build/messages.json
	build/venv/bin/headroom bench paging --mpi build/mpi/mpich --engine auto --engine userfaultfd-user --engine sigsegv --json build/paging.json
	build/venv/bin/python bench/paging_goals.py build/paging.json

soak: build
	setup/system_packages.sh check
	setup/test_tools.sh
	build/venv/bin/python tests/soak.py

format:
	setup/lint_tools.sh
	build/lint/bin/clang-format -i $$(git ls-files '*.cc' '*.h' '*.c')
	build/lint/bin/ruff format .

docs: build
	build/venv/bin/python src/base/generate_settings.py markdown src/base/settings.toml docs/user/settings.md
	build/venv/bin/python src/trace/generate_counters.py markdown src/trace/counters.toml docs/user/counters.md

clean:
	rm -rf build
