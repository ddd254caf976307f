# Everything a developer runs. `make demo` and `make test` are all the set-up there is.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CPP_BUILD := build/cpp-tests
SANITIZED_BUILD := build/cpp-sanitized
EXPLORED_BUILD := build/cpp-explored
THREADS_BUILD := build/cpp-threads
FUZZ_BUILD := build/fuzz
FUZZ_SECONDS ?= 60
WILD_NETWORKS ?= 5000
WILD_STEEP ?= 1000
WILD_STREAMS ?= 20
CPP_FILES = $(shell find cpp toolchain benchmarks/native -name '*.h' -o -name '*.cc' -o -name '*.cpp')

# A step that failed is taken again.
.DELETE_ON_ERROR:

.PHONY: demo test check install test-python test-cpp test-cpp-sanitized test-cpp-threads fuzz wild hurt explore format bench bench-native churn \
  hubs imports imports-oldest lowest faults kills parts-suite whole campaigns mutants test-contestants models-table practitioners-table pyg-loaders test-cpp-threads-engine compile-cpp-sanitized compile-cpp-explored model clean

demo: $(VENV)/installed-demo  ## serve the Bitcoin OTC trust network and watch it change
	$(BIN)/livegnn demo

# Compilers work while packages are downloaded and unpacked.
test:  ## all tests: C++ under sanitizers, then Python
	+@LIVEGNN_STEPS_AT_ONCE=2 $(MAKE) --no-print-directory -j 2 $(VENV)/installed-test compile-cpp-sanitized
	+@$(MAKE) --no-print-directory test-cpp-sanitized test-cpp-threads test-python

check: $(VENV)/installed-test  ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/lint-imports toolchain/run_time_imports.toml
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)

# -- environments -------------------------------------------------------------------------------------------------
# The demo needs the base install alone; the tests need torch as well. Both install the wheel that users get, again
# whenever a source has changed.

SOURCES := pyproject.toml CMakeLists.txt toolchain/machine.cmake toolchain/nanobind.cmake toolchain/cxx20.cc \
  $(sort $(shell find src cpp -type f ! -name '*.so' ! -path '*/__pycache__/*'))

# What the machine lacks is said in a line each, before anything is installed or compiled.
MACHINE = @$(BIN)/python toolchain/machine.py
# Then, the steps that are taken. What they write in full is in build/.
STEPS = @$(BIN)/python toolchain/steps.py
PIP_INSTALL = $(BIN)/pip install -v --progress-bar raw

# What the user has set for other environments is not for this one.
unexport PYTHONHOME PYTHONSAFEPATH PYTHONWARNINGS PIP_DRY_RUN PIP_NO_DEPS PIP_PREFIX PIP_TARGET PIP_USER

# Written last, so that an environment that was left half-made is made anew; and so is one whose folder was moved,
# because its scripts name the folder, and one of another Python than the user names.
ENVIRONMENT_HERE := $(VENV)/made-$(firstword $(shell pwd | cksum))
ENVIRONMENT := $(ENVIRONMENT_HERE)-$(firstword $(shell command -v $(PYTHON) | cksum))
ifeq ($(origin PYTHON),file)
ENVIRONMENT := $(firstword $(wildcard $(ENVIRONMENT_HERE)-*) $(ENVIRONMENT))
endif

