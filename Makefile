# Two commands on a fresh clone: `make demo` and `make test`. Everything lives in .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
TORCH  ?= torch==2.13.0

.PHONY: demo test lint types imports docs bench results clean

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[report]'
	touch $@

# torch first and exactly: a later resolver then finds it satisfied and fetches no accelerator packages.
$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.base

demo: $(VENV)/.base
	$(BIN)/pro2 demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

# Warnings are errors; nothing is fetched. The site is in site/index.html.
docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs site

# on an idle machine; the GPU bank needs a CUDA device: `pro2 bench bank_gpu`
bench: $(VENV)/.dev
	for name in imports project probe_path bank stream; do $(BIN)/pro2 bench $$name --write || exit 1; done

clean:
	rm -rf $(VENV) build dist site
