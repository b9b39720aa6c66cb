# Needs Go and a POSIX shell, nothing else; GNU make 3.81 and later.

GO       ?= go
PKG      ?= ./...
ARGS     ?=
FUZZTIME ?= 20s

# The linter is pinned because a newer one finds new things, and that should not break an old commit.
# A binary of just this version in PATH saves compiling it.
GOLANGCI_VERSION := 2.15.0
GOLANGCI = $$(golangci-lint version 2>/dev/null | grep -q 'version v\{0,1\}$(GOLANGCI_VERSION) ' && echo golangci-lint || \
    echo $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(GOLANGCI_VERSION))

# "./..." of the go command ends where another module begins; a path of import goes through all modules of the workspace.
MODULE   := github.com/gorm-fanout/fanout
PACKAGES  = $(patsubst ./%,$(MODULE)/%,$(patsubst .,$(MODULE),$(PKG)))

# Without paths of this clone in programs, another clone finds them, and the results of unchanged packages, in Go's cache.
export GOFLAGS += -trimpath

# These need a newer Go than the library, which Go fetches where it is not there, and stand beside the workspace.
BESIDE   := GOWORK=off GOTOOLCHAIN=auto

BUILD       := .build
WITHSERVERS := $(BUILD)/withservers
TESTREPORT  := $(BUILD)/testreport

.DEFAULT_GOAL := help
.PHONY: help test race test-all cover allocations chaos bench overload bench-short bench-commit fuzz lint fmt tidy tidy-check footprint demo ci FORCE

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  PKG=./outbox/...      only these packages (test, test-all, cover, fuzz)'
	@echo '  ARGS="-run TestClaim" more arguments (test, test-all, cover, demo, bench); -v shows all output'
	@echo '  FANOUT_TEST_POSTGRES=postgres://... FANOUT_TEST_REDIS=redis://...  test with these servers'
	@echo '  FANOUT_TEST_TOXIPROXY=http://127.0.0.1:8474  do not build and start a toxiproxy'
	@echo '  FANOUT_TEST_MYSQL="user:password@tcp(127.0.0.1:3306)/"  test with this MySQL or MariaDB'
	@echo '  FANOUT_TEST_RABBITMQ=amqp://user:password@127.0.0.1:5672/  test with this RabbitMQ (3.10 or later)'
	@echo '  FANOUT_TEST_KAFKA=127.0.0.1:9092 FANOUT_TEST_PUBSUB=127.0.0.1:8085  test with this Kafka and this emulator, too, and not with fakes alone'
	@echo '  FANOUT_TEST_POSTGRES_VERSIONS="14 16 18"  the versions that test-all runs with beside the usual one; "none"'
	@echo '  FANOUT_TEST_SQLSERVER=sqlserver://...  test the SQL Server store too'
	@echo '  FANOUT_TEST_SEED=7    other random choices than those of make test, or those of a make test-all again'
	@echo '  FANOUT_TEST_INSTALL=0 never install or fetch a missing server'

# Built, not run with go run, which would turn every exit code into 1 and keep signals to itself.
$(WITHSERVERS): FORCE
	@$(GO) build -o $@ ./internal/testservers/cmd/withservers

$(TESTREPORT): FORCE
	@$(GO) build -o $@ ./internal/testreport

FORCE:

# Tests that exist in a short version and in one that takes minutes, or only in that.
LONG := TestConformanceOfExecModes|TestConformanceOfSessions|TestPlans|TestMillionFollowers|TestRollingUpgrade|TestOrderUnderFire|TestRig|TestOverload|TestIsolation|TestEightBrokersThreeDown|TestPauseAndResume|TestBroken|TestAccessibility
LONG_PACKAGES := $(MODULE)/outbox/postgres $(MODULE)/outbox/mysql $(MODULE)/integration/...

