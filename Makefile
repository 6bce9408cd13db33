# `make help` lists what can be done.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export PATH := $(HOME)/.cargo/bin:$(PATH)

PORT ?= 5672
DATA ?= data
SEEDS ?= 1000
SOAK_SECONDS ?= 3600
FUZZ_SECONDS ?= 60
ROUNDS ?= 200
SCALE ?= 1.0
SEED ?= 1
SHARDS ?= 1
FAILING ?= 4
EXPERIMENTS ?= --scale 0.05 --rounds 2
FILTERS ?= --scale 0.2 --rounds 3
CARGO_FUZZ_VERSION := 0.13.2

# One program at a time, with the features that the workspace as a whole needs of its dependencies: what one program's build
# left is then good for the next one.
BUILD := cargo build --release --workspace --bin

.PHONY: help install run release test check bench bench-agree bench-backlog bench-curves bench-endurance bench-filters experiments experiment-filters costs instructions instructions-core instructions-filters sim kill-test locality compare-management numa-test network-test soak fuzz clean-data clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "Variables: PORT=$(PORT) DATA=$(DATA) SEEDS=$(SEEDS) SOAK_SECONDS=$(SOAK_SECONDS) FUZZ_SECONDS=$(FUZZ_SECONDS)"
	@echo "           ROUNDS=$(ROUNDS) SEED=$(SEED) SHARDS=$(SHARDS) FAILING=$(FAILING)"

install: ## Install what building needs, if it is missing
	@.ci/install rust c hwloc

release: install ## Build the binary: target/release/lepus
	@$(BUILD) lepus

run: release ## Build and start the broker on PORT with the data directory DATA
	@mkdir -p $(DATA)
	@echo "Clients connect to amqp://guest:guest@localhost:$(PORT)/ once it is ready; Ctrl-C stops it."
	@exec target/release/lepus serve --port $(PORT) --data $(DATA)

test: install ## Everything that must pass before a change lands, in sections
	@CARGO_INCREMENTAL=0 cargo xtask check

check: install ## Only the fast sections: format, lint, tidy, unit
	@cargo xtask check format lint tidy unit

bench: release ## Measure against RabbitMQ, LavinMQ (LAVINMQ=PATH), NATS and the null broker; tables here, report in build/bench
	@.ci/install bench
	@$(BUILD) lepus-bench
	@target/release/lepus-bench run $(BENCH)
	@target/release/lepus-bench management $(MANAGEMENT)

bench-backlog: release ## Experiment E2: backlogs on disk, beside RabbitMQ and LavinMQ; ROWS=NAME,… SCALE=1.0
	@.ci/install bench
	@$(BUILD) lepus-bench --quiet
	@target/release/lepus-bench backlog --rows '$(ROWS)' --scale $(SCALE) $(BENCH)

bench-curves: release ## CPU of an operation by the size of things, beside the peers; BENCH='--curves NAME,… --largest 1000000'
	@.ci/install bench
	@$(BUILD) lepus-bench --quiet
	@target/release/lepus-bench curves $(BENCH)

bench-endurance: release ## Ten minutes of publishing and consuming above a backlog of 5 GB
	@$(BUILD) lepus-bench --quiet
	@target/release/lepus-bench endurance $(BENCH)

bench-filters: release ## Content filters beside Apache Qpid's broker, Apache Artemis, RabbitMQ's headers exchange and a-tree; BENCH='--counts 100,1000'
	@.ci/install bench qpid artemis a-tree
	@$(BUILD) lepus-bench --quiet
	@target/release/lepus-bench filters $(BENCH)

experiments: release ## The six experiments, small, beside RabbitMQ when it is installed; reports in build/experiments
	@.ci/install chromium
	@tests/reports/run $(EXPERIMENTS)

experiment-filters: install ## The experiment of filters with those that are compiled to machine code, which no other build has; FILTERS='--scale 1'
	@cargo test --quiet --package lepus-compiled --package lepus-experiment --features lepus-experiment/compiled --lib -- filters:: condition:: program::
	@cargo build --release --workspace --features lepus-experiment/compiled --example experiment
	@target/release/examples/experiment filters --output build/experiments/compiled $(FILTERS)

