package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gorm-fanout/fanout/benchmarks/internal/report"
	"github.com/gorm-fanout/fanout/benchmarks/internal/scenario"
	"github.com/gorm-fanout/fanout/benchmarks/internal/targets"
	"github.com/gorm-fanout/fanout/internal/testservers"
)

// settings are the flags of all scenarios.
type settings struct {
	short bool
	runs  int
	seed  uint64
	json  string
	cpu   string
	mem   string
	args  []string

	targets bool // the report judges the project's targets
	// charts are files to draw.
	charts []string
}

const (
	defaultRuns = 3
	defaultSeed = 1
)

func rootCommand(args []string) *cobra.Command {
	s := &settings{args: args}
	root := &cobra.Command{
		Use:           "bench",
		Short:         "Measure the outbox: see benchmarks/README.md for what each scenario shows",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	flags := root.PersistentFlags()
	flags.BoolVar(&s.short, "short", false, "try out the harness with small sizes; the times mean nothing")
	flags.IntVar(&s.runs, "runs", defaultRuns, "measure so many times, and print medians")
	flags.Uint64Var(&s.seed, "seed", defaultSeed, "seed of what is left to chance")
	flags.StringVar(&s.json, "json", "", "also write the results as JSON to this `file`")
	flags.StringVar(&s.cpu, "cpuprofile", "", "write where this process's processor time went to this `file`")
	flags.StringVar(&s.mem, "memprofile", "", "write where this process allocated memory to this `file`")
	root.AddCommand(claimsCommand(s), idleCommand(s), followersCommand(s), waitingCommand(s), hungCommand(s), withChart(s, drainCommand(s)))
	root.AddCommand(workersCommand(s), latencyCommand(s), sqliteCommand(s), mysqlCommand(s), mysqlClaimsCommand(s), prioritiesCommand(s), allCommand(s))
	root.AddCommand(growthCommands(s)...)
	return root
}

// noArgs refuses words that no command wants.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unknown argument %q for %q: see \"%s --help\"", args[0], cmd.CommandPath(), cmd.CommandPath())}
	}
	return nil
}

// command is one that measures a scenario, in the sizes that its flags say or in those of a short
// run.
func command[S scenario.Scenario](s *settings, use, short string, sizes *S, small func() S) (*cobra.Command, *pflag.FlagSet) {
	cmd := &cobra.Command{Use: use, Short: short, Args: noArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.short {
			*sizes = small()
		}
		return s.measure(cmd, *sizes)
	}
	return cmd, cmd.Flags()
}

// seconds is a flag that sets a duration by a number of seconds.
type seconds struct{ of *time.Duration }

func secondsVar(flags *pflag.FlagSet, of *time.Duration, usage string) {
	flags.Var(seconds{of}, "seconds", usage)
}

func (s seconds) String() string {
	if s.of == nil {
		return ""
	}
	return strconv.FormatFloat(s.of.Seconds(), 'g', -1, 64)
}

func (s seconds) Set(text string) error {
	number, err := strconv.ParseFloat(text, 64)
	*s.of = time.Duration(number * float64(time.Second))
	return err
}

func (seconds) Type() string { return "float" }

func claimsCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultClaims()
	cmd, flags := command(s, "claims", "Claims in a large table against claims in a small one", &sizes, scenario.ShortClaims)
	flags.Int64Var(&sizes.Rows, "rows", sizes.Rows, "rows of the large table, half of them published")
	flags.Int64Var(&sizes.Small, "small", sizes.Small, "rows of the small table, all pending")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.Int64SliceVar(&sizes.Keys, "keys", sizes.Keys, "numbers of ordering keys")
	flags.IntVar(&sizes.Batch, "batch", sizes.Batch, "rows of a claim")
	flags.IntVar(&sizes.Exchanges, "exchanges", sizes.Exchanges, "claims to measure in each run, for each number of keys and each table")
	return cmd
}

func idleCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultIdle()
	cmd, flags := command(s, "idle-transaction", "Claims while an open transaction holds vacuum back, against claims without it", &sizes, scenario.ShortIdle)
	secondsVar(flags, &sizes.For, "how long messages are written, in seconds")
	flags.IntVar(&sizes.Rate, "rate", sizes.Rate, "messages per second")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.Int64Var(&sizes.Keys, "keys", sizes.Keys, "number of ordering keys")
	flags.BoolVar(&sizes.Writes, "writes", sizes.Writes, "the transaction writes a message, too")
	return cmd
}

func waitingCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultWaiting()
	cmd, flags := command(s, "waiting", "Very many rows that wait before messages of other keys, which go on meanwhile", &sizes, scenario.ShortWaiting)
	flags.Int64Var(&sizes.Rows, "rows", sizes.Rows, "rows that wait")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.IntVar(&sizes.Others, "others", sizes.Others, "messages of other keys")
	return cmd
}

func followersCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultFollowers()
	cmd, flags := command(s, "followers", "Very many messages behind one of their key that is in backoff", &sizes, scenario.ShortFollowers)
	flags.Int64Var(&sizes.Rows, "rows", sizes.Rows, "followers behind the head")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.IntVar(&sizes.Batch, "batch", sizes.Batch, "rows of a claim")
	flags.IntVar(&sizes.Exchanges, "exchanges", sizes.Exchanges, "claims of other keys to measure, before and afterwards")
	flags.BoolVar(&sizes.Held, "held", sizes.Held, "leave a transaction open that holds vacuum back")
	return cmd
}

func hungCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultHung()
	cmd, flags := command(s, "hung", "Two brokers beside one that never answers", &sizes, scenario.ShortHung)
	secondsVar(flags, &sizes.For, "how long messages are written, in seconds")
	flags.IntVar(&sizes.Rate, "rate", sizes.Rate, "messages per second, to each broker")
	flags.Int64Var(&sizes.Backlog, "backlog", sizes.Backlog, "messages of each broker to drain")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.Int64Var(&sizes.Keys, "keys", sizes.Keys, "number of ordering keys")
	return cmd
}

// backlogFlags are those of scenarios that drain backlogs.
func backlogFlags(flags *pflag.FlagSet, payload, batch *int, only *[]string) {
	flags.IntVar(payload, "payload", *payload, "bytes of payload")
	flags.IntVar(batch, "batch", *batch, "rows of a claim")
	flags.StringArrayVar(only, "only", nil, "measure only the cases in whose names this `text` occurs; may be given more than once")
}

func drainCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultBacklog()
	cmd, flags := command(s, "drain", "A backlog from PostgreSQL to a broker, beside loops written by hand", &sizes, func() scenario.Backlog {
		short := scenario.ShortBacklog()
		short.Broker, short.NotKept, short.Partitioned = sizes.Broker, sizes.NotKept, sizes.Partitioned
		return short
	})
	flags.Int64Var(&sizes.Rows, "rows", sizes.Rows, "messages to drain")
	flags.Int64Var(&sizes.Parts, "parts", sizes.Parts, "cut the messages of a run into so many backlogs, between which the cases take turns")
	flags.StringVar(&sizes.Broker, "broker", "redis", "where to: redis, rabbitmq, nats or kafka")
	flags.Int64Var(&sizes.RowByRow, "row-by-row", sizes.RowByRow, "messages to drain row by row")
	flags.Int64Var(&sizes.Peers, "peers", sizes.Peers, "messages that other projects drain, tuned")
	flags.Int64Var(&sizes.PeersAsIs, "peers-default", sizes.PeersAsIs, "messages that other projects drain as they are by default")
	backlogFlags(flags, &sizes.Payload, &sizes.Batch, &sizes.Only)
	flags.Int64SliceVar(&sizes.Keys, "keys", sizes.Keys, "numbers of ordering keys")
	flags.IntSliceVar(&sizes.Workers, "workers", nil, "numbers of Fanout's workers, instead of its default")
	flags.BoolVar(&sizes.NotKept, "not-kept", false, "also measure with rows that are removed as they are delivered (keep: false)")
	flags.BoolVar(&sizes.Partitioned, "partitioned", false, "also measure with rows that are moved to a history as they are delivered (partition: day)")
	flags.Int64Var(&sizes.HotKeys, "hot-keys", sizes.HotKeys, "number of ordering keys beside a hot one")
	return cmd
}

func workersCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultWorkers()
	cmd, flags := command(s, "workers", "What more workers bring and cost, with servers at hand and far away", &sizes, scenario.ShortWorkers)
	flags.Int64Var(&sizes.Rows, "rows", sizes.Rows, "messages to drain in each case")
	backlogFlags(flags, &sizes.Payload, &sizes.Batch, &sizes.Only)
	flags.Int64Var(&sizes.Keys, "keys", sizes.Keys, "number of ordering keys")
	flags.IntSliceVar(&sizes.Counts, "workers", sizes.Counts, "numbers of workers")
	flags.DurationSliceVar(&sizes.Redis, "redis", sizes.Redis, "round trips to Redis, beside what they take anyway")
	flags.DurationSliceVar(&sizes.Postgres, "postgres", sizes.Postgres, "round trips to PostgreSQL, beside what they take anyway")
	return cmd
}

func allCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{Use: "all", Short: "All scenarios, one after the other, in their own sizes", Args: noArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s.targets = true
		if s.short {
			return s.measure(cmd, append(shortGrowth(), scenario.ShortClaims(), scenario.ShortIdle(), scenario.ShortFollowers(), scenario.ShortWaiting(), scenario.ShortHung(),
				scenario.ShortBacklog(), scenario.ShortWorkers(), scenario.ShortLatency(), scenario.ShortSQLite())...)
		}
		return s.measure(cmd, append(defaultGrowth(), scenario.DefaultClaims(), scenario.DefaultIdle(), scenario.DefaultFollowers(), scenario.DefaultWaiting(),
			scenario.DefaultHung(), scenario.DefaultBacklog(), scenario.DefaultWorkers(), scenario.DefaultLatency(), scenario.DefaultSQLite())...)
	}
	return cmd
}

// lacksServer reports whether there is no server for one of the scenarios.
func lacksServer(o *scenario.Options, scenarios []scenario.Scenario) bool {
	return o.Postgres == "" || slices.ContainsFunc(scenarios, func(s scenario.Scenario) bool {
		_, redis := s.(scenario.RedisUser)
		_, mysql := s.(scenario.MySQLUser)
		backlog, drains := s.(scenario.Backlog)
		rabbit := drains && backlog.Broker == "rabbitmq"
		return redis && o.Redis == "" || mysql && o.MySQL == "" || rabbit && o.RabbitMQ == ""
	})
}

// measure runs scenarios with a server at hand, and prints what it found.
func (s *settings) measure(cmd *cobra.Command, scenarios ...scenario.Scenario) (err error) {
	if s.runs < 1 {
		return usageError{fmt.Errorf("--runs is %d: use at least 1", s.runs)}
	}
	for _, scenario := range scenarios {
		if err := scenario.Check(s.runs); err != nil {
			return usageError{err}
		}
	}
	ctx := cmd.Context()
	options := &scenario.Options{
		Postgres: os.Getenv(testservers.PostgresVariable), Redis: os.Getenv(testservers.RedisVariable), MySQL: os.Getenv(testservers.MySQLVariable),
		RabbitMQ: os.Getenv(testservers.RabbitMQVariable),
		Runs:     s.runs, Seed: s.seed,
		Report: report.New(s.args, s.seed, s.short), Log: cmd.ErrOrStderr(),
	}
	if lacksServer(options, scenarios) {
		servers, startErr := testservers.Start(ctx, cmd.ErrOrStderr(), false, "postgres", "redis", "mysql", "rabbitmq")
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, servers.Stop()) }()
		options.Postgres, options.Redis = servers.URL("postgres"), servers.URL("redis")
		options.MySQL, options.RabbitMQ = servers.URL("mysql"), servers.URL("rabbitmq")
	}
	stop, err := s.profile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for _, scenario := range scenarios {
		if err := scenario.Run(ctx, options); err != nil {
			return err
		}
	}
	if s.targets {
		options.Report.Targets = targets.Judge(options.Report)
	}
	if s.json != "" {
		if err := writeJSON(s.json, options.Report); err != nil {
			return err
		}
	}
	if err := s.writeCharts(options.Report); err != nil {
		return err
	}
	return options.Report.WriteText(cmd.OutOrStdout())
}

func writeJSON(path string, r *report.Report) (err error) {
	file, err := os.Create(path) //nolint:gosec // the file that the caller asks for
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return r.WriteJSON(file)
}
