//go:build unix

// Command chaos runs the chaos rig:
//
//	make chaos ARGS="--for 20m --seed 7"
//	make chaos ARGS="--broken"                  every defect that the rig must notice
//	make chaos ARGS="--broken=no-fence"         one of them
//
// The exit code is 0 without violations (with --broken: when the rig has noticed), 1 with
// violations or when the rig itself fails, 2 for wrong usage. docs/reliability.md describes the
// report.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gorm-fanout/fanout/integration/chaos"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

// settings are the flags.
type settings struct {
	options chaos.Options
	only    string
	brokers string
	json    string
	broken  optional
}

// optional is a flag that may have a value.
type optional struct {
	set   bool
	value string
}

// String implements flag.Value.
func (o *optional) String() string { return o.value }

// IsBoolFlag makes the value optional.
func (o *optional) IsBoolFlag() bool { return true }

// Set implements flag.Value.
func (o *optional) Set(value string) error {
	o.set = true
	if value != "true" {
		o.value = value
	}
	return nil
}

func main() {
	s := &settings{}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	o := &s.options
	flags.StringVar(&o.Database, "database", "", "postgres, mysql, or sqlserver, at the URL in FANOUT_TEST_SQLSERVER (postgres)")
	flags.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "decides the schedule and what producers do; default: a new one")
	flags.DurationVar(&o.For, "for", 0, "how long faults go on (1m; 20s with --broken)")
	flags.DurationVar(&o.Every, "every", 0, "mean time between faults (3s)")
	flags.DurationVar(&o.Drain, "drain", 0, "how long the backlog may stand still after the faults (1m)")
	flags.DurationVar(&o.Lease, "lease", 0, "of the relays (3s)")
	flags.IntVar(&o.Producers, "producers", 0, "processes (2)")
	flags.IntVar(&o.Relays, "relays", 0, "processes (3)")
	flags.IntVar(&o.Projectors, "projectors", 0, "processes that consume with the inbox (2; -1 for none)")
	flags.IntVar(&o.Rate, "rate", 0, "transactions per second of each producer (20)")
	flags.IntVar(&o.Keys, "keys", 0, "accounts that are written (40)")
	flags.BoolVar(&o.TrueClocks, "true-clocks", false, "leave the clocks of processes alone")
	flags.BoolVar(&o.NotKept, "not-kept", false, "remove rows as they are delivered (keep: false)")
	flags.StringVar(&o.Keep, "keep", "", "directory to keep ledgers and logs in")
	flags.StringVar(&s.brokers, "brokers", "", "external ones, with commas between: partner (CloudEvents), pubsub, rabbitmq, nats, kafka (all; kafka only where there is one)")
	flags.StringVar(&s.only, "only", "", "kinds of faults, with commas between them (all)")
	flags.StringVar(&s.json, "json", "", "file to write the report to, as JSON")
	flags.Var(&s.broken, "broken", "build in a defect (--broken=NAME), or each of them in turn (--broken), and fail if it is not noticed")
	if err := flags.Parse(os.Args[1:]); err != nil || flags.NArg() > 0 {
		if err == nil {
			fmt.Fprintf(os.Stderr, "chaos: unexpected argument %q\n", flags.Arg(0))
		}
		os.Exit(exitUsage)
	}
	for _, kind := range list(s.only) {
		o.Only = append(o.Only, chaos.Kind(kind))
	}
	o.Brokers = list(s.brokers)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	sound := s.run(ctx)
	stop()
	if !sound {
		os.Exit(exitFailed)
	}
}

// list are the words between the commas of a flag.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// run reports whether all is as it should be.
func (s *settings) run(ctx context.Context) bool {
	if s.broken.set {
		return s.runBroken(ctx)
	}
	report, err := chaos.Run(ctx, s.options)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return false
	}
	report.Print(os.Stdout)
	return s.write(report) && len(report.Violations) == 0
}

// runBroken reports whether the rig notices defects.
func (s *settings) runBroken(ctx context.Context) bool {
	noticed, found := true, false
	for _, defect := range chaos.Defects() {
		if s.broken.value != "" && s.broken.value != defect.Name {
			continue
		}
		found = true
		report, err := chaos.Run(ctx, defect.Tailored(s.options))
		if s.broken.value == "" && errors.Is(err, testservers.ErrNoBinary) {
			fmt.Fprintf(os.Stdout, "SKIPPED: %s: %v\n", defect.Name, err)
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return false
		}
		report.Print(os.Stdout)
		for _, missed := range defect.Missed(report) {
			fmt.Fprintf(os.Stdout, "NOT NOTICED: %s (%s): %s\n", defect.Name, defect.What, missed)
			noticed = false
		}
		noticed = s.write(report) && noticed
	}
	if !found {
		fmt.Fprintf(os.Stderr, "chaos: there is no defect %q\n", s.broken.value)
	}
	return noticed && found
}

func (s *settings) write(report *chaos.Report) bool {
	if s.json == "" {
		return true
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err == nil {
		err = os.WriteFile(s.json, append(text, '\n'), 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return err == nil
}
