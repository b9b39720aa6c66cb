// Command bench measures what docs/performance.md speaks of: make bench ARGS="claims".
//
// It uses the PostgreSQL that FANOUT_TEST_POSTGRES names, in databases of its own, and starts one
// where none is named. The table of results goes to standard output, how far it is to standard
// error.
//
// Exit codes: 0 measured, whether targets were met or not; 1 failed; 2 wrong usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/gorm-fanout/fanout/benchmarks/internal/scenario"
)

func main() {
	if os.Getenv(scenario.ChildVariable) != "" {
		os.Exit(child())
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError marks a command line that was wrong.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// child is main of a process that a scenario starts.
func child() int {
	if err := scenario.Child(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitFailed
	}
	return exitDone
}

// run is main without the process around it.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := rootCommand(args)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(stderr, "bench:", err)
	if _, wrong := errors.AsType[usageError](err); wrong {
		return exitUsage
	}
	return exitFailed
}
