# Two commands on a fresh clone: `make demo` and `make test`. Everything lives in .venv.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
TORCH  ?= torch==2.13.0

# Hundreds of processes start in the tests: let them share what the first has compiled, whatever the environment says.
export PYTHONDONTWRITEBYTECODE =

.PHONY: install demo test processors fuzz browser lint types imports docs package pictures bench results clean

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[report]'
	touch $@

# torch first and exactly: a later resolver then finds it satisfied and fetches no accelerator packages. Of twenty
# thousand files a small part is ever imported: that part is compiled when it is.
$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile '$(TORCH)'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
	touch $@ $(VENV)/.base

# all that the other targets need
install: $(VENV)/.dev browser

demo: $(VENV)/.base
	$(BIN)/pro2 demo

# Pages are tested in Debian's Chromium, and for accessibility with axe-core from npm, where they can be had; without
# them those tests are skipped and say so.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; } || \
	  echo "no chromium: tests in a real browser will be skipped"
	@[ -f build/node_modules/axe-core/axe.min.js ] || { command -v npm >/dev/null && \
	  npm install --silent --no-fund --no-audit --prefix build axe-core@4 >/dev/null 2>&1; } || \
	  echo "no axe-core: tests for accessibility will be skipped"

# A thread to each worker: more of them than cores only wait for each other.
test: export OMP_NUM_THREADS = 1
test: export OPENBLAS_NUM_THREADS = 1
test: $(VENV)/.dev browser
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# The numerical tests again with the BLAS kernels of two other processors: products round differently there. The variable
# is read by OpenBLAS only; elsewhere these are two plain runs.
processors: export OMP_NUM_THREADS = 1
processors: export OPENBLAS_NUM_THREADS = 1
processors: $(VENV)/.dev
	for core in Prescott Haswell; do \
	  OPENBLAS_CORETYPE=$$core $(BIN)/python -m pytest -q -n 2 --dist loadfile -m 'not slow and not fuzz' tests/linalg tests/estimators \
	    || exit 1; \
	done

# Damaged files, hostile calls and kills, 24 times as many as in the tests: 12,000 models, 6,000 moments, 10,000 tables,
# 3,600 logs, 25,000 calls, 240 kills.
fuzz: $(VENV)/.dev
	PRO2_FUZZ=24 $(BIN)/python -m pytest -n 2 --dist loadfile -m fuzz

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

# What a user would get: the wheel, checked, installed into an environment with nothing else, and its demo.
package:
	rm -rf dist build/package
	$(PYTHON) -m venv build/package
	build/package/bin/pip install --quiet --disable-pip-version-check build twine
	build/package/bin/python -m build --outdir dist .
	build/package/bin/twine check --strict dist/*
	$(PYTHON) -m venv --clear build/package
	build/package/bin/pip install --quiet --disable-pip-version-check dist/*.whl
	cd build/package && bin/pro2 demo --out demo && test -s demo/demo.html

# screenshots of the labelling page for the documentation, in Chromium
pictures: $(VENV)/.dev browser
	$(BIN)/python docs/make_pictures.py

# on an idle machine
bench: $(VENV)/.dev
	for name in imports project probe_path bank stream sweep label; do $(BIN)/python benchmarks/$$name.py --write || exit 1; done

# The tables and figures of docs/results from the tables in DATA, all by command; started again it goes on. Features
# trained by gradient steps take minutes with DEVICE=cuda, hours on two cores; one plan alone: make results PLANS=scaling
DATA ?= ../shared/data
PLANS ?= claims baselines ablation probes
results: $(VENV)/.dev
	for name in $(PLANS); do \
	  $(BIN)/pro2 sweep $$name --data $(DATA) --out build/results/$$name $(if $(DEVICE),--device $(DEVICE)) && \
	  $(BIN)/pro2 report build/results/$$name --markdown docs/results || exit 1; \
	done

clean:
	rm -rf $(VENV) build dist site
