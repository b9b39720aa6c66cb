package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/benchmarks/internal/scenario"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

func TestMain(m *testing.M) {
	if os.Getenv(scenario.ChildVariable) != "" {
		os.Exit(child())
	}
	// A dependency of Google's client libraries starts it as it is linked.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// Every scenario runs to its end in small sizes, fills in every figure in every run, and judges no
// time. The scenarios themselves fail when a row is lost, out of order or not deferred.
func TestShort(t *testing.T) {
	t.Setenv(testservers.PostgresVariable, testenv.Postgres(t))
	for scenario, figures := range map[string][]string{
		"claims": {
			"1 key: p50 small", "1 key: p99 large", "1 key: p99 ratio", "1 key: peak heap ratio", "100 keys: p50 ratio", "100 keys: p99 ratio",
		},
		"idle-transaction": {
			"whole run: p50 without", "whole run: p50 with", "whole run: p50 ratio", "last third: p50 with", "last third: p50 ratio",
			"after: delivered with", "after: dead after VACUUM with",
		},
		"hung": {"latency: p50 without", "latency: p50 with", "latency: p50 ratio", "latency: p99 ratio", "drain: without", "drain: with", "drain: time ratio"},
		"drain": {
			"by hand, outbox table, 1 worker: rate", "by hand, minimal table, 2 workers: rate", "by hand, outbox table, 2 workers: of the limit",
			"fanout, 1 key: of the limit", "fanout, 100 keys: of the limit", "fanout, 100 keys: of the minimal table's limit",
			"fanout, unordered: of the minimal table's limit", "by hand, outbox table, 1 worker: of the minimal table's limit", "fanout, 100 keys: times row by row", "fanout, hot key: of the limit",
			"fanout, unordered: of the limit", "fanout, unordered: log", "fanout, unordered: round trips", "row by row: rate",
			"river, tuned: rate", "river, default: rate", "watermill, tuned: rate", "watermill, tuned, 4 topics: rate", "watermill, default: log",
			"fanout, 100 keys: times river, tuned", "fanout, hot key: times watermill, tuned",
		},
		"latency": {
			"fanout, same process: p50", "fanout, same process: p99 against by hand", "fanout, another process, polling: p50",
			"by hand, LISTEN and claim, another process: p99", "river, tuned: p50", "river, default: p99", "watermill, tuned: p50", "watermill, default: p99",
		},
		"workers": {
			"at hand, 1 worker: rate", "at hand, 2 workers: of two workers", "at hand, 2 workers: log", "Redis 1ms away, 1 worker: round trips",
			"Redis 1ms away, 2 workers: rate", "PostgreSQL 1ms away, 1 worker: of two workers", "PostgreSQL 1ms away, 2 workers: rate",
		},
		"followers": {
			"claim before: p50", "claim before: index entries read", "deferring: calls of Defer", "deferring: WAL per row deferred",
			"claim meanwhile: index entries read", "claim afterwards: pages looked at", "coming back: until the last",
		},
		"waiting": {
			"scheduled, each with a key: until four others came", "scheduled, without keys: others: p50", "one head and its followers: others: slowest",
		},
		"fanout": {
			"commit, plain GORM: rate", "commit, 1 broker: p50", "commit, 3 brokers: log", "commit, 3 brokers: rate, of plain GORM",
			"drain, 1 broker: deliveries", "drain, 3 brokers: events", "drain, 3 brokers: log", "drain, 3 brokers: deliveries, times 1 broker",
		},
		"payload": {
			"100 B: rate", "100 B: log", "100 B: out of line", "10000 B: payload", "10000 B: table, after", "10000 B: peak heap", "10000 B: peak live heap",
		},
		"purge": {
			"without: drain", "without: claim p99", "forced: purged meanwhile", "forced: drain, of the rate without", "forced: batch of the purge, p99",
			"forced: slowest claim, times the p99 without", "giving way: drain, of the rate without", "giving way: whole purge",
		},
		"partition": {
			"exchange of 5: p99 ratio", "exchange of 1: p50 by day", "commit of a message: p50 ratio", "purge of a day, one table: took", "purge of a day, by day: writers: p99 without",
		},
		"idle":   {"1 broker: statements of each broker", "3 brokers: of which pings", "3 brokers: CPU of the process", "3 brokers: peak heap"},
		"memory": {"backlog of 200: peak heap", "backlog of 1000: peak live heap, of the small backlog", "producer outruns: backlog at the end"},
		"pages": {
			"overview: p50", "message: p99", "blocked: p99", "audit: max", "list processing: p50", "list pending, a key: p99", "list failed, 500: p99",
			"list published, deep: p99", "list abandoned, none matches: p50",
		},
		"inbox": {
			"1 worker: inbox.Handle: rate", "1 worker: inbox.Handle: of by hand, GORM", "1 worker: by hand, GORM: p50", "4 workers: inbox.Handle: of by hand, database/sql",
			"4 workers: by hand, database/sql: log",
		},
		"drain --broker rabbitmq": {"by hand, outbox table, 1 worker: rate", "fanout, 1 key: rate", "fanout, unordered: of the limit"},
		"drain --broker nats":     {"by hand, outbox table, 2 workers: rate", "fanout, 1 key: rate", "fanout, hot key: of the limit"},
		"drain --broker kafka":    {"by hand, outbox table, 2 workers: rate", "fanout, 1 key: rate", "fanout, 100 keys: of the limit"},
		"mysql":                   {"by hand: rate", "ordered: of the loop by hand", "ordered: redo log", "unordered: rate"},
		"mysql-claims":            {"size: p50 small", "size: p99 ratio", "transaction: p50 without", "transaction: p50 ratio"},
		"priorities":              {"PostgreSQL, 24 keys, 0 % low: rate", "PostgreSQL, 24 keys, 20 % low: of the rate without", "MySQL, 24 keys, 20 % low: of the rate without"},
		"commit":                  {"postgres: event/by-hand", "postgres: no-event/plain", "sqlite: other-model/plain", "discard: event"},
	} {
		t.Run(scenario, func(t *testing.T) {
			if !slices.Contains([]string{"claims", "idle-transaction", "hung", "followers", "pages", "commit", "inbox", "partition"}, scenario) {
				t.Setenv(testservers.RedisVariable, testenv.Redis(t))
			}
			if strings.HasSuffix(scenario, "rabbitmq") {
				t.Setenv(testservers.RabbitMQVariable, testenv.RabbitMQ(t))
			}
			runs := 2
			if slices.Contains([]string{"idle-transaction", "hung", "purge", "commit"}, scenario) { // it takes its time
				runs = 1
			}
			path := filepath.Join(t.TempDir(), "report.json")
			var stdout, stderr bytes.Buffer
			require.Equal(t, exitDone, run(append(strings.Fields(scenario), "--short", fmt.Sprintf("--runs=%d", runs), "--seed=7", "--json="+path), &stdout, &stderr), stderr.String())
			encoded, err := os.ReadFile(path)
			require.NoError(t, err)
			var r report.Report
			require.NoError(t, json.Unmarshal(encoded, &r))
			assert.True(t, r.Short)
			assert.Equal(t, uint64(7), r.Seed)
			switch scenario {
			case "commit": // its child knows it
			case "mysql", "mysql-claims":
				assert.NotEmpty(t, r.Servers["MySQL"])
			default:
				assert.NotEmpty(t, r.Servers["PostgreSQL"])
			}
			found := map[string]bool{}
			for _, figure := range r.Figures {
				name := figure.Case + ": " + figure.Name
				found[name] = true
				assert.Equal(t, strings.Fields(scenario)[0], figure.Scenario, name)
				assert.Len(t, figure.Runs, runs, name)
				assert.Nil(t, figure.Met, name)
				assert.Contains(t, stdout.String(), figure.Name)
			}
			for _, name := range figures {
				assert.Contains(t, found, name)
			}
		})
	}
}

// The table of targets has a line for each of them, in the text and as JSON.
func TestTargets(t *testing.T) {
	t.Setenv(testservers.PostgresVariable, testenv.Postgres(t))
	t.Setenv(testservers.RedisVariable, testenv.Redis(t))
	path := filepath.Join(t.TempDir(), "report.json")
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitDone, run([]string{"targets", "--short", "--runs=1", "--json=" + path}, &stdout, &stderr), stderr.String())
	encoded, err := os.ReadFile(path)
	require.NoError(t, err)
	var r report.Report
	require.NoError(t, json.Unmarshal(encoded, &r))
	measured := map[string]int{}
	for _, v := range r.Targets {
		assert.Nil(t, v.Met, "a short run judges nothing")
		assert.Contains(t, stdout.String(), v.Figure)
		if v.Wanted != "" {
			measured[v.Target]++
		}
	}
	for _, target := range []string{"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11"} {
		assert.NotZero(t, measured[target], target)
	}
}

