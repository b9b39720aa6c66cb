# Needs Go and a POSIX shell. "make" lists the targets.

GO   ?= go
PKG  ?= ./...
ARGS ?=

# A newer linter finds new things, which must not fail an old commit. This version in PATH saves compiling it.
GOLANGCI_VERSION := 2.15.0
GOLANGCI = $$(golangci-lint version 2>/dev/null | grep -q 'version v\{0,1\}$(GOLANGCI_VERSION) ' && echo golangci-lint || \
    echo $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(GOLANGCI_VERSION))

# "./..." ends where another module begins: EVERY names the packages of all modules in go.work.
EVERY = $(if $(filter ./...,$(PKG)),$$($(GO) list -m -f '{{.Path}}/...'),$(PKG))
# benchmarks and deploy need a newer Go than the library, so they stay outside the workspace.
BESIDE := GOWORK=off GOTOOLCHAIN=auto

# No result comes from the cache, and each run has a new seed. Tests wait for servers more than they compute, so
# twice as many run at a time as there are cores. The linters vet. SHORT leaves out tests that take seconds.
CORES   := $(shell getconf _NPROCESSORS_ONLN)
BUILD   := .build
SERVERS := all
WITH     = FANOUT_TEST_FSYNC=off $(BUILD)/withservers -with $(SERVERS) --
TEST     = FANOUT_TEST_SEED=$${FANOUT_TEST_SEED:-$$(date +%s)} $(WITH) $(BUILD)/testreport $(GO) test -count=1 -vet=off -timeout=20m -p=$(CORES) -parallel=$$((2 * $(CORES))) $(SHORT) $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help tools test test-modules race test-all test-long test-versions test-deploy some mutants chaos bench bench-short lint fmt tidy demo ci

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  PKG=./outbox/... ARGS="-run TestClaim -v"          only these packages, with more arguments'
	@echo '  FANOUT_TEST_SEED=7                                 repeat the random choices of a run'
	@echo '  FANOUT_TEST_POSTGRES=... FANOUT_TEST_REDIS=...     test with these servers (CONTRIBUTING.md has all variables)'
	@echo '  FANOUT_TEST_INSTALL=0                              never install a missing server'

# Built, because go run turns every exit code into 1 and keeps signals to itself.
tools:
	@$(GO) build -o $(BUILD)/ ./internal/testservers/cmd/withservers ./internal/testreport

test: export GOWORK = off
test: SERVERS = postgres,redis
test: SHORT = $(if $(filter ./...,$(PKG)),-short)
test: some ## Test the library on SQLite, PostgreSQL and Redis

some: tools
	@$(TEST) $(PKG)

test-modules: tools ## Test every module on every server; a missing server is a failure
	@FANOUT_TEST_REQUIRE=1 $(TEST) $(EVERY)

# The engines that start goroutines. SQLite is C translated to Go: watching its memory takes ten times as long and shows nothing of ours.
RACY := ./brokers/adapter ./brokers/memory ./brokers/webhook ./cleanup ./inbox/consumer ./internal/wakeup ./monitor ./outbox/relay ./uow
race: SERVERS = postgres,redis
race: SHORT = -short
race: tools ## Test the packages that start goroutines with the race detector, in short
	@$(TEST) -race -gcflags=modernc.org/...=-race=false $(if $(filter ./...,$(PKG)),$(RACY),$(PKG))

test-all: lint test-long test-versions test-deploy bench-short ## Run what takes minutes; make -k test-all goes on after a failure

test-long: export FANOUT_TEST_LONG = 1
test-long: test-modules

VERSIONS ?= 14 18
test-versions: $(VERSIONS:%=test-postgres-%)
test-postgres-%: tools
	@$(MAKE) --no-print-directory some SERVERS=postgres$*,redis PKG='./outbox/postgres ./gormplugin ./inbox'

test-deploy: tools
	@$(BESIDE) $(BUILD)/testreport $(GO) -C deploy test -count=1 $(ARGS) ./...

mutants: tools ## Plant known defects and see the tests fail: make mutants ARGS=relay (an hour for all)
	@$(WITH) $(GO) run ./integration/mutants $(ARGS)

chaos: tools ## Kill, stop and cut everything, then compare: make chaos ARGS="--for 20m --seed 7" (docs/reliability.md)
	@$(GO) build -o $(BUILD)/chaos ./integration/chaos/cmd/chaos
	@$(WITH) $(BUILD)/chaos $(ARGS)

bench: tools ## Run a benchmark: make bench ARGS=drain (benchmarks/README.md)
	@$(BESIDE) $(GO) -C benchmarks build -o ../$(BUILD)/bench ./cmd/bench
	@FANOUT_TEST_FSYNC= $(WITH) $(BUILD)/bench $(ARGS)

bench-short: tools
	@$(WITH) env $(BESIDE) $(GO) -C benchmarks test -count=1 ./...

lint: ## Run the linters; ARGS=--tests=false leaves out the tests, which take most of the time
	@$(GOLANGCI) run $(ARGS) $$($(GO) list -m -f '{{.Dir}}/...')
	@for module in benchmarks deploy; do (cd $$module && GOWORK=off $(GOLANGCI) run $(ARGS)) || exit; done

fmt: ## Format the Go files
	@$(GOLANGCI) fmt

tidy: ## Write go.mod, go.sum and the licenses that the command prints
	@.ci/tidy && .ci/notices

demo: ## Show the whole outbox at work, with nothing installed
	@$(GO) run ./demo $(ARGS)

ci: ## Run everything that a change has to pass
	@.ci/run
