# Two commands: `make demo` and `make test`. Each makes .venv when it is missing; once installed, both run offline.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test format bench clean

demo: .venv/installed-demo
	$(BIN)/headway demo

test: .venv/installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q --cov --cov-report=term:skip-covered

format: .venv/installed-test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The peers of the benchmarks live in an environment of their own.
bench: .venv/installed-test
	$(BIN)/python benchmarks/run.py

.venv/installed-test: .venv/installed-demo
	$(BIN)/pip install -q -e '.[test]'
	touch $@

.venv/installed-demo: pyproject.toml src/headway/record/_hot.c
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q -e '.[demo]'
	touch $@

clean:
	rm -rf .venv build src/*.egg-info src/headway/record/_hot*.so
