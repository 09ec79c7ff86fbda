# make run, make test, make check, make bench, make simulate. Each sets up what it needs.

BIN := .venv/bin
# All of them on two cores, the tests of one file in one place.
ALL := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: setup run test check bench simulate clean

setup: .venv/installed models/smollm2.model

run: setup
	$(BIN)/python -m simulations.demo

test: setup
	$(BIN)/python -m pytest $(or $(ARGS),$(ALL))

check: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: setup .venv/plots
	$(BIN)/python -m simulations.bench $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) --report bench

simulate: setup
	$(BIN)/python -m simulations all $(if $(QUICK),--quick)

clean:
	rm -rf .venv models/smollm2 models/smollm2.model bench build *.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/installed: requirements.lock pyproject.toml setup/environment.sh
	setup/environment.sh

# For the pictures of reports, which go without where there is no network.
.venv/plots: .venv/installed
	-$(BIN)/pip install --quiet --no-build-isolation --editable '.[plots]' && touch $@

# The order-only prerequisite: a newer environment does not make the model older.
models/smollm2.model: setup/demo_model.sh | .venv/installed
	setup/demo_model.sh
