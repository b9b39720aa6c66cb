// Command bench measures what docs/performance.md speaks of: make bench ARGS="claims".
//
// It uses the PostgreSQL that FANOUT_TEST_POSTGRES names, in databases of its own, and starts one where none is named.
// The table of results goes to standard output, how far it is to standard error.
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
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError marks a command line that was wrong.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

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
