# make demo    install into .venv and run the demo suite
# make test    the quick tests: every law, golden value and contract, in minutes
# make test-all   all tests: the slow ones (ANCHOR_SEEDS=1 for a short form), the dashboard in a browser, and hypothesis with more examples
# make test-ray, make test-flower, make test-nvflare, make test-tracking   what needs Ray, Flower, NVFlare, and trackers of experiments: they
#              go into build/ray, build/flower, build/nvflare and build/tracking, and not into .venv; nothing where the package index does not offer them
# make ray, make flower, make nvflare   fetch these alone
# make test-kubernetes   do the manifests fit Kubernetes' own schemas, which go into build/kubernetes?
# make test-container   the steps of the Dockerfile that build, in a fresh folder: some minutes, and the packages again
# make test-slow, make test-e2e   these alone: those that take long; the dashboard in a real browser (needs chromium)
# make screenshots   pictures of every page at 1440 and 390 pixels, light, dark and printed, and what axe-core finds, into build/screenshots:
#              of a run made for it, or make screenshots STORE=runs RUN=quick
# make axe     fetch axe-core, which `make screenshots` and `make test-e2e` use, into build/axe
# make plants   faults planted in rules, attacks, the protocol, accounting and the gate: do the quick tests notice?
# make docs    the documentation site, into build/site
# make bench   speed, as ratios, into benchmarks/measured/ and so onto the site; some 20 minutes on a machine that does nothing else
#              beside peers in environments of their own: make bench FLOWER=flower/bin/python BYZFL=... PFL=...
# make bench-smoke   each script of benchmarks/ with small sizes, or those of SMOKED="..."; and the page of that; does all run?
# make mutants   planted weaknesses of secure aggregation, each against the attack or test that is expected to notice it first
# make mutants-full   each against all attacks and tests, and the table of docs/plants.md; some three hours of CPU time
# make lint    style, types, and no import of the top-level folders by their bare names
PYTHON ?= python3
VENV   ?= .venv
RAY    ?= build/ray
FLWR   ?= build/flower
NVFL   ?= build/nvflare
TRACK  ?= build/tracking
KUBE   ?= build/kubernetes
AXE    ?= build/axe
SHOTS  ?= build/screenshots
BIN    := $(VENV)/bin
TYPED  := build/typed
ANCHOR_SEEDS ?= 3

MEASURED := benchmarks/measured
SMOKE  := build/bench-smoke
SPEED  := rules networks probes inversion start growth many_clients events asynchronous dashboard
SMOKED ?= $(SPEED) simulation secagg peers audit gate worst_case
PEERS  := $(if $(FLOWER),--flower $(FLOWER)) $(if $(BYZFL),--byzfl $(BYZFL)) $(if $(PFL),--pfl $(PFL))

# Where this is set, each process of the tests compiles FedGuard anew, which takes longer than most of what it is started for.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-ray ray test-flower flower test-nvflare nvflare test-tracking test-kubernetes test-container test-all plants test-slow test-e2e axe screenshots mutants mutants-full docs lint bench bench-smoke format wheel clean

demo: $(VENV)/.installed
	$(BIN)/fedguard run examples/quick.yaml

test: $(VENV)/.installed-dev
	$(BIN)/pytest -n auto --dist worksteal

test-all: $(VENV)/.installed-dev
	ANCHOR_SEEDS=$(ANCHOR_SEEDS) $(BIN)/pytest -n auto --dist worksteal -m "not container" --hypothesis-profile=deep

test-ray: $(VENV)/.installed-dev ray
	@[ ! -d $(RAY)/ray ] || PYTHONPATH=$(CURDIR)/$(RAY) $(BIN)/python -m pytest -n 2 --dist loadfile -m ray tests/running/cluster

ray: $(VENV)/bin/pip
	@[ -d $(RAY)/ray ] || $(BIN)/pip install --quiet --constraint constraints.txt --target $(RAY) 'ray>=2.55,<3' \
	    || echo "Ray cannot be had from this package index: what needs it is not tested"

test-flower: $(VENV)/.installed-dev flower
	@[ ! -d $(FLWR)/flwr ] || PYTHONPATH=$(CURDIR)/$(FLWR) $(BIN)/python -m pytest -n 2 --dist loadfile -m flower \
	    tests/flower tests/house/test_container.py

# Flower wants older versions of some packages, which come before those of .venv; its simulation a Ray, which is not everywhere.
flower: $(VENV)/bin/pip
	@[ -d $(FLWR)/flwr ] || $(BIN)/pip install --quiet --target $(FLWR) 'flwr[simulation]>=1.41,<1.43' \
	    || $(BIN)/pip install --quiet --target $(FLWR) 'flwr>=1.41,<1.43' \
	    || echo "Flower cannot be had from this package index: what needs it is not tested"

