# The two commands of the README: `make run` and `make test`. Both install what they need first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: run test check lint types layers unit slow gate hooks calibration calibration-report exactness faults fuzz
.PHONY: identical environments peers change-points bisect-study bisects peers-history scale versions clean
.PHONY: site reference links recording screenshots
.PHONY: agent-loop
.PHONY: gpu gpu-kit
.PHONY: first-output referee speedups
.PHONY: coverage
.PHONY: engine-faults engine-speed engine-costs engine-plan

run: $(INSTALLED)
	$(BIN)/perfkit profile train --out profiles/first_profile.stat
	$(BIN)/pytest benchmarks/ --benchmark-autosave
	$(BIN)/perfkit log
	@echo
	@echo "Look next at perf_log.md, at profiles/README.md, and at the profile itself:"
	@echo "  $(BIN)/snakeviz profiles/first_profile.stat"

test: $(INSTALLED) lint types layers unit

# What one runs while editing: some 90 seconds.
STARTS_PROCESSES = %/test_counts.py %/test_gate_on_a_device.py %/test_graph_breaks_decide.py %/test_numbers_measured.py
CHECKED = tests/contract $(filter-out $(STARTS_PROCESSES),$(wildcard tests/gating/test_*.py)) tests/exchange \
  $(wildcard tests/profiling/test_reading_*.py) tests/history tests/test_layers.py tests/test_units.py
check: $(INSTALLED) lint types layers
	OMP_NUM_THREADS=1 $(BIN)/pytest $(IN_TWO) -q -m "not alone and not slow" $(CHECKED)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy
	$(BIN)/mypy benchmarks

layers: $(INSTALLED)
	$(BIN)/lint-imports --no-logo

# Most tests in two processes, a thread each: more would wait for one another. Then those that nothing may run
# beside. A process that a test ended is not replaced, since the tests would wait for ever at their end.
IN_TWO = -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
unit: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest $(IN_TWO) -m "not alone and not slow"
	$(BIN)/pytest -m "alone and not slow" $(shell grep -rlF --include='*.py' mark.alone tests)

# What takes so long that `make test` leaves it out: some ten minutes.
slow: $(INSTALLED)
	$(BIN)/pytest -m slow

# Another comparison: make gate GATE="--base HEAD~3"
gate: $(INSTALLED)
	$(BIN)/perfkit gate $(GATE)

hooks: $(INSTALLED)
	git config core.hooksPath .githooks
	@echo "Each push is gated from now on; \"git push --no-verify\" goes past it."

# Some 100 minutes, and only while the machine is fit; goes on where it stood.
calibration: $(INSTALLED)
	$(BIN)/python benchmarks/calibration/study.py

calibration-report: $(INSTALLED)
	$(BIN)/python benchmarks/calibration/render.py

# Twenty fresh processes count the whole suite: some ten minutes.
exactness: $(INSTALLED)
	$(BIN)/python benchmarks/exact/repeat.py

# The documentation as a site, in build/site; a warning is an error.
SPHINX = $(BIN)/python -m sphinx --fail-on-warning --keep-going --doctree-dir build/site-cache
FOR_DOCS = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
site: $(INSTALLED)
	$(FOR_DOCS)
	$(SPHINX) --builder html docs build/site

# The pages of the reference as they lie in the repository, from the code.
reference: $(INSTALLED)
	$(BIN)/python docs/reference_pages.py

# A failing gate and `perfkit why` in a terminal, as the documents' moving picture and as their text: two minutes.
recording: $(INSTALLED)
	$(FOR_DOCS)
	$(BIN)/python benchmarks/report/recording.py

# The pictures of pages in the documents, from this repository's own ledger; needs Chromium and chromedriver.
screenshots: $(INSTALLED)
	$(BIN)/python benchmarks/report/screenshots.py

# Follows all links within the documents, and lists the addresses outside that they name, in build/links/output.json.
# On a machine with internet those are asked as well: make links LINKS=all
links: site
	$(BIN)/pytest tests/test_site.py -k link
	$(SPHINX) --builder linkcheck $(if $(filter all,$(LINKS)),,--define 'linkcheck_ignore=https?://') docs build/links

