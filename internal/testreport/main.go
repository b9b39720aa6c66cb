// Command testreport runs tests and reports the results:
//
//	testreport go test -run=TestClaim ./outbox/...
//
// Each package gets a line when it has ended, a failed one with the output of its failed tests. The end
// says how many tests passed, failed and were skipped, and why; the last line says which servers were
// missing. With -v among the arguments all output is shown as it comes. Without FANOUT_TEST_SEED, it
// chooses a seed and prints it. The exit code is that of the command, 127 where it cannot be run, 2 for
// wrong usage.
package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

	seedVariable = "FANOUT_TEST_SEED" // see testenv.Seed
)

func main() {
	if len(os.Args) < 3 || !slices.Contains(os.Args, "test") {
		fmt.Fprintln(os.Stderr, "usage: testreport go test [ARGUMENT...]")
		os.Exit(exitUsage)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the command, "go ... test ...", and returns its exit code.
func run(command []string, out, log io.Writer) int {
	// A terminal sends its signals to the command, too. It ends first, and then we report its results.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	verb := slices.Index(command, "test")
	cmd := exec.Command(command[0], slices.Insert(slices.Clone(command[1:]), verb, "-json")...) //nolint:noctx,gosec // signals end it; it is the caller's
	cmd.Stderr = log
	if os.Getenv(seedVariable) == "" {
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", seedVariable, rand.Int32()))
		fmt.Fprintln(out, cmd.Env[len(cmd.Env)-1])
	}
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(log, "testreport: %v\n", err)
		return exitCannotRun
	}
	r := &report{out: out, verbose: slices.Contains(command, "-v") || slices.Contains(command, "-test.v")}
	failure := r.read(events)
	if failure != nil {
		_, _ = io.Copy(io.Discard, events) // or the command waits for us
	}
	err = cmd.Wait()
	r.summary()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode()
	}
	if err = errors.Join(err, failure); err != nil {
		fmt.Fprintf(log, "testreport: %v\n", err)
		return exitFailed
	}
	return 0
}
