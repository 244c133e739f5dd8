# Needs Python >= 3.11 and make; every target brings the rest.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
SPARKS := 3.5.9 4.0.5 4.3.0
PLACES := airflow dagster dbt checks
PLACE_airflow := 'apache-airflow>=3.1,<4'
PLACE_dagster := 'dagster>=1.10,<2'
PLACE_dbt := 'dbt-core>=1.10,<1.12' dbt-duckdb
PLACE_checks := 'check-jsonschema>=0.30' 'kubernetes-validate>=1.30' 'croniter>=6'
UV := PYTHON="$(PYTHON)" UV_PYTHON_DOWNLOADS=never tools/uv
COMPILE := $(UV) pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-annotate --no-emit-index-url --custom-compile-command "make lock"

# pip's choice of index also counts for uv, which does not read pip's variables.
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif

# Tests start hundreds of processes: bytecode is kept, or each of them compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

# There is a worker on every core: threads of Arrow and delta-rs would only wait for each other.
test test-fast test-lowest: export OMP_NUM_THREADS := 1
test test-fast test-lowest: export TOKIO_WORKER_THREADS := 1

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 13

install: .venv/.installed ## a .venv with every extra, from the hashed lock

.venv/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"liquidlog needs Python 3.11 or newer; name one with: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(UV) venv --quiet --python "$$(command -v $(PYTHON))" .venv
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

demo: install ## TPC-H lineitem: append, cluster, optimize on Spark, compare
	@home=$$($(BIN)/python tools/java_home.py) && \
		JAVA_HOME="$$home" $(BIN)/python demo/demo.py

test: install ## every test, those without a JVM beside those on a local Spark session
	@home=$$($(BIN)/python tools/java_home.py) && export JAVA_HOME="$$home"; \
		tools/in_memory $(BIN)/python -m pytest -n auto --dist worksteal -m "not reference and not emulator"

test-fast: install ## unit, property, golden and meta tests; no JVM
	tools/in_memory $(BIN)/python -m pytest -n auto --dist worksteal

test-lowest: install ## the tests without a JVM, on the oldest versions that pyproject.toml allows
	$(UV) venv --quiet --clear --python $(BIN)/python .tools/lowest
	$(UV) pip install --quiet --python .tools/lowest/bin/python --resolution lowest-direct \
		--group test --editable '.[spark,s3,demo]'
	.tools/lowest/bin/python -m pytest -n auto --dist worksteal tests/unit tests/golden tests/property

test-sparks: $(SPARKS:%=.tools/spark-%/.installed) ## a minute's worth of tests on other versions of PySpark, each in a venv beside
	@home=$$($(BIN)/python tools/java_home.py) && export JAVA_HOME="$$home"; \
		for version in $(SPARKS); do echo "PySpark $$version"; \
			.tools/spark-$$version/bin/python -m pytest -m sparks -W ignore tests/spark || exit 1; done

# All that the lock pins, but for PySpark: it alone is what is tried.
.tools/spark-%/.installed: .venv/.installed
	$(UV) venv --quiet --clear --python $(BIN)/python .tools/spark-$*
	$(UV) pip sync --quiet --python .tools/spark-$*/bin/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python .tools/spark-$*/bin/python pyspark==$*
	$(UV) pip install --quiet --python .tools/spark-$*/bin/python --no-deps --no-build-isolation --editable .
	@touch $@

test-places: $(PLACES:%=.tools/places-%/.installed) ## the documents' samples for schedulers, under the packages that run them
	$(BIN)/python -m pytest -rs tests/places

# Heavy packages that pin what we do not: each place has a venv beside, and none is in the lock.
.tools/places-%/.installed: .venv/.installed
	$(UV) venv --quiet --clear --python $(BIN)/python .tools/places-$*
	$(UV) pip install --quiet --python .tools/places-$*/bin/python $(PLACE_$*)
	@touch $@

check: install ## format, lint, import contracts, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy

bench: install ## the kernels, a quarter of upkeep in short; the rewrite too if LIQUID_REFERENCE_JARS names Delta Spark's jars
	$(BIN)/python benchmarks/bench_curve.py
	$(BIN)/python -m pytest benchmarks/test_quarter.py
	@test -z "$$LIQUID_REFERENCE_JARS" || { home=$$($(BIN)/python tools/java_home.py) && \
		JAVA_HOME="$$home" $(BIN)/python benchmarks/bench_rewrite.py; }

bench-ingest: install ## 200 appends with upkeep and queries after each; beside Delta Spark if LIQUID_REFERENCE_JARS names its jars
	@test -z "$$LIQUID_REFERENCE_JARS" || { home=$$($(BIN)/python tools/java_home.py) && export JAVA_HOME="$$home"; } && \
		$(BIN)/python benchmarks/bench_ingest.py

docs: install ## the documentation as a static site in .site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

examples: install ## write anew what the commands in the documents print
	@home=$$($(BIN)/python tools/java_home.py) && export JAVA_HOME="$$home"; \
		PYTHONPATH=tests $(BIN)/python -m support.examples --spark

screens: install ## take the report's pictures in the documents anew, after make demo; needs a Chromium
	PYTHONPATH=tests $(BIN)/python tools/screens.py

fix: install ## format and apply the linter's safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

dist: install ## wheel and sdist in dist/, each installed and tried on every Python found
	$(UV) build --quiet --clear --no-build-isolation --no-create-gitignore \
		--python $(BIN)/python --out-dir dist
	PYTHON="$(PYTHON)" UV_PYTHON_DOWNLOADS=never $(BIN)/python tools/try_dist.py dist

lock: ## resolve the dependencies anew and write the locks
	$(COMPILE) pyproject.toml --all-extras --group dev --constraints tools/constraints.txt \
		--output-file requirements.lock
	$(COMPILE) --group uv --output-file tools/uv.txt
	$(COMPILE) --group java --output-file tools/java.txt

clean: ## remove everything that the targets made
	rm -rf .venv .tools dist .demo .bench .site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	rm -rf spark-warehouse metastore_db derby.log

.PRECIOUS: .tools/spark-%/.installed .tools/places-%/.installed
.PHONY: help install demo test test-fast test-lowest test-sparks test-places check bench bench-ingest docs examples screens fix dist lock clean
