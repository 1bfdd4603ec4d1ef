# Every target sets itself up in .venv; all it needs is Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo pictures test check pytest torture soak bench bench-http bench-gossip bench-driver bench-feedback bench-folding bench-growth bench-history bench-overload bench-pages paper regret learning docs release liars screenshots format clean

help: ## what you can do here
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.ready ## four real cities learn together, beside the same four alone (45 seconds)
	$(BIN)/pricemesh demo

pictures: $(VENV)/.ready ## the README's pictures of the demo, made anew
	$(BIN)/pricemesh demo --plot docs/images/demo.png --capture docs/images/demo.svg

screenshots: $(VENV)/.ready ## the README's pictures of the dashboard, made anew (five minutes, needs Chromium)
	$(BIN)/python -m tests.dashboard.screenshots

test: check pytest ## everything that must hold: style, types, layers, tests

check: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

pytest: $(VENV)/.ready
	$(BIN)/pytest -m "not slow"

torture: $(VENV)/.ready ## 1000 simulated meshes with faults (a quarter of an hour)
	$(BIN)/pricemesh torture

soak: $(VENV)/.ready ## the long tests
	$(BIN)/pytest -m slow

bench: $(VENV)/.bench ## all performance tables, as ratios to named baselines (minutes; needs wrk)
	$(BIN)/pricemesh bench

bench-http: $(VENV)/.ready ## /price and /feedback against an empty FastAPI endpoint (needs wrk)
	$(BIN)/pricemesh bench http

bench-gossip: $(VENV)/.ready ## bytes on the wire, and what a tick does to /price (needs wrk)
	$(BIN)/python -m benchmarks.gossip

bench-driver: $(VENV)/.ready ## the simulator client against wrk and h2load (needs both)
	$(BIN)/python -m benchmarks.driver

bench-feedback: $(VENV)/.ready ## what late, lost and doubled feedback costs (six minutes)
	$(BIN)/python -m benchmarks.feedback

bench-folding: $(VENV)/.ready ## what a tick costs a city with 10, 100 and 1,000 peers (a minute)
	$(BIN)/python -m benchmarks.folding

bench-growth: $(VENV)/.ready ## the cost of a million decisions (ten minutes, needs wrk)
	$(BIN)/python -m benchmarks.growth

bench-history: $(VENV)/.ready ## exports and imports: seconds and memory; prices beside an export (five minutes, needs wrk)
	$(BIN)/python -m benchmarks.history

bench-overload: $(VENV)/.ready ## three times what a city can commit, and thousands of slow callers (four minutes)
	$(BIN)/python -m benchmarks.overload

bench-pages: $(VENV)/.ready ## what 20 open dashboards cost /price, and what a page takes to load (needs wrk)
	$(BIN)/python -m benchmarks.pages

paper: $(VENV)/.ready ## the paper's experiments, run again into docs/paper (most of an hour)
	$(BIN)/pricemesh paper --out docs/paper

regret: $(VENV)/.ready ## regret of every policy in the settings we hold ourselves to (minutes)
	$(BIN)/python -m benchmarks.regret

learning: $(VENV)/.ready ## the tables of docs/learning.md: which policy when
	$(BIN)/python -m benchmarks.learning

docs: $(VENV)/.ready ## the generated pages made anew, and the documentation as a site in build/site
	$(BIN)/python -m documentation
	$(BIN)/mkdocs build --strict

release: $(VENV)/.ready ## wheel, sdist, SBOM (CycloneDX, of the wheel as installed with constraints.txt) and checksums in dist/
	rm -rf dist build/release
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --no-isolation --outdir dist
	$(PYTHON) -m venv --without-pip build/release
	$(BIN)/pip --python build/release/bin/python install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	rm build/release/lib/python*/site-packages/pricemesh-*.dist-info/direct_url.json # where the wheel lay on this machine
	sed "s/^dynamic = .*/version = \"$$(build/release/bin/pricemesh --version | cut -d' ' -f2)\"/" pyproject.toml >build/release/pyproject.toml
	$(BIN)/cyclonedx-py environment --output-reproducible --validate --pyproject build/release/pyproject.toml \
	  --mc-type application --output-file dist/pricemesh.cdx.json build/release/bin/python
	cd dist && sha256sum *.whl *.tar.gz *.json >SHA256SUMS && cat SHA256SUMS

liars: $(VENV)/.ready ## what a lying city costs the honest ones (minutes)
	$(BIN)/python -m benchmarks.liars

format: $(VENV)/.ready ## mend style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what these targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build demo.png

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "pricemesh needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[lab,dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $@
