# Everything a person or CI runs. Nothing outside this folder is touched but package caches.
PYTHON ?= python3
STAGE ?= dev
APPROVAL ?= broadening
MINUTES ?= 5
# A release that was broken into is mostly found within days. For one that closes a hole, delete the pin of the last and
# make lock COOL_DOWN=0.
COOL_DOWN ?= 7
BIN := .venv/bin
CDK := JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=20 node_modules/.bin/cdk

OLD_ENOUGH = $(shell $(BIN)/python -c 'import datetime as d; print((d.datetime.now(d.UTC) - d.timedelta(days=$(COOL_DOWN))).strftime("%Y-%m-%dT%H:%M:%SZ"))')

.DEFAULT_GOAL := help
.PHONY: help setup demo test unit up down synth deploy diff destroy lint types check audit openapi watch picture bench proof soak mutation notice lock clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# Each environment is made anew when its lock file changes.
.venv/.made: requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; try make PYTHON=python3.12")'
	@echo "Installing the pinned packages into .venv, .local/venv and node_modules ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check $$(grep -oE '^uv==[0-9.]+' requirements-dev.txt)
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements-dev.txt
	@touch $@

.local/venv/.made: local/requirements.txt .venv/.made
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python .local/venv
	@$(BIN)/uv pip sync --quiet --python .local/venv/bin/python --require-hashes local/requirements.txt
	@touch $@

node_modules/.made: package-lock.json
	@command -v node >/dev/null || { echo "Node 20 or newer is needed; see https://nodejs.org" >&2; exit 1; }
	@npm ci --silent --no-audit --no-fund
	@touch $@

setup: .venv/.made .local/venv/.made node_modules/.made ## Install what this project pins, here in this folder

demo: setup ## Local cloud, real deploy, every race naive beside safe, report.html; leaves nothing running
	@$(BIN)/python -m lab demo

up: setup ## Start the local cloud and deploy to it
	@$(BIN)/python -m local up

down: setup ## Stop the local cloud
	@$(BIN)/python -m local down

test: setup ## All tests
	$(BIN)/pytest

unit: setup ## Only the quick tests
	$(BIN)/pytest tests/unit tests/contract --ignore tests/unit/bench --ignore tests/contract/test_openapi.py

watch: setup ## Show live what STAGE does: rates, outcomes, money, alarms (STAGE=local for the local cloud)
	@$(BIN)/python -m lab watch --stage $(STAGE)

picture: setup ## Write the dashboard of STAGE as it stands to dashboard.html
	@$(BIN)/python -m lab picture --stage $(STAGE)

bench: setup ## Cost and speed beside the alternatives; writes bench/RESULTS.md
	@JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=20 PYTHONPATH=lambda_src $(BIN)/python -m bench

proof: setup ## Every schedule of two and three racers, with faults; every seeded fault caught
	@PYTHONPATH=lambda_src $(BIN)/python -m tests.interleave

soak: setup ## Chaos for MINUTES=5 on a local cloud: load, killed workers, lost replies; then everything must add up
	@PYTHONPATH=lambda_src $(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

mutation: setup ## Change the protocols one place at a time and list what no test notices; half an hour
	@$(BIN)/python -m tests.mutation

synth: setup ## Write cdk.out for STAGE (local, dev or prod)
	$(CDK) synth --quiet -c stage=$(STAGE)

diff: setup ## Compare STAGE with what is deployed
	$(CDK) diff --all -c stage=$(STAGE)

deploy: setup ## Deploy STAGE to the AWS account you are logged in to
	$(CDK) deploy --all -c stage=$(STAGE) --require-approval $(APPROVAL)

destroy: setup ## Remove STAGE from the AWS account you are logged in to
	$(CDK) destroy --all -c stage=$(STAGE)

lint: setup ## Style and mistakes
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup ## Types
	$(BIN)/mypy

check: lint types ## All that CI checks, with cdk-nag as part of synth
	$(MAKE) synth STAGE=local
	$(MAKE) synth STAGE=dev
	$(MAKE) synth STAGE=prod
	$(MAKE) test

audit: setup ## Look the pinned packages up in the advisory databases; says so where they cannot be reached
	@for file in requirements-dev.txt lambda_src/requirements.txt local/requirements.txt; do \
	  $(BIN)/pip-audit --disable-pip --require-hashes --progress-spinner off -r $$file; status=$$?; \
	  [ $$status -le 1 ] || echo "$$file: the advisory database cannot be reached; nothing was checked" >&2; \
	  [ $$status -ne 1 ] || exit 1; done
	@npm audit --audit-level=high || [ "$$(npm audit --json 2>/dev/null | grep -c '"auditReportVersion"')" = 0 ]

openapi: setup ## Write docs/openapi.json from the contract
	@PYTHONPATH=lambda_src $(BIN)/python -m contract

lock: .venv/.made ## Pin again what the .in files and package.json ask for, with hashes; nothing younger than COOL_DOWN days
	for name in requirements requirements-dev lambda_src/requirements local/requirements; do \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	    --exclude-newer $(OLD_ENOUGH) $$name.in -o $$name.txt || exit 1; done
	npm install --package-lock-only --ignore-scripts --no-audit --no-fund --before $(OLD_ENOUGH)

notice: setup ## Write THIRD_PARTY.md from what the pinned packages say of themselves
	@$(BIN)/python -m tests.infra.third_party

clean: ## Remove everything that setup, synth and tests made
	[ ! -x $(BIN)/python ] || $(BIN)/python -m local down
	rm -rf .venv .local node_modules cdk.out report.html dashboard.html .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
