# Two commands on a fresh clone: `make demo` and `make test`. Everything lives in .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
TORCH  ?= torch==2.13.0

.PHONY: demo test browser lint types imports docs bench results clean

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

# The report is tested in Debian's Chromium where it can be had; without it those tests are skipped and say so.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; } || \
	  echo "no chromium: tests in a real browser will be skipped"

test: $(VENV)/.dev browser
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

# Warnings are errors; nothing is fetched. The site is in site/index.html.
docs: $(VENV)/.dev
	rm -rf docs/api # pages of names that are gone
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs site

# on an idle machine; the GPU bank needs a CUDA device: `pro2 bench bank_gpu`
bench: $(VENV)/.dev
	for name in imports project probe_path bank stream sweep; do $(BIN)/pro2 bench $$name --write || exit 1; done

# The tables and figures of docs/results from the tables in DATA, all by command; started again it goes on. The suite
# `claims` is all plans and the page that judges them; one plan alone: make results SUITE=main
DATA ?= ../shared/data
SUITE ?= claims
OUT := build/results$(if $(filter-out claims,$(SUITE)),/$(SUITE))
results: $(VENV)/.dev
	$(BIN)/pro2 sweep $(SUITE) --data $(DATA) --out $(OUT)
	$(BIN)/pro2 report $(OUT) --markdown docs/results

clean:
	rm -rf $(VENV) build dist site
