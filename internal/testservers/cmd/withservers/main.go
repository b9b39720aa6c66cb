// Command withservers runs a command with servers at hand:
//
//	withservers -with postgres,redis -- go test ./...
//
// It gets the named servers, or all of them for -with all, as package testservers describes, says on
// stderr where each comes from, runs the command with their variables set, and stops what it started. A
// name like postgres14 is PostgreSQL of that version. A server that cannot be had is an error; with
// -optional it is only announced. It looks for nothing else. It runs in this repository.
//
// The exit code is the command's (128 + n where signal n ended it), 1 when there are no servers, 2 for
// wrong usage, 127 where the command cannot be run. Note that go run turns every failure into 1; build
// the command where the code matters. Signals are passed on to the command and all processes of its
// group; the servers are stopped after it has ended. A terminal is not passed on: the command reads
// nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/internal/testservers"
	"github.com/gorm-fanout/fanout/internal/testservers/child"
)

const (
	exitNoServers = 1
	exitUsage     = 2
	exitCannotRun = 127 // as the shell says it

	stopPatience = 15 * time.Second // for the command to end after the first signal; then it is killed
)

func main() {
	flags := flag.NewFlagSet("withservers", flag.ContinueOnError)
	with := flags.String("with", "", "the servers, with commas between: all, or of "+strings.Join(testservers.Names(), ", "))
	optional := flags.Bool("optional", false, "go on without servers that cannot be had")
	flags.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: withservers -with SERVER,... [-optional] -- COMMAND [ARGUMENT...]")
		flags.PrintDefaults()
	}
	if err := flags.Parse(os.Args[1:]); err != nil {
		os.Exit(exitUsage)
	}
	if flags.NArg() == 0 || *with == "" {
		flags.Usage()
		os.Exit(exitUsage)
	}
	names := strings.Split(*with, ",")
	if *with == "all" {
		names = testservers.Names()
	}
	os.Exit(run(os.Stderr, names, *optional, flags.Args()))
}

func run(log io.Writer, names []string, optional bool, command []string) int {
	stopSignals := caughtSignals()
	signals := make(chan os.Signal, len(stopSignals))
	signal.Notify(signals, stopSignals...)
	ctx, cancel := signal.NotifyContext(context.Background(), stopSignals...)
	defer cancel()
	go endWhenOrphaned(os.Getppid())

	began := time.Now()
	servers, err := testservers.Start(ctx, log, optional, names...)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("withservers: interrupted while the servers were starting: %w", context.Cause(ctx))
		}
		fmt.Fprintln(log, err)
		return exitNoServers
	}
	ready := time.Since(began)
	code := runCommand(log, command, servers.Environ(), signals)
	if err := servers.Stop(); err != nil {
		fmt.Fprintln(log, err)
		code = max(code, exitNoServers)
	}
	fmt.Fprintf(log, "withservers: %.0f s, of which the servers took %.0f s to start\n", time.Since(began).Seconds(), ready.Seconds())
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
func endWhenOrphaned(parent int) {
	for range time.Tick(time.Second) {
		if os.Getppid() == parent {
			continue
		}
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Signal(syscall.SIGTERM) // unsupported outside of Unix, where a parent's end is not seen either
		}
		return
	}
}