test-nvflare: $(VENV)/.installed-dev nvflare
	@[ ! -d $(NVFL)/nvflare ] || PYTHONPATH=$(CURDIR)/$(NVFL) $(BIN)/python -m pytest -m nvflare tests/nvflare

nvflare: $(VENV)/bin/pip
	@[ -d $(NVFL)/nvflare ] || $(BIN)/pip install --quiet --target $(NVFL) 'nvflare>=2.9,<2.10' \
	    || echo "NVFlare cannot be had from this package index: what needs it is not tested"

test-tracking: $(VENV)/.installed-dev
	@if [ -d $(TRACK)/opentelemetry/exporter ] || $(BIN)/pip install --quiet --constraint constraints.txt --target $(TRACK) \
	        'mlflow-skinny>=3.17,<4' 'sqlalchemy>=2' 'alembic>=1.13' 'tensorboard>=2.21' 'wandb>=0.31' 'opentelemetry-exporter-otlp-proto-http>=1.30'; then \
	    PYTHONPATH=$(CURDIR)/$(TRACK) $(BIN)/python -m pytest -m tracking tests/results/test_tracking.py tests/running/test_spans.py; \
	else echo "MLflow, TensorBoard, wandb and OpenTelemetry cannot be had from this package index: what needs them is not tested"; fi

test-kubernetes: $(VENV)/.installed-dev
	@if [ -d $(KUBE)/kubernetes_validate ] || $(BIN)/pip install --quiet --target $(KUBE) 'kubernetes-validate>=1.37'; then \
	    PYTHONPATH=$(CURDIR)/$(KUBE) $(BIN)/python -m pytest -m kubernetes tests/house/test_kubernetes.py; \
	else echo "Kubernetes' schemas cannot be had from this package index: the manifests are not held against them"; fi

test-container: $(VENV)/.installed-dev
	$(BIN)/pytest -m container tests/house/test_container.py

plants: $(VENV)/.installed-dev
	$(BIN)/python -m tests.mutants.quick

test-slow: $(VENV)/.installed-dev
	ANCHOR_SEEDS=$(ANCHOR_SEEDS) $(BIN)/pytest -m slow

test-e2e: $(VENV)/.installed-dev
	$(BIN)/pytest -m e2e -rs tests/app/e2e

# Of npm, and needed by no user of FedGuard.
axe:
	@[ -d $(AXE)/node_modules/axe-core ] || { mkdir -p $(AXE) && npm install --silent --no-fund --no-audit --prefix $(AXE) axe-core@4; } \
	    || echo "axe-core cannot be had, or there is no npm: the pages are not held against it"

screenshots: $(VENV)/.installed-dev axe
	$(BIN)/python -m tests.app.e2e.screenshots $(SHOTS) $(if $(STORE),--store $(STORE)) $(if $(RUN),--run $(RUN))

mutants: $(VENV)/.installed-dev
	$(BIN)/python -m tests.mutants

mutants-full: $(VENV)/.installed-dev
	$(BIN)/python -m tests.mutants --all --table docs/plants.md

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# mypy does not follow the mapping of folders to packages, so it is shown the installed names.
	rm -rf $(TYPED) && mkdir -p $(TYPED)/fedguard
	ln -s $(CURDIR)/fedguard/* $(CURDIR)/attacks $(CURDIR)/defenses $(CURDIR)/app $(TYPED)/fedguard/
	MYPYPATH=$(TYPED) $(BIN)/mypy --explicit-package-bases --namespace-packages -p fedguard

bench: $(VENV)/.installed-dev
	set -e; for script in $(SPEED); do $(BIN)/python benchmarks/$$script.py --json $(MEASURED)/$$script.json; done
	$(BIN)/python benchmarks/simulation.py --json $(MEASURED)/simulation.json
	$(BIN)/python benchmarks/simulation.py --threads 2 --json $(MEASURED)/simulation_2.json
	$(BIN)/python benchmarks/secagg.py $(if $(FLOWER),--flower $(FLOWER)) --json $(MEASURED)/secagg.json
	$(BIN)/python benchmarks/peers.py $(PEERS) --json $(MEASURED)/peers.json

bench-smoke: $(VENV)/.installed-dev
	set -e; for script in $(SMOKED); do \
	    echo "$$script.py"; $(BIN)/python benchmarks/$$script.py --smoke --json $(SMOKE)/$$script.json > /dev/null; done
	$(BIN)/python -m docs_tools.speed $(SMOKE) $(SMOKE)/speed.md

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(VENV)/.installed-dev
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir build/wheel .

clean:
	rm -rf $(VENV) build *.egg-info

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit("FedGuard needs Python 3.11 or later; set PYTHON=" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/pip pyproject.toml setup.py constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt torch==2.13.0 --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
