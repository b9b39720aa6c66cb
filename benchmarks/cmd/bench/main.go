// Command bench measures the figures of docs/performance.md: make bench ARGS="drain".
//
// It uses the servers that FANOUT_TEST_POSTGRES, FANOUT_TEST_MARIADB, FANOUT_TEST_REDIS and
// FANOUT_TEST_RABBITMQ name, in databases and streams of its own. The results go to standard output,
// the progress to standard error.
//
// Exit codes: 0 measured, whether limits were kept or not; 1 failed; 2 wrong usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"syscall"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/benchmarks/internal/scenario"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// command is a command line.
type command struct {
	// targets has the report end with a table of the project's targets.
	targets   bool
	short     bool
	runs      int
	seed      uint64
	cpu       string
	scenarios []scenario.Scenario
}

// run is main without the process around it.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	if err := c.measure(ctx, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFailed
	}
	return exitDone
}

func parse(args []string, stderr io.Writer) (*command, error) { //nolint:cyclop // a case per word
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Fprintln(stderr, "usage: bench SCENARIO [flags], see bench SCENARIO --help")
		for _, entry := range scenario.All() {
			fmt.Fprintf(stderr, "  %-17s %s\n", entry.Name, entry.Answers)
		}
		fmt.Fprintln(stderr, "  targets           the scenarios of the project's targets, and their table\n  all               every scenario")
		return nil, flag.ErrHelp
	}
	c := &command{}
	var entries []scenario.Entry
	for _, entry := range scenario.All() {
		isTarget := slices.ContainsFunc(scenario.Targets(), func(t report.Target) bool { return t.Scenario == entry.Name })
		if entry.Name == args[0] || args[0] == "all" || args[0] == "targets" && isTarget {
			entries = append(entries, entry)
		}
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("there is no scenario %q: see bench help", args[0])
	}
	c.targets = len(entries) > 1
	flags := flag.NewFlagSet("bench "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&c.short, "short", false, "try out the harness with small sizes; the times mean nothing")
	flags.IntVar(&c.runs, "runs", 3, "measure so many times, and print medians")
	flags.Uint64Var(&c.seed, "seed", 1, "seed of the random choices")
	flags.StringVar(&c.cpu, "cpuprofile", "", "write a profile of this process's processor time to this `file`")
	for _, entry := range entries {
		sizes := &scenario.Sizes{Flags: flags, Short: slices.Contains(args, "--short")}
		if c.targets { // their scenarios keep their sizes
			sizes.Flags = flag.NewFlagSet(entry.Name, flag.ContinueOnError)
		}
		c.scenarios = append(c.scenarios, entry.New(sizes))
	}
	if err := flags.Parse(args[1:]); err != nil {
		return nil, err
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q: see bench %s --help", flags.Arg(0), args[0])
	case c.runs < 1:
		return nil, fmt.Errorf("--runs is %d: use at least 1", c.runs)
	}
	return c, nil
}

// measure runs the scenarios and prints the report.
func (c *command) measure(ctx context.Context, stdout, stderr io.Writer) (err error) {
	o := &scenario.Options{Runs: c.runs, Seed: c.seed, Report: report.New(c.seed, c.short), Log: stderr}
	stop, err := c.profile()
	if err != nil {
		return err
	}
	for _, s := range c.scenarios {
		if err = s.Run(ctx, o); err != nil {
			break
		}
	}
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	if c.targets {
		return o.Report.WriteText(stdout, scenario.Targets())
	}
	return o.Report.WriteText(stdout, nil)
}

// profile starts the processor's profile, if one is wanted. The returned function writes it.
func (c *command) profile() (stop func() error, err error) {
	if c.cpu == "" {
		return func() error { return nil }, nil
	}
	file, err := os.Create(c.cpu) //nolint:gosec // the caller names it
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}