# Kills perfkit at moments drawn by lot and looks at what the next command makes of it: an hour. Then stops each step
# of the ledger at its system calls, damages files, and lets many write at once: two hours. Goes on where it stood.
# Then disturbs 200 trainings: half an hour. Fewer: TRAINING_FAULTS="--cases 2".
# Then interrupts every command twenty times in each of six ways: a day. Fewer: SIGNALS="--cases 2 --verb gate".
# Fewer: make faults FAULTS="--kills 5 --kind gate" LEDGER_FAULTS="--kills 20 --part kill"
faults: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python benchmarks/faults/kill_study.py $(FAULTS)
	PYTHONPATH=tests:tests/faults $(BIN)/python benchmarks/faults/ledger_faults.py $(LEDGER_FAULTS)
	PYTHONPATH=tests:tests/faults $(BIN)/python benchmarks/faults/ledger_faults.py --report
	PYTHONPATH=tests:tests/faults $(BIN)/python benchmarks/faults/training_faults.py $(TRAINING_FAULTS)
	PYTHONPATH=tests:tests/faults $(BIN)/python benchmarks/faults/training_faults.py --report
	PYTHONPATH=tests $(BIN)/python benchmarks/faults/interruptions.py $(SIGNALS)
	PYTHONPATH=tests $(BIN)/python benchmarks/faults/interruptions.py --report

# Over a million inputs for all readers together, led by the lines that they reach: some hours on one core; goes on
# where it stood. Fewer of one reader: make fuzz FUZZ="--inputs 10000 --target imports"
fuzz: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'atheris>=3.0'
	PYTHONPATH=.:tests:tests/faults $(BIN)/python benchmarks/faults/fuzz.py $(FUZZ)
	PERFKIT_FUZZ_EXAMPLES=200 $(BIN)/pytest tests/faults/test_recorder_model.py

# Which lines and branches of perfkit the tests run, in all their processes: an hour or two.
# Some folders only: make coverage COVERAGE="tests/stats tests/gating"
coverage: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[coverage]'
	$(BIN)/coverage erase
	-OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest $(IN_TWO) -m "not alone and not slow" $(COVERAGE)
	-$(BIN)/coverage run -m pytest -m "alone and not slow" $(COVERAGE)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered

# A trick that is none, tried twenty times: some ten minutes.
identical: $(INSTALLED)
	$(BIN)/python benchmarks/identical/tries.py

# A scripted agent with ten regressions and the answers of `perfkit check` alone: some ten minutes; goes on where it
# stood. One again: make agent-loop AGENT=loss
agent-loop: $(INSTALLED)
	$(BIN)/python benchmarks/referee/agent_loop.py $(AGENT)

# One commit in two environments that cost the same, gated twenty times: some hour; goes on where it stood.
environments: $(INSTALLED)
	$(BIN)/python benchmarks/environments/alike.py

# Fake gains, loops that keep memory, and identical code with awkward results, each gated: an hour or two; goes on where
# it stood. Fewer: make referee REFEREE=fakes; with libraries: make referee REFEREE="same --libraries FOLDER"
referee: $(INSTALLED)
	$(BIN)/python benchmarks/referee/fakes.py $(REFEREE)

# Public commits that promise a speed-up, each gated and timed by hand: two hours; goes on where it stood.
# From folders OWNER+NAME instead of GitHub: make speedups SPEEDUPS="--again einops --repositories FOLDER"
speedups: $(INSTALLED)
	$(BIN)/python benchmarks/speedups/speedups.py $(SPEEDUPS)

# The same pairs of commits through asv, pytest-benchmark, pyperf and a t-test: some 80 minutes, and then what time
# may not allow, pyperf without --fast; goes on where it stood.
# The first pairs only: make peers PEERS=1; perfkit and asv alone, some 20 minutes: make peers PEERS=--again
peers: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[peers]'
	$(BIN)/python benchmarks/peers/contest.py $(PEERS)
	$(BIN)/python benchmarks/peers/table.py

