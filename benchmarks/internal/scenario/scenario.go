// Package scenario holds the benchmarks of the project.
package scenario

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/benchmarks/internal/fixture"
	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/outbox"
)

// Options are common to all scenarios.
type Options struct {
	// Runs is how often everything is measured; the median counts.
	Runs int
	// Seed of every random choice.
	Seed uint64
	// Report gets the figures, Log the progress.
	Report *report.Report
	Log    io.Writer
}

// A Scenario is one benchmark in the sizes that its flags say.
type Scenario interface {
	// Run measures. Whatever it creates on servers is removed when it returns.
	Run(ctx context.Context, o *Options) error
}

// Entry is a scenario by name.
type Entry struct {
	Name string
	// Answers is the question that the scenario answers.
	Answers string
	// New registers the flags of the scenario.
	New func(s *Sizes) Scenario
}

// All are the scenarios.
func All() []Entry {
	return []Entry{
		{"drain", "How fast does a backlog reach a broker, beside loops written by hand?", newDrain},
		{"latency", "How long does a message take from the commit to a consumer?", newLatency},
		{"commit", "What does the plugin cost a commit?", newCommit},
		{"claims", "What does the size of the table cost a claim?", newClaims},
		{"idle-transaction", "What does a forgotten transaction with a snapshot cost?", newIdleTransaction},
		{"openwriter", "What does a transaction cost that has written a message and stays open?", newOpenWriter},
		{"hung", "What does a broker that never answers cost the others?", newHung},
		{"purge", "What does a purge cost a drain, and what does a stuck row cost a purge?", newPurge},
		{"idle", "What does an engine with nothing to do cost?", newIdle},
		{"waiting", "How long do very many rows that wait hold up other keys?", newWaiting},
		{"followers", "What does a failed message with very many messages of its key behind it cost?", newFollowers},
		{"priorities", "What does a mixture of priorities cost a drain?", newPriorities},
		{"brokers", "What does one of many brokers cost, beside one alone?", newBrokers},
		{"bulk", "What do events cost a transaction that writes very many rows?", newBulk},
	}
}

// Targets are the goals of the project. Which figure belongs to which target is said where the
// figure is added.
func Targets() []report.Target {
	return []report.Target{
		{ID: "P1", What: "drain with order per key", Scenario: "drain"},
		{ID: "P2", What: "drain without order", Scenario: "drain"},
		{ID: "P3", What: "commit to broker in one process, 50 tx/s", Scenario: "latency"},
		{ID: "P4", What: "commit to broker through another process", Scenario: "latency"},
		{ID: "P5", What: "commit of a GORM transaction", Scenario: "commit"},
		{ID: "P6", What: "claim and completion: log and round trips", Scenario: "drain"},
		{ID: "P7", What: "ten million rows against 200,000", Scenario: "claims"},
		{ID: "P8", What: "a transaction left open for 90 s", Scenario: "idle-transaction"},
		{ID: "P9", What: "one of three brokers hangs", Scenario: "hung"},
		{ID: "P10", What: "purge of a million rows beside a drain", Scenario: "purge"},
		{ID: "P11", What: "nothing to do, a poll every 10 s", Scenario: "idle"},
	}
}

// Sizes registers the flags of a scenario.
type Sizes struct {
	Flags *flag.FlagSet
	// Short takes the small sizes.
	Short bool
}

func (s *Sizes) number(to *int, name string, full, small int, usage string) {
	if *to = full; s.Short {
		*to = small
	}
	s.Flags.Func(name, fmt.Sprintf("%s (default %d)", usage, *to), func(text string) (err error) {
		*to, err = positive(text)
		return err
	})
}

func (s *Sizes) numbers(to *[]int, name string, full, small []int, usage string) {
	if *to = full; s.Short {
		*to = small
	}
	s.Flags.Func(name, fmt.Sprintf("%s (default %v)", usage, *to), func(text string) (err error) {
		*to = nil
		for part := range strings.SplitSeq(text, ",") {
			n, err := positive(part)
			if err != nil {
				return err
			}
			*to = append(*to, n)
		}
		return nil
	})
}

func positive(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err == nil && n < 1 {
		err = errors.New("use at least 1")
	}
	return n, err
}

func (s *Sizes) duration(to *time.Duration, name string, full, small time.Duration, usage string) {
	if s.Short {
		full = small
	}
	s.Flags.DurationVar(to, name, full, usage)
}

func (s *Sizes) dialect(to *outbox.Dialect) {
	*to = outbox.Postgres
	s.Flags.Func("database", "postgres, mysql or sqlite (default postgres)", func(text string) error {
		if *to = outbox.Dialect(text); !slices.Contains(dialects(), *to) {
			return errors.New("use postgres, mysql or sqlite")
		}
		return nil
	})
}

// dialects are the databases that can be measured.
func dialects() []outbox.Dialect {
	return []outbox.Dialect{outbox.Postgres, outbox.MySQL, outbox.SQLite}
}

// broker is the name of the only broker of most scenarios.
const broker = "default"

// logf tells the progress.
func (o *Options) logf(format string, args ...any) {
	fmt.Fprintf(o.Log, "%s  "+format+"\n", append([]any{time.Now().UTC().Format(time.TimeOnly)}, args...)...)
}

// eachRun runs f as often as wanted.
func (o *Options) eachRun(name string, f func(run int) error) error {
	for run := range o.Runs {
		if err := f(run); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		o.logf("%s: run %d of %d: done", name, run+1, o.Runs)
	}
	return nil
}

// random decides the order in which the cases of a run take turns.
func (o *Options) random(run int) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, uint64(run))) } //nolint:gosec // not negative

// serverDSN is the DSN of a server.
func serverDSN(variable string) (string, error) {
	if dsn := os.Getenv(variable); dsn != "" {
		return dsn, nil
	}
	return "", fmt.Errorf("%s is not set: run this by make bench, which finds or starts the servers", variable)
}

// withTable runs f with an outbox table in a database that exists for as long.
func (o *Options) withTable(ctx context.Context, dialect outbox.Dialect, connections int, f func(*fixture.Table) error) (err error) {
	dsn := ""
	if variable := map[outbox.Dialect]string{outbox.Postgres: "FANOUT_TEST_POSTGRES", outbox.MySQL: "FANOUT_TEST_MARIADB"}[dialect]; variable != "" {
		if dsn, err = serverDSN(variable); err != nil {
			return err
		}
	}
	table, err := fixture.Open(ctx, dialect, dsn, connections)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	if o.Report.Servers[string(dialect)], err = table.Version(ctx); err != nil {
		return err
	}
	return f(table)
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// plural is a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
