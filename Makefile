# Two commands matter: make demo, make test. Each prepares .venv on a fresh machine.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test bench test-unit test-contract test-serving test-matrix lint format docs venv clean

demo: venv
	$(BIN)/kunhook demo

test: lint test-unit test-contract test-serving

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-unit: venv
	$(BIN)/python -m pytest tests/unit tests/field

test-contract: venv
	$(BIN)/python -m pytest tests/contract --ignore tests/contract/test_audit.py --ignore tests/contract/test_diff_versions.py

# What takes long or downloads other versions of SGLang.
test-matrix: venv
	$(BIN)/python -m pytest tests/contract/test_audit.py tests/contract/test_diff_versions.py

test-serving: venv
	$(BIN)/python -m pytest tests/serving

bench: venv
	$(BIN)/python -m pytest tests/benchmarks --benchmark-only

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: venv
	$(BIN)/python -m hookspecs.document > docs/hooks.md

venv: $(VENV)/.ready

# SGLang is installed without its dependencies: see requirements/serving.txt.
$(VENV)/.ready: pyproject.toml $(wildcard requirements/*.txt)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade pip
	$(PIP) install --quiet -r requirements/torch.txt
	$(PIP) install --quiet -r requirements/serving.txt
	$(PIP) install --quiet --no-deps -r requirements/no-deps.txt
	$(PIP) install --quiet --config-settings editable_mode=compat -e '.[demo,dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache
