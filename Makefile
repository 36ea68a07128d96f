# Two commands: `make demo` and `make test`. Each sets up .venv first where that is needed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
UV := VIRTUAL_ENV=$(VENV) $(BIN)/uv pip
# The CPU serves everything here. For another build of PyTorch: make setup TORCH=torch==2.13.0
TORCH ?= torch==2.13.0+cpu
TORCH_PLAIN := $(firstword $(subst +, ,$(TORCH)))

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export TOKENIZERS_PARALLELISM := false
# Without a network, fetching the price list at import can hang an MLflow server.
export LITELLM_LOCAL_MODEL_COST_MAP := True
# Without bytecode on disk, every process that the tests start compiles DSPy again.
unexport PYTHONDONTWRITEBYTECODE

# One more than there are cores: some tests wait for servers.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(1 + (os.cpu_count() or 1))')

.PHONY: demo test setup lint types contracts bytecode wheel unit browser bench release docs notebooks constraints clean

demo: $(VENV)/.demo
	@$(BIN)/ga-dspy demo

# First what one core does, two at a time; with the bytecode made once, not by every worker.
test: $(VENV)/.ready
	@$(MAKE) --no-print-directory -j 2 types lint contracts bytecode wheel
	@$(MAKE) --no-print-directory unit

setup: $(VENV)/.ready

# What the demo needs: search, the embedded LM, no PyTorch.
$(VENV)/.demo: pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once; about a minute)"
	@$(PYTHON) -c 'import sys; sys.exit("ga_dspy needs Python 3.11 or later, this is " + sys.version) if sys.version_info < (3, 11) else 0'
	@$(PYTHON) -m venv $(VENV) && $(BIN)/pip install -q uv
	@$(UV) install -q -c constraints.txt -e '.[offline]'
	@touch $@

# The rest: every extra, PyTorch, what checks the code.
$(VENV)/.ready: $(VENV)/.demo
	@echo "adding PyTorch and every extra to $(VENV) (once; a few minutes)"
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/pip install -q '$(TORCH)' 2>/dev/null || \
	  $(UV) install -q --torch-backend cpu '$(TORCH_PLAIN)'
	@$(UV) install -q -c constraints.txt -e '.[all,dev,docs]'
	@touch $@

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready
	$(BIN)/mypy

contracts: $(VENV)/.ready
	$(BIN)/lint-imports

bytecode: $(VENV)/.ready
	@$(BIN)/pytest --collect-only -q >/dev/null

unit: $(VENV)/.ready
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

# The pages in Chromium, with pictures of them.
browser: $(VENV)/.ready
	@mkdir -p build/browser
	GA_DSPY_PICTURES=build/browser $(BIN)/pytest tests/test_browser_viewer.py tests/test_browser_graph.py tests/test_browser_serve.py
	@ls build/browser

# Benchmarks; `make bench` lists them: make bench ARGS="scale --passages 20000"
bench: $(VENV)/.ready
	@$(BIN)/python tests/benches.py $(ARGS)

# The wheel, built and imported in an environment that has the core dependencies only.
wheel: $(VENV)/.ready
	@rm -rf build/wheel && mkdir -p build/wheel
	@$(BIN)/python -m build -q --wheel --no-isolation --outdir build/wheel .
	@$(PYTHON) -m venv build/wheel/venv
	@$(UV) install --python build/wheel/venv -q -c constraints.txt build/wheel/*.whl
	@cd build/wheel && venv/bin/python -c "import ga_dspy, ga_dspy.programs, ga_dspy.graphrag, ga_dspy.artifact, ga_dspy.eval, ga_dspy.optimize, ga_dspy.signatures, extractive_lm, ga_dspy.demo; print('wheel imports:', ga_dspy.__version__, len(ga_dspy.demo.corpus()), 'demo passages')"
	@build/wheel/venv/bin/ga-dspy --help >/dev/null
	@cd build/wheel && venv/bin/python ../../tests/app_of_ten_lines.py ../../artifacts/demo && echo "an app with the core alone answers"

# Wheel and sdist in dist/, checked; a version tag publishes them (.github/workflows/release.yml).
release: wheel
	@rm -rf dist && $(BIN)/python -m build -q --no-isolation --outdir dist .
	@$(BIN)/uv tool run -q twine check --strict dist/*

# The documentation as a site in build/site; links and anchors are checked.
docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site
	@echo "open build/site/index.html"

# The notebooks of the docs, run again and stored with their outputs.
notebooks: $(VENV)/.ready
	@PYTHONPATH=. $(BIN)/python tests/notebooks.py

$(VENV)/.docs: $(VENV)/.demo
	@$(UV) install -q -c constraints.txt -e '.[offline,docs]'
	@touch $@

# The newest versions that pyproject.toml allows; PyTorch stays at the build that is named above.
constraints: $(VENV)/.ready
	@mkdir -p build/constraints
	@head -n 1 constraints.txt > build/constraints/new
	@echo '$(TORCH_PLAIN)' | $(UV) compile pyproject.toml -c - --all-extras \
	  --python-version 3.11 -q --no-header --no-annotate > build/constraints/all
	@grep -vE '^(cuda|nvidia|triton|setuptools)' build/constraints/all >> build/constraints/new
	@mv build/constraints/new constraints.txt

clean:
	rm -rf $(VENV) build dist .demo *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
