# make demo             train softmax and ReLUFormer on the generated corpus and compare them
# make test             run the tests, except slow ones and those that need a GPU
# make test-end-to-end  reproduce one figure of a paper from scratch, in about two minutes
# make test-slow        run the tests that train, install or take minutes
# make smoke            make every table and figure on the generated corpus, in smoke/
# make lint             check style, format, types and layers
# make docs             render pages and figures of docs/ from the code and from docs/results/*.json
# make site             build the documentation as a site, in site/
#
# Each target first installs what it needs into .venv, once.

PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed
PYTEST := $(VENV)/bin/python -m pytest
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(VENV)/bin/pip
PIP_INSTALL := $(PIP) install --no-compile

# pip compiles nothing (--no-compile), so the first import must store what it compiles. Many containers forbid it.
unexport PYTHONDONTWRITEBYTECODE

# Compiling fairseq takes most of the installation, and 1.6 times as long with -g, which is among Python's usual flags.
# It needs one core, so the other packages are installed at the same time.
COMPILER_FLAGS := -O3 -DNDEBUG -fwrapv
WHEELS := $(VENV)/wheels
# It is compiled against these versions, in .venv instead of an environment that would need PyTorch a second time.
BUILD_REQUIREMENTS := $(shell grep -E '^(torch|Cython|numpy)==' constraints.txt)

.PHONY: demo smoke test test-end-to-end test-slow test-gpu lint format docs site install fairseq-wheel other-packages clean

demo: $(INSTALLED)
	@scripts/demo.sh

smoke: $(INSTALLED)
	@scripts/smoke.sh

test: $(INSTALLED)
	$(PYTEST) -n auto --dist worksteal -m "not slow and not gpu and not end_to_end"

test-end-to-end: $(INSTALLED)
	$(PYTEST) -m end_to_end

test-slow: $(VENV)/.onnx
	$(PYTEST) -m slow

test-gpu: $(INSTALLED)
	$(PYTEST) -m gpu

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(INSTALLED)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

docs: $(INSTALLED)
	$(VENV)/bin/python docs/results.py
	PYTHONPATH=. $(VENV)/bin/python docs/mechanisms.py
	$(VENV)/bin/python docs/figures.py

site: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict

$(VENV)/.docs $(VENV)/.onnx: $(VENV)/.%: $(INSTALLED)
	$(PIP_INSTALL) --quiet --no-build-isolation -e '.[$*]'
	@touch $@

install: $(INSTALLED)

$(INSTALLED): setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "relumt: error: $(PYTHON) is older than 3.11; name another: make PYTHON=python3.11" >&2; exit 2; }
	@echo "relumt: installing into $(VENV), about 5 minutes, once"
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) $(BUILD_REQUIREMENTS)
	@$(MAKE) --jobs=2 fairseq-wheel other-packages
	$(PIP_INSTALL) --no-build-isolation --find-links $(WHEELS) -e '.[fairseq]'
	@rm -r $(WHEELS)
# fairseq asks for torchaudio, but only its speech tasks import it. PyPI's needs CUDA, and without it breaks Transformers.
	@$(PIP) uninstall --quiet --yes torchaudio
	@$(VENV)/bin/python -c 'import logging; logging.disable(); import relumt; relumt.register()'
	@touch $@

fairseq-wheel:
	CFLAGS='$(COMPILER_FLAGS)' $(PIP) wheel --no-deps --no-build-isolation --wheel-dir $(WHEELS) fairseq-fixed

other-packages:
	$(PIP_INSTALL) --no-build-isolation -e '.[dev,report]'

clean:
	rm -rf build *.egg-info .pytest_cache .ruff_cache .hypothesis .mypy_cache .import_linter_cache