// Profiles and charts that were asked for are written, and a file that cannot be is told before
// anything is measured.
func TestProfiles(t *testing.T) {
	t.Setenv(testservers.PostgresVariable, testenv.Postgres(t))
	t.Setenv(testservers.RedisVariable, testenv.Redis(t))
	cpu, memory := filepath.Join(t.TempDir(), "cpu"), filepath.Join(t.TempDir(), "memory")
	drawn := filepath.Join(t.TempDir(), "drain.png")
	var stdout, stderr bytes.Buffer
	args := []string{"drain", "--rows=100", "--only=unordered", "--runs=1"}
	require.Equal(t, exitDone, run(append(args, "--cpuprofile="+cpu, "--memprofile="+memory, "--chart="+drawn), &stdout, &stderr), stderr.String())
	for _, path := range []string{cpu, memory} {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, []byte{0x1f, 0x8b}, content[:2], "profiles are compressed by gzip")
	}
	require.FileExists(t, drawn)
	assert.Equal(t, exitFailed, run(append(args, "--cpuprofile="+filepath.Join(cpu, "file")), &stdout, &stderr))
	assert.Contains(t, stderr.String(), "bench: open "+cpu)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"flag":     {"claims", "--fast"},
		"argument": {"claims", "twice"},
		"scenario": {"magic"},
		"runs":     {"claims", "--runs=0"},
		// Sizes are refused before a server is looked for.
		"claims":           {"claims", "--small=1000"},
		"many runs":        {"claims", "--runs=1000"},
		"keys":             {"claims", "--keys=0"},
		"idle-transaction": {"idle-transaction", "--seconds=0"},
		"followers":        {"followers", "--rows=500"},
		"waiting":          {"waiting", "--others=0"},
		"drain":            {"drain", "--batch=0"},
		"parts of drain":   {"drain", "--rows=3"},
		"case of drain":    {"drain", "--only=by magic"},
		"fanout":           {"fanout", "--brokers=0"},
		"writers":          {"fanout", "--commits=3"},
		"payload":          {"payload", "--sizes=100,0"},
		"purge":            {"purge", "--published=5000"},
		"idle":             {"idle", "--seconds=1"},
		"memory":           {"memory", "--produce=100", "--deliver=100"},
		"pages":            {"pages", "--rows=1000"},
		"commit":           {"commit", "--rounds=0"},
		"inbox":            {"inbox", "--messages=1001"},
		"partition":        {"partition", "--days=2"},
		"chart of drain":   {"drain", "--chart=drain.pdf"},
		"latency":          {"latency", "--rate=0"},
		"case of latency":  {"latency", "--only=by magic"},
		"workers":          {"workers", "--workers=0"},
		"distance":         {"workers", "--redis=-1ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			assert.Equal(t, exitUsage, run(args, &stdout, &stderr))
			assert.Contains(t, stderr.String(), "bench: ")
			assert.Empty(t, stdout.String())
		})
	}
}
