# Each target sets up what it needs. `envs/install` does nothing where an environment is there already.
.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-argo lint format bench lock clean

SUITE = OMP_NUM_THREADS=1 envs/run dev python -m pytest -n 2 --dist loadgroup --timeout 300

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: ## post-train a 135M-parameter model on this machine, in about ten minutes, and serve it
	@envs/install control
	@envs/install cpu
	@envs/run cpu python -m posttrain.cli demo

test: lint ## linters, types and the whole suite, in about 15 minutes on two cores
	@envs/system
	@envs/install control
	@envs/install cpu
	$(SUITE) -m "not slow" --session-timeout 1800

test-slow: ## the tests that are too long for `test`
	@envs/system
	@envs/install control
	@envs/install cpu
	@envs/install dev
	$(SUITE) -m slow --timeout 3600

test-argo: ## the main job on the cluster of KUBECONFIG and ARGO_SERVER, in about five minutes; see docs/argo.md
	@[ "$$KUBECONFIG" ] && [ "$$ARGO_SERVER" ] || { echo "make test-argo: set KUBECONFIG and ARGO_SERVER" >&2; exit 2; }
	@envs/install control
	@envs/install cpu
	@envs/install dev
	envs/run dev python -m pytest -v --capture sys -m cluster --timeout 400 --session-timeout 1200 tests/argo

lint: ## ruff and mypy
	@envs/install dev
	envs/run dev ruff check .
	envs/run dev ruff format --check .
	envs/run dev mypy

format: ## let ruff put the code in form
	@envs/install dev
	envs/run dev ruff check --fix .
	envs/run dev ruff format .

bench: ## each benchmark prints a ratio against a peer measured in the same run
	@envs/install control
	@envs/install cpu
	@envs/install dev
	@for program in benchmarks/*.py; do echo "== $$program"; envs/run dev python "$$program" || exit 1; done

lock: ## lock the wheels of envs/*.in again, keeping what still fits
	@envs/install dev
	envs/run dev envs/lock

clean: ## remove caches; the workspace and the installed environments stay
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
