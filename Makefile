.PHONY: run test test-all bench lint packages clean

run:        ## build events on this host for ten seconds
	./run

test:       ## every test this host can run
	./test

test-all:   ## what CI runs, clang-tidy on every file, more seeds, and the fuzzers
	.ci/run --all

bench:      ## the benchmarks and the comparisons (docs/measuring.md); takes its time
	tools/bench.sh

lint:       ## format, house rules, shellcheck, ruff, mypy, clang-tidy on what changed
	tools/lint.sh

packages:   ## a wheel and a .deb in build/packages, tried in bare roots (docs/install.md); as root
	bash -c '. tools/setup.sh && incast_packages run package'
	packaging/build.sh
	packaging/try.sh

clean:      ## remove the build trees and the Python environment
	rm -rf build .venv