$(ENVIRONMENT):
	@command -v $(PYTHON) >/dev/null || \
	  { echo "livegnn needs Python 3.11 or newer, found no $(PYTHON): install it, or name another with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) toolchain/machine.py demo
	@$(PYTHON) toolchain/steps.py build/environment.log "making $(VENV)" $(PYTHON) -m venv --clear $(VENV)
	@printf '*\n' > $(VENV)/.gitignore
	$(STEPS) build/environment.log "updating pip" $(BIN)/pip install --upgrade "pip>=25.1"
	@touch $@

# Made anew when a source is added or removed.
SOURCES_NAMED := $(VENV)/sources-$(firstword $(shell printf '%s\n' $(SOURCES) | cksum))

$(SOURCES_NAMED): | $(ENVIRONMENT)
	@rm -f $(VENV)/sources-*
	@touch $@

$(VENV)/installed-native: $(ENVIRONMENT) pyproject.toml
	$(STEPS) build/environment.log "installing CMake, ninja and nanobind" $(BIN)/pip install --group native
	@touch $@

$(VENV)/installed-demo: $(ENVIRONMENT) $(SOURCES) $(SOURCES_NAMED)
	$(MACHINE) demo
	$(STEPS) build/install.log "installing livegnn" $(PIP_INSTALL) .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed-native $(SOURCES) $(SOURCES_NAMED)
	$(MACHINE) test
	$(STEPS) build/install.log "installing livegnn and what its tests need" $(PIP_INSTALL) ".[torch,arrow,test,check,bench]"
	@touch $@ $(VENV)/installed-demo

install: $(VENV)/installed-test

# -- tests --------------------------------------------------------------------------------------------------------

# One thread for each process, and the same order of sets everywhere.
TEST_ENVIRONMENT = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONHASHSEED=0

test-python: $(VENV)/installed-test
	$(TEST_ENVIRONMENT) $(BIN)/pytest -n 3 --dist loadgroup --durations 20 --ignore-glob "tests/unit/test_benchmark_*"

# They compile the contestants of the store first, which takes two minutes.
test-contestants: $(VENV)/installed-test  ## what the benchmarks measure beside us says what PyG or a dict says
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest tests/unit/test_benchmark_*.py

# CMake refuses the cache of a folder that was moved, so it begins without one; objects stay.
CONFIGURE = $(BIN)/cmake --fresh -S . -G Ninja \
  -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja"

$(CPP_BUILD)/build.ninja: $(VENV)/installed-native
	$(STEPS) $(CPP_BUILD).log "configuring the C++ tests" $(CONFIGURE) -B $(CPP_BUILD) -DLIVEGNN_TESTS=ON -DCMAKE_BUILD_TYPE=Release

# Two halves of the tests at once. Whatever ends one, Ctrl-C too, ends the other.
HALVES = trap 'kill $$first 2>/dev/null' EXIT; trap 'exit 130' INT TERM; \
  $(1) --part=1/2 $(2) & first=$$!; $(1) --part=2/2 $(2) || exit; wait $$first; status=$$?; first=; exit $$status

# Sanitizers need lines and no more: with less optimization and less to debug, a build takes half the time. Without
# NDEBUG, assertions check what functions require.
SANITIZED_FLAGS = -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1"

# Two checks of each pointer take a third of a compilation: the build that explores has them.
$(SANITIZED_BUILD)/build.ninja: SANITIZED_FLAGS += -DLIVEGNN_SANITIZE_EXCEPT=null,object-size,alignment,pointer-overflow

$(SANITIZED_BUILD)/build.ninja $(EXPLORED_BUILD)/build.ninja: $(VENV)/installed-native
	$(STEPS) $(@D).log "configuring the C++ tests under ASan and UBSan" $(CONFIGURE) -B $(@D) \
	  -DLIVEGNN_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo $(SANITIZED_FLAGS) -DLIVEGNN_SANITIZE=address,undefined

$(THREADS_BUILD)/build.ninja: $(VENV)/installed-native
	$(STEPS) $(THREADS_BUILD).log "configuring the C++ tests under TSan" $(CONFIGURE) -B $(THREADS_BUILD) \
	  -DLIVEGNN_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo $(SANITIZED_FLAGS) -DLIVEGNN_SANITIZE=thread

$(FUZZ_BUILD)/build.ninja: $(VENV)/installed-native
	$(STEPS) $(FUZZ_BUILD).log "configuring the fuzz targets" $(CONFIGURE) -B $(FUZZ_BUILD) \
	  -DLIVEGNN_FUZZ=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo -DLIVEGNN_SANITIZE=address,undefined

test-cpp: $(CPP_BUILD)/build.ninja
	$(STEPS) $(CPP_BUILD).log "compiling the C++ tests" $(BIN)/cmake --build $(CPP_BUILD) --target livegnn_tests
	$(CPP_BUILD)/livegnn_tests

compile-cpp-sanitized: $(SANITIZED_BUILD)/build.ninja
compile-cpp-explored: $(EXPLORED_BUILD)/build.ninja
compile-cpp-sanitized compile-cpp-explored:
	$(STEPS) $(<D).log "compiling the C++ tests under ASan and UBSan" $(BIN)/cmake --build $(<D) --target livegnn_tests

test-cpp-sanitized: compile-cpp-sanitized
	$(call HALVES,$(SANITIZED_BUILD)/livegnn_tests,)

THREADED = readers batch thread_pool threads_take block_heap_lanes graph_ text_ids_are_read lane turn_that an_exchange wait_for messages_before

test-cpp-threads: $(THREADS_BUILD)/build.ninja
	$(STEPS) $(THREADS_BUILD).log "compiling the C++ tests under TSan" $(BIN)/cmake --build $(THREADS_BUILD) --target livegnn_thread_tests
	$(call HALVES,$(THREADS_BUILD)/livegnn_thread_tests,$(THREADED))

# The engine's part: a minute or more of compiling.
test-cpp-threads-engine: $(THREADS_BUILD)/build.ninja
	$(STEPS) $(THREADS_BUILD).log "compiling the engine's tests under TSan" $(BIN)/cmake --build $(THREADS_BUILD) --target livegnn_engine_thread_tests
	$(THREADS_BUILD)/livegnn_engine_thread_tests asked_while prepared_at_once workspace first_lost

# -- by hand ------------------------------------------------------------------------------------------------------

fuzz: $(FUZZ_BUILD)/build.ninja  ## each structure of the store against a model, on inputs nobody thought of
	$(STEPS) $(FUZZ_BUILD).log "compiling the fuzz targets" $(BIN)/cmake --build $(FUZZ_BUILD) --target livegnn_fuzz
	cd $(FUZZ_BUILD) && for target in *_fuzz; do ./$$target -max_total_time=$(FUZZ_SECONDS) || exit 1; done

imports: $(VENV)/installed-test  ## the importer on every module of tests/imported_modules.py, and on many random ones
	LIVEGNN_ALL_MODULES=1 LIVEGNN_IMPORT_CASES=300 $(BIN)/pytest tests/unit/test_importer_reader.py tests/unit/test_importer_lowering.py tests/unit/test_sampled_forward_pyg.py tests/property/test_importer.py

OLDEST := build/oldest-torch

imports-oldest:  ## the same modules with the oldest PyTorch that imports them, in an environment of its own
	@$(PYTHON) toolchain/machine.py test
	@$(PYTHON) toolchain/steps.py $(OLDEST).log "making $(OLDEST)" $(PYTHON) -m venv $(OLDEST)
	@$(PYTHON) toolchain/steps.py $(OLDEST).log "updating pip" $(OLDEST)/bin/pip install --upgrade "pip>=24.1"
	@$(PYTHON) toolchain/steps.py $(OLDEST).log "installing the oldest PyTorch" $(OLDEST)/bin/pip install -v --progress-bar raw "torch==2.6.*" ".[torch,test]"
	LIVEGNN_ALL_MODULES=1 $(OLDEST)/bin/pytest -p no:cacheprovider tests/unit/test_importer_reader.py tests/unit/test_importer_lowering.py

LOWEST := build/lowest
LOWEST_TESTS ?= tests

# The constraints are the bounds of pyproject.toml. What builds the wheel, linters and benchmarks are as ever.
lowest:  ## the Python tests with the lowest release of each dependency, in an environment of its own
	@$(PYTHON) toolchain/machine.py test
	@$(PYTHON) toolchain/steps.py $(LOWEST).log "making $(LOWEST)" $(PYTHON) -m venv $(LOWEST)
	@$(PYTHON) toolchain/steps.py $(LOWEST).log "updating pip" $(LOWEST)/bin/pip install --upgrade "pip>=25.1"
	@$(LOWEST)/bin/python toolchain/lowest.py > $(LOWEST)/constraints.txt
	@$(PYTHON) toolchain/steps.py $(LOWEST).log "installing the lowest release of each dependency" $(LOWEST)/bin/pip install -v --progress-bar raw \
	  --constraint $(LOWEST)/constraints.txt ".[torch,arrow,cluster,kafka,serverless,rocksdb,verify,test,check]" --group native
	$(TEST_ENVIRONMENT) $(LOWEST)/bin/pytest -p no:cacheprovider -n 4 --dist loadgroup --ignore-glob "tests/unit/test_benchmark_*" $(LOWEST_TESTS)

wild: $(VENV)/installed-test  ## random networks on data of any magnitude, beside PyG in float64; commit what it writes
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/wild.py --networks $(WILD_NETWORKS) --steep $(WILD_STEEP) --streams $(WILD_STREAMS) --json tests/wild.json

hurt: $(VENV)/installed-test  ## how long others wait while a server reads what is made to hurt; commit what it writes
	$(BIN)/python tests/hurt.py

HOURS ?= 1
explore: $(VENV)/installed-test compile-cpp-explored  ## new random cases for HOURS; finds are kept in build/explore
	$(BIN)/python tests/explore.py --hours $(HOURS)

FAULT_SEEDS ?= 10000
FAULTS_AT_ONCE := 2000
# In parts, because pytest keeps each record of a log, with its traceback and the graph in it, until a test ends.
faults: $(VENV)/installed-test  ## so many histories of a machine that loses power at any write, flush or rename
	for first in $$(seq 0 $(FAULTS_AT_ONCE) $$(($(FAULT_SEEDS) - 1))); do \
	  LIVEGNN_SEED=$$first LIVEGNN_FAULT_SEEDS=$$(($(FAULT_SEEDS) - first < $(FAULTS_AT_ONCE) ? $(FAULT_SEEDS) - first : $(FAULTS_AT_ONCE))) \
	  $(BIN)/python -m pytest -q -n 2 --timeout 0 tests/faults/test_power_loss.py tests/faults/test_checkpoint_losses.py || exit 1; done

KILLS ?= 200
kills: $(VENV)/installed-test  ## a server that is killed so often, under load; LIVEGNN_SEED: another history
	LIVEGNN_KILLS=$(KILLS) $(BIN)/python -m pytest -q -s tests/faults/test_kills.py

parts-suite: $(VENV)/installed-test  ## the tests of exactness, with every engine also in one, two and three parts
	for parts in 1 2 3; do \
	  LIVEGNN_PARTS=$$parts OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q $$($(BIN)/python tests/parts_beside.py) || exit 1; done

whole: $(VENV)/installed-test  ## all Python tests, with those that the gate leaves out because they are slow: an hour
	LIVEGNN_WHOLE=1 $(TEST_ENVIRONMENT) $(BIN)/pytest -n 3 --dist loadgroup --durations 20 --ignore-glob "tests/unit/test_benchmark_*"

campaigns: $(VENV)/installed-test  ## tests that take minutes: clusters and brokers that die; needs the servers of tests/README.md
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -m campaign --durations 10

mutants: $(VENV)/installed-test  ## each protection against faults taken out once: the test and the seed that show it
	$(BIN)/python tests/faults/mutants.py

models-table: $(VENV)/installed-test  ## what of PyG is imported, into docs/models.md; PYG: a copy of its repository
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/models_table.py $(if $(PYG),--pyg $(PYG)) \
	  --json tests/models_table.json --page

practitioners-table: $(VENV)/installed-test  ## modules that others published, into tests/practitioners.md; REPOSITORIES: their checkouts
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/practitioners.py --repositories $(REPOSITORIES) \
	  --json tests/practitioners.json --page

pyg-loaders: $(VENV)/installed-test  ## PyG's own tests of loaders and samplers on a live graph; CHECKOUT: a copy of its repository
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/pyg_loader_tests.py $(CHECKOUT)

format: $(VENV)/installed-test  ## put every file into the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_FILES)

bench: $(VENV)/installed-test  ## the benchmarks at full size; commit what they write
	for name in incremental models lazy forward memory initial store growth hub_draws ready_samples presampling presampling_peers \
	  presampling_updates presampling_accuracy read_after_write workers worker_serving drift hubs log recovery model_swap cold_start function_start scheduling channels tables serverless; do \
	  $(BIN)/python benchmarks/$$name.py --json benchmarks/results/$$name.json || exit 1; done

churn: $(VENV)/installed-test  ## a million events that come and go, and what is left of them; commit what it writes
	$(BIN)/python benchmarks/churn.py --json benchmarks/results/churn.json

hubs: $(VENV)/installed-test  ## every family of convolutions on a hub of up to a million in-edges, beside PyG in float64
	$(BIN)/python benchmarks/hubs.py --json benchmarks/results/hubs.json

bench-native: $(VENV)/installed-test  ## the native half of benchmarks/store.py, which also builds it when it is missing
	cd benchmarks && ../$(BIN)/python -c "import contestants; print(contestants.build())"

model: $(VENV)/installed-test  ## train the demo's model again
	$(BIN)/python examples/train_bitcoin_otc.py

clean:
	rm -rf build $(VENV)
