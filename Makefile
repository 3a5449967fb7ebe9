# make run: Skep on http://127.0.0.1:7337 with this checkout as its first source. make test: everything that must hold.
SHELL := /bin/sh
UV = ./scripts/uv
PY = .venv/bin/python
PYTESTS = .venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 --durations=20
LOCK = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --no-annotate $(UPGRADE)
# the tests start thousands of processes: without stored bytecode each of them compiles every module again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-fast long chaos chaos-selftest lint lock docs bench replay golden

run: .venv/.run
	@exec .venv/bin/skep up --data ./skep-data --add "$(CURDIR)"

test: .venv/.test lint
	./scripts/test-needs
	$(PYTESTS) $(PYTEST)

# without servers: needs nothing but Python and git
test-fast: .venv/.test
	$(subst -n 2,-n 3,$(PYTESTS)) -m "not servers" $(PYTEST)

# the random tests of topics (on each log), of mirrors, tasks, search and a fleet for LONG seconds each; SEED decides when and what is killed
long: .venv/.test
	./scripts/test-needs
	LONG=$(or $(LONG),600) REPLICAS=$(or $(REPLICAS),1) SEED=$(or $(SEED),$(shell date +%s)) .venv/bin/pytest -v --log-cli-level=INFO \
		-o faulthandler_timeout=0 tests/topics/test_topics_long.py \
		tests/git/test_git_kills.py tests/house/test_tasks_killed.py tests/index/test_grep_long.py tests/cluster/test_cluster_random.py

# a fleet in network namespaces for MINUTES of faults that SEED decides, and a proof that nothing acknowledged was lost; needs root
chaos: .venv/.test
	./scripts/test-needs
	$(PY) -m tests.chaos.run --seed $(or $(SEED),$(shell date +%s)) --minutes $(or $(MINUTES),10)

# which of the bugs in tests/chaos/planted.py (or of BUGS) does it find? Each takes about three minutes
chaos-selftest: .venv/.test
	./scripts/test-needs
	$(PY) -m tests.chaos.selftest --seed $(or $(SEED),1) --minutes $(or $(MINUTES),1) --runs $(or $(RUNS),3) $(BUGS)

# 3,000 requests answered by the revision OLD and by this tree; REPLAY='--limit 100 --only PATTERN'
replay: .venv/.test
	./scripts/replay --old $(OLD) $(REPLAY)

lint: .venv/.test
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports

docs: .venv/.run
	$(PY) -m skep.cli.local

# what others see of Skep, as it is now, and the ids of all tests: tests/golden compares with them
golden: .venv/.test
	./scripts/golden record
	./scripts/test-ids record

# they use servers and upstreams of tests/support
bench: export PYTHONPATH := $(CURDIR)
bench: .venv/.test
	./scripts/debian-packages "make bench" codesearch ripgrep linux-source-6.1 nats-server postgresql redis-server
	for one in bench/*/run.py; do $(PY) "$$one" || exit 1; done
	$(PY) bench/git/schedule.py
	$(PY) bench/git/lists.py
	$(PY) bench/fleet/ring.py
	$(PY) -m bench.fleet.simulation
	$(PY) -m bench.fleet.failover
	$(PY) -m bench.fleet.coordinator
	$(PY) bench/fleet/tunnel.py
	$(PY) -m bench.dataone.index
	$(PY) -m bench.search

# `make lock` keeps what is locked where it can; `make lock UPGRADE=--upgrade` takes the newest
lock:
	$(LOCK) -o requirements/uv.txt requirements/uv.in
	$(LOCK) --extra nats --extra opensearch --extra postgres --extra s3 -o requirements/run.txt pyproject.toml \
		requirements/run.in
	$(LOCK) --extra nats --extra opensearch --extra postgres --extra s3 -c requirements/run.txt -o requirements/test.txt \
		pyproject.toml requirements/run.in requirements/test.in
	$(LOCK) -o requirements/gmn.txt requirements/gmn.in

.venv/.run .venv/.test: pyproject.toml requirements/run.txt requirements/test.txt scripts/bootstrap
	./scripts/bootstrap $(patsubst .venv/.%,%,$@)