# Five detectors of steps beside perfkit's, on levels of identical code and on simulated noise: some ten minutes. They
# come without what else their packages bring along, since one of them asks for other versions than perfkit does.
# A series of one's own as well, in a file with its "values": make change-points SERIES=FILE.json
# By other people's labels, and what is reported of 200 simulated charts, in three minutes; a folder has series,
# annotations, and what other methods found: make change-points LABELS="FOLDER..."
change-points: $(INSTALLED)
ifdef LABELS
	$(BIN)/python benchmarks/change_points/labels.py $(LABELS)
	PYTHONPATH=tests $(BIN)/python benchmarks/change_points/seen.py
else
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt asv ruptures
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		apache-otava==0.8.0 skchange==0.18.0 fastcpd==1.3.1
	$(BIN)/python benchmarks/change_points/point_study.py $(SERIES)
endif

# Thousands of bisects of recorded launches: some twenty minutes. A look at fewer of each kind:
# make bisect-study BISECTS="--ranges 20"
bisect-study: $(INSTALLED)
	$(BIN)/python benchmarks/bisect/bisect_study.py $(BISECTS)

# Thirty real ranges of 64 commits, each searched by the command: some half an hour; goes on where it stood.
bisects: $(INSTALLED)
	$(BIN)/python benchmarks/bisect/real.py

# perfkit on a million rows in 10,000 files, and compacted: some ten minutes; the ledgers are kept in the folder.
SCALE ?= .scale
scale: $(INSTALLED)
	PERFKIT_SCALE=$(abspath $(SCALE)) $(BIN)/pytest benchmarks/bench_perfkit.py --benchmark-autosave

# Kills 50 workers and 10 schedulers of a real cluster on this machine: some twenty minutes; goes on where it
# stood. Fewer of them: make engine-faults ENGINE_FAULTS="--workers 5 --schedulers 1"
engine-faults: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python benchmarks/engines/engine_kills.py $(ENGINE_FAULTS)

# How much sooner two workers are done than one: two minutes.
engine-speed: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python benchmarks/engines/engine_speed.py

# What a task costs on this machine, which has to be quiet, and the plan that follows from it.
engine-costs: $(INSTALLED)
	$(BIN)/python benchmarks/engines/engine_costs.py

engine-plan: $(INSTALLED)
	$(BIN)/python benchmarks/engines/engine_plan.py

# How soon every command says its first words: some ten minutes. Some commands only: make first-output FIRST="--call gate"
first-output: $(INSTALLED)
	PYTHONPATH=tests:benchmarks/faults $(BIN)/python benchmarks/first_output/first_output.py --write $(FIRST)

# Histories of equal data through perfkit, pytest-benchmark and asv, and then the detectors of steps.
peers-history: change-points
	$(BIN)/python benchmarks/ledger_scale/beside.py

# The tests on each supported Python, and on the lowest versions of all dependencies: half an hour, and gigabytes.
# Some of them only: make versions VERSIONS="3.12 lowest"
versions: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[versions]'
	$(BIN)/python tests/versions.py $(VERSIONS)

# Measures the figures of docs/measured/gpu.md on a machine with a CUDA device, in eleven minutes; what is done is not run
# again. One stage only: make gpu GPU="--stage operators"
gpu: $(INSTALLED)
	$(BIN)/python benchmarks/gpu/gpu_study.py $(GPU)

# The same for a machine with a device and without a package index: a folder below 60 MiB, in build/gpu-kit.
gpu-kit: $(INSTALLED)
	$(BIN)/python benchmarks/gpu/kit.py

clean:
	rm -rf $(VENV) .versions .mypy_cache .pytest_cache .ruff_cache .faults .import_linter_cache .hypothesis .benchmarks

# Everything comes from pyproject.toml, at the versions of constraints.txt.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "perfkit needs Python 3.11 or later; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
