// Command withservers runs a command with a PostgreSQL, a Redis, a MySQL, a RabbitMQ and a toxiproxy at hand:
//
//	go run ./internal/testservers/cmd/withservers -- go test ./...
//
// It gets the servers as package testservers describes, says on stderr which they are, runs the
// command with FANOUT_TEST_POSTGRES, FANOUT_TEST_REDIS, FANOUT_TEST_MYSQL, FANOUT_TEST_RABBITMQ and
// FANOUT_TEST_TOXIPROXY set, and stops what it started. It runs in this repository, whose modules toxiproxy is built of. Where the
// servers' binaries are on this machine the command also gets FANOUT_TEST_POSTGRES_BINDIR,
// FANOUT_TEST_REDIS_BIN, FANOUT_TEST_MYSQL_BIN and FANOUT_TEST_RABBITMQ_BIN, to start servers of its
// own. With -optional before the -- it also gets those of the optional servers that can be had, with
// -kafka the binaries of Kafka, for a command that starts clusters of its own. With
// -each-postgres it runs once with each version of PostgreSQL that FANOUT_TEST_POSTGRES_VERSIONS
// chooses and that can be had.
//
// The exit code is the command's, or the first of several that is not 0 (128 + n where signal n ended it), 1 when there are no servers, 2
// for wrong usage. At the end it says how long all of it took. Note that go run turns every failure into 1; build the command where the code
// matters. Signals are passed on to the command and all processes of its group; the servers are
// stopped after it has ended. A terminal is not passed on: the command reads nothing.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

const (
	exitNoServers = 1
	exitUsage     = 2
	exitCannotRun = 127 // as the shell says it

	stopPatience      = 15 * time.Second // for the command to end after the first signal; then it is killed
	unconfiguredCheck = time.Second
)

// choice is what the flags say.
type choice struct {
	optional     bool // servers that tests can do without
	kafka        bool // its binaries
	eachPostgres bool // in turn, in place of the usual PostgreSQL
}

func main() {
	var chosen choice
	arguments := os.Args[1:]
	for ; len(arguments) > 0 && arguments[0] != "--"; arguments = arguments[1:] {
		switch arguments[0] {
		case "-optional":
			chosen.optional = true
		case "-kafka":
			chosen.kafka = true
		case "-each-postgres":
			chosen.eachPostgres = true
		default:
			usage()
		}
	}
	if len(arguments) < 2 {
		usage()
	}
	os.Exit(run(os.Stderr, chosen, arguments[1:]))
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: withservers [-optional] [-kafka] [-each-postgres] -- COMMAND [ARGUMENT...]")
	os.Exit(exitUsage)
}

func run(log io.Writer, chosen choice, command []string) int {
	stopSignals := caughtSignals()
	signals := make(chan os.Signal, len(stopSignals))
	signal.Notify(signals, stopSignals...)
	ctx, cancel := signal.NotifyContext(context.Background(), stopSignals...)
	defer cancel()
	go endWhenOrphaned(ctx, os.Getppid())

	began := time.Now()
	servers, err := start(ctx, log, chosen)
	if ctx.Err() != nil && err != nil {
		fmt.Fprintln(log, "withservers: interrupted while the servers were starting")
		return exitNoServers
	}
	if err != nil {
		fmt.Fprintln(log, err)
		return exitNoServers
	}
	for _, server := range servers.All() {
		fmt.Fprintln(log, server)
	}
	ready := time.Since(began)
	var code int
	if chosen.eachPostgres {
		code = runWithEach(ctx, log, servers, command, signals)
	} else {
		code = runCommand(log, command, servers.Environ(), signals)
	}
	if err := servers.Stop(); err != nil {
		fmt.Fprintln(log, err)
		return max(code, exitNoServers)
	}
	fmt.Fprintf(log, "withservers: %.0f s, of which the servers took %.0f s to start\n", time.Since(began).Seconds(), ready.Seconds())
	return code
}

// start gets all servers, or none; of the optional ones those that can be had.
func start(ctx context.Context, log io.Writer, chosen choice) (*testservers.Servers, error) {
	servers, err := testservers.Start(ctx, log)
	if err != nil {
		return nil, err
	}
	err = servers.StartToxiproxy(ctx)
	if err == nil && chosen.kafka {
		servers.FindKafka(ctx)
	}
	if err == nil && chosen.optional {
		err = servers.StartOptional(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, servers.Stop()) //nolint:contextcheck // the context may be what has ended
	}
	return servers, nil
}

// runWithEach runs the command with each chosen PostgreSQL that can be had. It runs with all, and
// returns the first exit code that is not zero.
func runWithEach(ctx context.Context, log io.Writer, servers *testservers.Servers, command []string, signals <-chan os.Signal) int {
	majors, err := testservers.PostgresVersions()
	if err != nil {
		fmt.Fprintln(log, err)
		return exitUsage
	}
	code := 0
	for _, major := range majors {
		server, err := servers.UsePostgres(ctx, major)
		if err != nil {
			fmt.Fprintln(log, err)
			code = cmp.Or(code, exitNoServers)
		}
		if server != nil {
			fmt.Fprintln(log, server)
			code = cmp.Or(code, runCommand(log, command, servers.Environ(), signals)) //nolint:contextcheck // signals end the command
		}
		if ctx.Err() != nil {
			break
		}
	}
	return code
}

// runCommand runs the command to its end, passes signals on to it, and returns its exit code.
func runCommand(log io.Writer, command, environ []string, signals <-chan os.Signal) int {
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), environ...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = plainStdin(), os.Stdout, os.Stderr
	process, err := child.Start(cmd)
	if err != nil {
		fmt.Fprintln(log, err)
		return exitCannotRun
	}
	var kill <-chan time.Time
	for {
		var passOn os.Signal
		select {
		case <-process.Done():
			return process.ExitCode()
		case passOn = <-signals:
			if kill == nil {
				kill = time.After(stopPatience)
			}
		case <-kill:
			passOn = os.Kill
		}
		if err := process.Signal(passOn); err != nil {
			fmt.Fprintln(log, err)
		}
	}
}

// plainStdin is our standard input unless it is a terminal: the command runs in a process group of
// its own, and the kernel would stop it when it read from a terminal that belongs to ours.
func plainStdin() io.Reader {
	info, err := os.Stdin.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice != 0 {
		return nil
	}
	return os.Stdin
}

// caughtSignals are the signals that end us. One that our parent chose to ignore, as nohup does,
// stays ignored.
func caughtSignals() []os.Signal {
	return slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, signal.Ignored)
}

// endWhenOrphaned signals ourselves when the parent has died: go run passes neither SIGTERM nor its
// own death on.
func endWhenOrphaned(ctx context.Context, parent int) {
	ticker := time.NewTicker(unconfiguredCheck)
	defer ticker.Stop()
	for os.Getppid() == parent {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Signal(syscall.SIGTERM) // unsupported outside of Unix, where a parent's end is not seen either
	}
}