bench-agree: release ## Whether lepus perf and the reference tester measure the same, on lepus or BENCH='--broker rabbitmq'
	@.ci/install bench
	@$(BUILD) lepus-bench --quiet
	@target/release/lepus-bench agree $(BENCH)

costs: release ## Count system calls and allocations per message
	@cargo build --release --package lepus-server --features count-allocations --target-dir target/counting
	@$(BUILD) lepus-bench
	@target/release/lepus-bench costs $(BENCH)

instructions: instructions-core ## Count instructions per message in the core, and of up to 1,000 content filters, and compare with the recorded ceilings
	@cargo run --release --quiet --package lepus-filter --example measure -- instructions bench/filters.txt few

instructions-core: install ## The core alone
	@.ci/install valgrind
	@$(BUILD) lepus-bench --quiet
	@target/release/lepus-bench instructions

instructions-filters: install ## Content filters alone, in sets of up to 100,000 (three minutes)
	@.ci/install valgrind
	@cargo run --release --quiet --package lepus-filter --example measure -- instructions bench/filters.txt

sim: install ## Run SEEDS seeds of the simulator, and as many of which every second is under strain
	@$(BUILD) lepus-sim --quiet
	@target/release/lepus-sim --seeds $(SEEDS)
	@target/release/lepus-sim --seed 1000000 --seeds $(SEEDS)

kill-test: release ## Kill the broker under load ROUNDS times, its disk failing in one of FAILING, and check what it promised; SEED, SHARDS, FLAGS
	@$(BUILD) lepus-kill --quiet
	@target/release/lepus-kill --rounds $(ROUNDS) --seed $(SEED) --shards $(SHARDS) --failing $(FAILING) --flags '$(FLAGS)'

locality: release ## Count how many messages stay on their shard: experiments E1 and E4, a hot queue and a crowded shard that are spread
	@tests/locality/run

compare-management: release ## Ask RabbitMQ and lepus the same over the management API and compare the answers
	@tests/management/run

numa-test: release ## Boot a kernel with several memory nodes in an emulator and check where threads and memory are
	@.ci/install numa
	@tests/numa/run $(MACHINES)

network-test: release ## Read through a small buffer in network namespaces with packets of several sizes; takes root
	@.ci/install network
	@tests/network/run

soak: release ## Real clients while everything moves, clients and tools of the management API, instructions of filters, compiled filters, ten million verdicts of filters held against a naive evaluator, the reference load tester for a minute per workload, then new simulator seeds for SOAK_SECONDS
	@RESTLESS=1 SHARDS='2 3' tests/e2e/run
	@tests/management/suites rabbit-hole rust
	@tests/management/tools ansible telegraf flower grafana rabbitmqadmin rabbitmqadmin-ng replayed
	@$(MAKE) --no-print-directory instructions-filters
	@$(MAKE) --no-print-directory experiment-filters FILTERS='--scale 0.01 --rounds 1'
	@seed=$$(date +%s); echo "LEPUS_FILTER_SEED=$$seed"; LEPUS_FILTER_PAIRS=10000000 LEPUS_FILTER_SEED=$$seed \
	    cargo test --release -p lepus-filter --test behaviour every_verdict
	@SHARDS=1 tests/e2e/perf-test 60
	@SHARDS=2 tests/e2e/perf-test 60
	@$(BUILD) lepus-sim --quiet
	@target/release/lepus-sim --seconds $(SOAK_SECONDS)

fuzz: install ## Fuzz each target for FUZZ_SECONDS
	@.ci/install fuzz $(CARGO_FUZZ_VERSION)
	@mkdir -p fuzz/corpus && tar -xzf fuzz/corpus.tar.gz -C fuzz/corpus --skip-old-files
	@cd fuzz && for target in $$(cargo +nightly fuzz list); do \
	    echo "=== fuzz $$target ==="; mkdir -p corpus/$$target; \
	    cargo +nightly fuzz run $$target corpus/$$target seeds/$$target \
	        -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

clean-data: ## Delete the data directory DATA
	rm -rf -- "$(DATA)"

clean: ## Delete what was built
	cargo clean
	rm -rf build
