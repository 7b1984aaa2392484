# Two commands matter: `make demo` runs the main job, `make test` runs every check and test.
# Both make what they need (.venv here; the engine environment in parity's data directory, see
# `parity env list`) and do nothing twice.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
ARGS ?=
DOCS_TOOLS := mkdocs-material==9.8.1 mkdocs-static-i18n==1.3.1 mike==2.2.0
# The tests of engines run in one process, all others in two more: an engine, and what is started or killed, mostly waits.
PROCESSES ?= -n 3 --dist loadscope --no-loadscope-reorder

# Interrupted recipes leave no stamp behind, so the next make begins that step again.
.DELETE_ON_ERROR:
.PHONY: help demo ascend-demo test check format unit fuzz bench engine engine-tests messages messages-check docs words lock dist clean

help:
	@echo "make demo          the same prompts through real vLLM on CPU with and without MTP, compared"
	@echo "                   (ARGS='--max-tokens 32' adds options of 'parity run')"
	@echo "make ascend-demo   the same with vllm-ascend on an emulated NPU beside it (docs/emulated.md)"
	@echo "make test          everything below: linters, types, import contracts, all tests but the longest (make bench)"
	@echo "make check         ruff, ruff format --check, mypy, lint-imports, the house's words"
	@echo "make unit          the tests that start no engine (ARGS='-k capture' adds options of pytest)"
	@echo "make fuzz          the property tests with new random examples (make test repeats the same ones)"
	@echo "make bench         speed and size, kept in benchmarks/history.jsonl (ARGS='compare start', ARGS=--all)"
	@echo "make engine-tests  the tests that start a real engine"
	@echo "make engine        build the engine environments unless they are there"
	@echo "make format        let ruff put imports and layout right"
	@echo "make messages      catalogues of other languages: take up new messages, compile"
	@echo "make messages-check  what the catalogues lack, and messages that contradict each other"
	@echo "make docs          the documentation as a site in build/site (its tools: .venv-docs)"
	@echo "make words         how long the documentation is, and pages with long sentences"
	@echo "make dist          wheel and sdist in dist/"
	@echo "make lock          write constraints.txt anew from what the package index has today"
	@echo "make clean         remove .venv, dist/ and the caches (the engine environment stays)"

demo: $(VENV)/.installed
	$(BIN)/parity run --backends cpu $(ARGS)

# A checkpoint with random weights, which the interpreter runs faster than the trained hybrid one.
ascend-demo: $(VENV)/.installed
	test -d build/tiny-mimo || $(BIN)/parity model tiny --arch mimo -o build/tiny-mimo
	$(BIN)/parity run --backends cpu,ascend-emulated --model build/tiny-mimo --max-tokens 32 $(ARGS)

# A sub-make per step: their order matters, also under `make -j`.
test: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory engine
	$(BIN)/python -m pytest $(PROCESSES) $(ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_prose.py

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

unit: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not engine" $(ARGS)

fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "hypothesis and not engine" --hypothesis-profile=random $(ARGS)

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/suite.py $(ARGS)

engine-tests: $(VENV)/.installed-dev
	$(MAKE) --no-print-directory engine
	$(BIN)/python -m pytest -m engine $(ARGS)

# With $PARITY_CPU_PYTHON the engine is somebody else's. vllm-ascend has wheels for Linux only.
engine: $(VENV)/.installed
	test -n "$$PARITY_CPU_PYTHON" || $(BIN)/parity env create cpu
	test -n "$$PARITY_ASCEND_EMULATED_PYTHON" || test "$$(uname)" != Linux || $(BIN)/parity env create ascend-emulated

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "no python3.11 or python3 found: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than Python 3.11: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	touch $@

# The build backend is pinned too, so it is installed first and used without isolation.
$(VENV)/.backend: $(VENV)/.created constraints.txt
	$(PIP) install -q -c constraints.txt hatchling editables
	touch $@

$(VENV)/.installed: $(VENV)/.backend pyproject.toml
	$(PIP) install -q -c constraints.txt --no-build-isolation -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	touch $@

messages: $(VENV)/.installed-dev
	$(BIN)/python tools/messages.py

messages-check: $(VENV)/.installed-dev
	$(BIN)/python tools/messages.py --check

# In an environment of its own: no test needs the site's tools.
docs: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build

words: $(VENV)/.created
	@$(BIN)/python tools/words.py

.venv-docs/.installed: Makefile
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python -m pip --disable-pip-version-check --no-input install -q $(DOCS_TOOLS)
	touch $@

dist: $(VENV)/.installed-dev
	rm -rf dist
	$(BIN)/python -m hatchling build

lock:
	sh tools/lock_dev.sh $(PYTHON) > constraints.txt.new
	mv constraints.txt.new constraints.txt

clean:
	rm -rf $(VENV) .venv-docs dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
