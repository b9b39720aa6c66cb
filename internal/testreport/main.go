// Command testreport runs tests and reports the results:
//
//	testreport go test -run=TestClaim ./outbox/...
//
// Each package gets a line when it has ended, a failed one with the output of what failed in it;
// the end says how many tests passed, failed and were skipped, and why, and which of them took
// long. With -v among the arguments all output is shown as it comes. The exit code is that of the
// command, 127 where it cannot be run, 2 for wrong usage.
//
// Where FANOUT_TEST_RECORD names a file, it appends to it how the tests of each package ended on each
// server. Out of that,
//
//	testreport -tested-with RECORDS RESULT DOCUMENT
//
// writes a file with the sums, and the table in a document.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
)

const (
	exitFailed    = 1
	exitUsage     = 2
	exitCannotRun = 127 // as the shell says it
)

func main() {
	if len(os.Args) == 5 && os.Args[1] == "-tested-with" {
		if err := writeTable(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitFailed)
		}
		return
	}
	if len(os.Args) < 3 || !slices.Contains(os.Args, "test") {
		fmt.Fprintln(os.Stderr, "usage: testreport go test [ARGUMENT...] | testreport -tested-with RECORDS RESULT DOCUMENT")
		os.Exit(exitUsage)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the command, "go ... test ...", and returns its exit code.
func run(command []string, out, log io.Writer) int {
	// A terminal sends its signals to the command too, which ends first, and then what it has done
	// is told.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	verb := slices.Index(command, "test") + 1
	cmd := exec.Command(command[0], slices.Insert(slices.Clone(command[1:]), verb-1, "-json")...) //nolint:noctx,gosec // signals end it; it is the caller's
	cmd.Stderr = log
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(log, "testreport: %v\n", err)
		return exitCannotRun
	}
	r := &report{out: out, verbose: isVerbose(command[verb:])}
	failure := r.read(events)
	if failure != nil {
		fmt.Fprintf(log, "testreport: read the events of go test: %v\n", failure)
		_, _ = io.Copy(io.Discard, events) // or the command waits for us
	}
	err = cmd.Wait()
	r.summary()
	failure = errors.Join(failure, r.record())
	switch exit := (*exec.ExitError)(nil); {
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode()
	case err != nil || failure != nil:
		fmt.Fprintf(log, "testreport: %v\n", errors.Join(err, failure))
		return exitFailed
	}
	return 0
}

func isVerbose(arguments []string) bool {
	return slices.ContainsFunc(arguments, func(a string) bool { return a == "-v" || a == "-v=true" || a == "-test.v" })
}
