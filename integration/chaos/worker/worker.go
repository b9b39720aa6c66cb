// Package worker holds the processes of the chaos rig: producers, relays, observers and projectors,
// which consume, the fake of Pub/Sub and the server of NATS. The environment of a process names its role, and it records what it knows in a
// ledger.
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/goleak"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// The environment of a process.
const (
	RoleVariable   = "CHAOS_ROLE"   // producer, relay, project, one of the roles
	NameVariable   = "CHAOS_NAME"   // of the process
	LedgerVariable = "CHAOS_LEDGER" // path of its ledger
	ConfigVariable = "CHAOS_CONFIG" // path of the configuration of Fanout: producers, relays and projectors
	ServerVariable = "CHAOS_SERVER" // URL or addresses: of what an observer reads, or of a server itself
	StoreVariable  = "CHAOS_STORE"  // of a server: the directory of its data
	SoleVariable   = "CHAOS_SOLE"   // of a projector: not empty where it consumes what one process at a time may
	SeedVariable   = "CHAOS_SEED"   // of a producer
	RateVariable   = "CHAOS_RATE"   // of a producer: transactions per second
	KeysVariable   = "CHAOS_KEYS"   // of a producer: number of accounts
	// SkewVariable is by how many seconds the clock on the wall is off, in a program that was built
	// for it.
	SkewVariable = "CHAOS_SKEW"
	// SessionVariable is whose the sessions of a process are: its name, a slash, and its process id,
	// as a part of a DSN. Each process sets it for itself.
	SessionVariable = "CHAOS_SESSION"
)

// ExitCannot is the exit code of a process that could not do its work, since a server was
// unavailable, say. It may be restarted.
const ExitCannot = 3

// roles are what a process can be.
var roles = map[string]func(context.Context, *scenario.Ledger) error{
	"producer":         produce,
	"relay":            relay,
	"project":          project,
	"observe-redis":    observeRedis,
	"observe-pubsub":   observePubSub,
	"observe-rabbitmq": observeRabbitMQ,
	"observe-nats":     observeNATS,
	"observe-kafka":    observeKafka,
	"serve-pubsub":     servePubSub,
	"serve-nats":       serveNATS,
}

// Main is the process: it ends at SIGTERM, or when its parent has ended, and returns the exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go endWithParent()
	// The sessions of the database tell whose they are, as the names of the relay's workers do: by
	// the process id in second place.
	session := fmt.Sprintf("%s/%d", os.Getenv(NameVariable), os.Getpid())
	if err := errors.Join(os.Setenv("PGAPPNAME", session), os.Setenv(SessionVariable, url.QueryEscape(session))); err != nil {
		return ExitCannot
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	role, known := roles[os.Getenv(RoleVariable)]
	if !known {
		fmt.Fprintf(os.Stderr, "worker: %s is %q: the chaos rig starts this program, see docs/reliability.md\n", RoleVariable, os.Getenv(RoleVariable))
		return 2
	}
	ledger, err := scenario.OpenLedger(os.Getenv(LedgerVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitCannot
	}
	defer ledger.Close()
	if err := errors.Join(ledger.Write(scenario.Line{Clock: time.Now().Unix()}), role(ctx, ledger)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ExitCannot
	}
	return 0
}

// endWithParent ends this process when its standard input is closed, which its parent holds open
// for as long as it lives. (Linux has a signal for that, too; this is for the others.)
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// ended records a graceful shutdown, and the goroutines that it left.
func ended(ledger *scenario.Ledger, line scenario.Line) error {
	line.Ended = true
	if err := goleak.Find(
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"), // starts when it is loaded
		goleak.IgnoreAnyFunction("github.com/gorm-fanout/fanout/integration/chaos/worker.endWithParent"),
		goleak.IgnoreAnyFunction("os/signal.NotifyContext.func1"),
		goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreTopFunction("os/signal.loop"),
	); err != nil {
		line.Leaked = err.Error()
	}
	return ledger.Write(line)
}

// readPatience bounds one call of an observer.
const readPatience = time.Second

// heartbeat finds a connection to RabbitMQ that has gone silent within thrice as long.
const heartbeat = 2 * time.Second

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// number reads a number from the environment.
func number(variable string) (int64, error) {
	n, err := strconv.ParseInt(os.Getenv(variable), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("worker: %s: %w", variable, err)
	}
	return n, nil
}
