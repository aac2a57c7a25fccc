# Each target does the set-up that it needs. PYTHON names the interpreter that makes .venv: 3.11 or newer.
PYTHON ?= python3
PIP = .venv/bin/python -m pip install -q --disable-pip-version-check
.DELETE_ON_ERROR:
.PHONY: setup producers run test lint bench chaos load fuzz fuzz-http docs lock clean

setup: .venv/dev.stamp

# The log shippers that the tests run, but for those that .ci/producers fetches.
producers: .cache/otel-collector .cache/telegraf .cache/log4j

run: .venv/run.stamp
	@.venv/bin/freshet up --demo

# Modules side by side, each with a Kafka of its own where it needs one: most tests wait for something most of the time.
test: .venv/dev.stamp producers
	.venv/bin/python -m pytest -n 3 --dist loadfile

lint: .venv/dev.stamp
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

# The short form, under ten minutes; `.venv/bench/bin/python -m bench NAME --events N` for more of one.
bench: .venv/bench.stamp
	.venv/bench/bin/python -m bench --short --into build

# An hour of faults on a real Kafka, every table held against the log; the report goes to chaos.md.
chaos: .venv/dev.stamp
	.venv/bin/python tests/chaos.py --minutes 60 --kills 300 --seed 1 --report chaos.md

# Runs every command of docs/api.md and docs/endpoints.md and writes their output anew.
docs: .venv/dev.stamp
	.venv/bin/python tests/render_docs.py

# What becomes of twice as many requests as the API can answer.
load: .venv/dev.stamp
	PYTHONPATH=. .venv/bin/python tests/load.py --seconds 20 --connections 200

# Random requests and bytes: none may end in a 500 or kill a process.
fuzz-http: .venv/dev.stamp
	PYTHONPATH=. .venv/bin/python tests/fuzz_http.py --requests 100000 --seed 1

# A million inputs by coverage, each held against the oracle. What is found is kept in tests/finds.
fuzz: .venv/fuzz.stamp
	.venv/bin/python tests/fuzz.py --runs 1000000

# Requirements are locked by hash, without index addresses.
lock: .venv/dev.stamp
	uv pip compile -q --generate-hashes --no-emit-index-url --extra build --python-version 3.11 pyproject.toml -o requirements/run.txt
	uv pip compile -q --generate-hashes --no-emit-index-url --extra dev --python-version 3.11 pyproject.toml -o requirements/dev.txt
	uv pip compile -q --generate-hashes --no-emit-index-url --extra bench --override requirements/bench-override.txt \
		-c requirements/run.txt --python-version 3.11 pyproject.toml -o requirements/bench.txt
	uv pip compile -q --generate-hashes --no-emit-index-url --extra fuzz -c requirements/run.txt --python-version 3.11 pyproject.toml -o requirements/fuzz.txt
	uv pip compile -q --generate-hashes --no-emit-index-url --group go --python-version 3.11 -o requirements/go.txt

# Log shippers for the tests, of pinned modules, with the few parts that their files in docs/producers name.
go_build = command -v go >/dev/null || { echo "$(@F) needs Go 1.21 or newer"; exit 1; }; \
	echo "Building $(@F) (once, a minute or two)"; \
	mkdir -p .cache; cd $(<D) && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o ../../$@

.cache/otel-collector: tests/otel_collector/main.go tests/otel_collector/go.mod tests/otel_collector/go.sum Makefile
	@$(go_build) .

telegraf_parts = inputs.http_listener_v2,inputs.tail,outputs.http,outputs.kafka,parsers.json_v2,parsers.value,processors.starlark,serializers.json

.cache/telegraf: tests/telegraf/go.mod tests/telegraf/go.sum Makefile
	@$(go_build) -tags custom,$(telegraf_parts) github.com/influxdata/telegraf/cmd/telegraf

.cache/log4j: tests/log4j/pom.xml
	@rm -rf $@
	@mvn -B -q -f $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$@
	@touch $@

clean:
	rm -rf .venv .cache data build *.egg-info

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Freshet needs Python 3.11 or newer: make PYTHON=python3.11")'
	@$(PYTHON) -m venv .venv

.venv/run.stamp: requirements/run.txt pyproject.toml | .venv/bin/python
	@echo "Setting up .venv (once)"
	@$(PIP) --require-hashes -r requirements/run.txt
	@PYTHONWARNINGS=ignore $(PIP) --no-deps --no-build-isolation -e .
	@touch $@

.venv/dev.stamp: requirements/dev.txt .venv/run.stamp
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

# The peers have an environment of their own: sqlite-utils would load their numpy and pandas into Freshet's processes.
# The lock has all there is, and pip would refuse what bench-override.txt overrides.
.venv/bench.stamp: requirements/bench.txt .venv/dev.stamp
	@echo "Setting up the benchmarks' peers (once)"
	@.venv/bin/python -m venv .venv/bench
	@.venv/bench/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements/bench.txt
	@touch $@

.venv/fuzz.stamp: requirements/fuzz.txt .venv/dev.stamp
	@$(PIP) --require-hashes -r requirements/fuzz.txt
	@touch $@