# What go test cannot see of the packages that build programs of others: a sum over all files of ours but documents. Without it, it would
# take their results from its cache.
TREE = $$(find . \( -name .git -o -name $(BUILD) -o -name rapid -o -name '*.md' \) -prune -o -type f -exec cksum {} + | LC_ALL=C sort | cksum | tr -d ' ')

# The pages that tests read, and the code in them, at paths that tell what is in each, for the same reason: see testenv.Page.
DOCS = dir=$${XDG_CACHE_HOME:-$$HOME/.cache}/fanout-test/docs; mkdir -p "$$dir"; \
	keep() { file="$$dir/$$(cksum <"$$2" | tr ' ' -).md"; [ -f "$$file" ] || mv "$$2" "$$file"; rm -f "$$2"; export "$$1=$$file"; }; \
	for page in docs/*.md; do \
	    name=$$(basename "$$page" .md | tr - _); \
	    cp "$$page" "$$dir/$$$$" && keep "FANOUT_TEST_PAGE_$$name" "$$dir/$$$$"; \
	    awk '/^```/ { inside = !inside; print; next } inside' "$$page" >"$$dir/$$$$" && keep "FANOUT_TEST_CODE_$$name" "$$dir/$$$$"; \
	done

# Packages are tested in the order in which they are named: those that take longest first, so that none is left alone at the end, and
# those that wait for their server rather than for a processor beside those that do not.
SLOWEST := outbox/postgres brokers/nats/natsconsumer integration brokers/rabbitmq gormplugin brokers/redisstreams/redisconsumer internal/testservers \
    outbox/mysql brokers/gcppubsub/pubsubconsumer outbox/relay brokers/redisstreams internal/explore brokers/kafka/kafkaconsumer brokers/rabbitmq/rabbitmqconsumer \
    integration/chaos inbox integration/browser fanoutvet
FIRST    = $(if $(filter ./...,$(PKG)),$(addprefix $(MODULE)/,$(SLOWEST)))

# Results of unchanged packages come from the cache of go test, of whose key the variables are a part that a test reads, and which
# -shuffle turns off. FANOUT_TEST_REQUIRE turns a test that misses its server into a failure: a run is complete or red. With
# FANOUT_TEST_SPREAD each case that is about no database runs on one of them; test-all runs them all on all.
# The linters vet. UNRACED=1, for .ci/run, leaves out the packages whose tests make race runs, all but those that count allocations.
QUICK = FANOUT_TEST_REQUIRE=1 FANOUT_TEST_FSYNC=off FANOUT_TEST_SPREAD=$${FANOUT_TEST_SPREAD-1} FANOUT_TEST_SEED=$${FANOUT_TEST_SEED:-1} FANOUT_TEST_TREE=$(TREE)
test: $(WITHSERVERS) $(TESTREPORT) ## Run the tests, in minutes, with PostgreSQL, MySQL or MariaDB, Redis, RabbitMQ and toxiproxy found or started
	@$(DOCS); export $(QUICK); \
	echo "make test: FANOUT_TEST_SEED=$$FANOUT_TEST_SEED; each package gets a line when it has ended, the slowest are begun first"; \
	tested="$(FIRST) $(PACKAGES)"; \
	if [ -n '$(UNRACED)' ] && $(RACES); then tested=$$($(GO) list $$tested | grep -vxF "$(RACED)") || exit; fi; \
	exec $(WITHSERVERS) -- $(TESTREPORT) $(GO) test -p=5 -vet=off -timeout=20m $(ARGS) $$tested

# Packages with goroutines of ours: found by their statements. Suites and what runs programs of others are not among them.
RACY = $$(grep -rlE --include='*.go' --exclude='*_test.go' --exclude-dir='testdata' '(^|[^"./a-zA-Z_-])go (func|[a-zA-Z.]+\()|\.Go\(' . | \
    xargs -n1 dirname | sort -u | grep -vE '^\./(benchmarks|deploy|examples|integration|fanoutvet|internal/testservers|.*test)(/|$$)' | sed 's|^\.|$(MODULE)|')
# Of the stores' suite make race runs what calls a store from several goroutines; the rest is make test's.
RACED = $$(echo "$(RACY)" | grep -vE '/outbox/(mysql|sqlite)$$')
RACEFLAGS := -race -gcflags=modernc.org/...=-race=false
RACES     := $(GO) build -race runtime/cgo >/dev/null 2>&1
race: $(WITHSERVERS) $(TESTREPORT) ## Run the tests of packages that have goroutines with the race detector (-short)
	@$(RACES) || { echo 'make race: skipped: the race detector needs cgo and a C compiler' >&2; exit 0; }; \
	$(DOCS); export $(QUICK); racy="$(RACY)"; \
	first=$$(printf '%s\n' $(addprefix $(MODULE)/,outbox/relay $(SLOWEST)) | grep -xF "$$racy"); \
	exec $(WITHSERVERS) -- $(TESTREPORT) $(GO) test -p=4 $(RACEFLAGS) -vet=off -short -timeout=20m $(ARGS) $$first $$racy

# SQLite is C that was translated to Go: watching its memory, too, takes ten times as long and tells nothing about ours. Explorations,
# which make test goes through in full, are shorter under the race detector (-short). Alert rules and the dashboard need the Go of
# Prometheus' libraries, and are tested where everything is. A stage that fails does not keep the others from running; a signal does.
POSTGRES_PACKAGES := $(MODULE)/outbox/postgres $(MODULE)/gormplugin $(MODULE)/inbox $(MODULE)/integration
RECORDS           := $(CURDIR)/$(BUILD)/records
test-all: $(WITHSERVERS) $(TESTREPORT) ## Run the tests with the race detector, in another order each time, then those that take minutes, and on other servers and versions
	@race='$(RACEFLAGS)'; \
	$(RACES) || { \
	    race=; echo 'make test-all: the race detector needs cgo and a C compiler: running WITHOUT it' >&2; }; \
	export FANOUT_TEST_REQUIRE=1 FANOUT_TEST_FSYNC=off FANOUT_TEST_SEED=$${FANOUT_TEST_SEED:-$$(date +%s)} FANOUT_TEST_RECORD=$(RECORDS); \
	echo "make test-all: FANOUT_TEST_SEED=$$FANOUT_TEST_SEED"; \
	rm -f $(RECORDS); failed=0; \
	stage() { "$$@" || { failed=$$?; [ $$failed -lt 128 ] || exit $$failed; }; }; \
	stage $(WITHSERVERS) -optional -- $(TESTREPORT) $(GO) test $$race -vet=off -short -shuffle=on -timeout=20m $(ARGS) $(PACKAGES); \
	if [ '$(PKG)' = './...' ]; then \
	    stage env FANOUT_TEST_LONG=1 $(WITHSERVERS) -optional -- $(TESTREPORT) $(GO) test -vet=off -count=1 -timeout=30m -run='^($(LONG))$$' $(ARGS) $(LONG_PACKAGES); \
	    stage $(WITHSERVERS) -each-postgres -- env FANOUT_TEST_REQUIRE= FANOUT_TEST_MYSQL= \
	        $(TESTREPORT) $(GO) test -vet=off -count=1 -timeout=30m $(ARGS) $(POSTGRES_PACKAGES); \
	    stage env $(BESIDE) $(TESTREPORT) $(GO) -C deploy test -timeout=10m $(ARGS) ./...; \
	    [ -n '$(ARGS)' ] || stage $(TESTREPORT) -tested-with $(RECORDS) docs/tested-with.json docs/tested.md; \
	fi; exit $$failed

cover: $(WITHSERVERS) ## Run all tests and measure what they cover, across packages
	@FANOUT_TEST_REQUIRE=1 $(WITHSERVERS) -- \
	    $(GO) test -timeout=20m -coverpkg=$(MODULE)/... -coverprofile=$(BUILD)/cover.out $(ARGS) $(PACKAGES)
	@$(GO) tool cover -func=$(BUILD)/cover.out | tail -n 1
	@echo 'line by line: $(GO) tool cover -html=$(BUILD)/cover.out'

COUNTING = $$(grep -rlE --include='*_test.go' 'func Test[a-zA-Z]*Allocations' . | xargs -n1 dirname | sort -u | sed 's|^\.|$(MODULE)|')
allocations: $(TESTREPORT) ## Run the tests that count allocations, of which the race detector makes more
	@counting="$(COUNTING)"; [ -z '$(UNRACED)' ] || counting=$$(echo "$$counting" | grep -xF "$(RACED)"); \
	exec $(TESTREPORT) $(GO) test -run=Allocations -vet=off $(ARGS) $$counting

chaos: $(WITHSERVERS) ## Kill, stop and cut everything and compare: make chaos ARGS="--for 20m --seed 7" (docs/reliability.md)
	@$(GO) build -o $(BUILD)/chaos ./integration/chaos/cmd/chaos
	@exec $(WITHSERVERS) -kafka -- $(BUILD)/chaos $(ARGS)

bench-commit: $(WITHSERVERS) ## Compare what a commit costs with the plugin and without it (a minute)
	@FANOUT_TEST_REQUIRE=1 $(WITHSERVERS) -- \
	    $(GO) test -run='^$$' -bench=CommitPath -benchtime=500x -count=3 -timeout=20m $(ARGS) ./gormplugin

bench: $(WITHSERVERS) ## Run a benchmark: make bench ARGS="claims", see benchmarks/README.md
	@$(BESIDE) $(GO) -C benchmarks build -o ../$(BUILD)/bench ./cmd/bench
	@exec $(WITHSERVERS) -- $(BUILD)/bench $(ARGS)

overload: $(WITHSERVERS) ## Let producers outrun the drain for five minutes
	@FANOUT_TEST_OVERLOAD=5m FANOUT_TEST_REQUIRE=1 $(WITHSERVERS) -- \
	    $(GO) test -run=TestOverload -count=1 -v -timeout=40m $(ARGS) ./integration

bench-short: $(WITHSERVERS) ## Test the benchmarks' harness in small sizes
	@FANOUT_TEST_REQUIRE=1 $(WITHSERVERS) -- env $(BESIDE) $(GO) -C benchmarks test -count=1 -timeout=5m ./...

fuzz: ## Run each fuzz target for FUZZTIME (20s)
	@list=$$($(GO) test -list '^Fuzz' $(PACKAGES)) || { echo "$$list"; exit 1; }; \
	echo "$$list" | awk '/^Fuzz/ { names[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, names[i]; n = 0 }' | \
	while read -r package target; do \
	    echo "== $$package $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package" </dev/null || exit 1; \
	done

# fanoutvet looks for what this repository warns its users of, examples and tests included.
lint: ## Run the linters
	@$(GO) build -o $(BUILD)/fanoutvet ./fanoutvet/cmd/fanoutvet && $(GO) vet -vettool=$$PWD/$(BUILD)/fanoutvet work
	@$(GOLANGCI) run $$($(GO) list -m | sed 's#^$(MODULE)#.#; s#$$#/...#')
	@cd benchmarks && GOWORK=off $(GOLANGCI) run
	@cd deploy && GOWORK=off $(GOLANGCI) run

fmt: ## Format the Go files
	@$(GOLANGCI) fmt

tidy: ## Write into each go.mod and go.sum what the code needs, where go mod tidy cannot: modules that are not published; and the licenses of what the command links
	@.ci/tidy && .ci/notices

tidy-check: ## Check that go.mod and go.sum hold what the code needs, and nothing else, and notices.txt the licenses of it
	@.ci/tidy --check && .ci/notices --check

footprint: ## Count the modules that a service has which only writes
	@.ci/footprint

demo: ## Show the whole outbox at work, with nothing installed
	@$(GO) run ./demo $(ARGS)

ci: ## Do what the continuous integration does: lint, test, race, demo, tidy-check, footprint, .ci/skew
	@.ci/run
