package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/cmd/fanout/internal/clients"
	"github.com/gorm-fanout/fanout/config"
)

func relayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Deliver the rows of every configured database to every configured broker",
		Long: "Deliver the rows of every configured database to every configured broker, and purge finished rows.\n" +
			"Any number of relays may run at once; they share the work. SIGINT or SIGTERM finishes or releases what\n" +
			"is claimed and exits with 0. Where monitor.listen is set it serves the dashboard and the HTTP interface.\n" +
			"It knows the broker types " + strings.Join(clients.Names(), ", ") + ": for others write a program\n" +
			"of your own, with fanout.Open.",
		Args: noArgs,
	}
	path := configFlag(cmd)
	workers := cmd.Flags().Int("workers", 0, "workers per database and broker, instead of the configuration's `n`")
	level := cmd.Flags().String("log-level", "info", "debug, info, warn or error")
	asJSON := cmd.Flags().Bool("log-json", false, "log JSON instead of text")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *workers < 0 {
			return usageError{fmt.Errorf("--workers is %d: use a positive number", *workers)}
		}
		log, err := newLogger(cmd, *level, *asJSON)
		if err != nil {
			return err
		}
		cfg, err := loadWith(cmd, *path)
		if err == nil {
			err = deliverable(cfg)
		}
		if err != nil {
			return err
		}
		relayLog.Store(log)
		listener, err := listen(cmd.Context(), cfg.Monitor.Listen) // first of all: a port that is taken is soon said
		if err != nil {
			return err
		}
		defer listener.close()
		options := append(clients.Options(), fanout.WithWorkers(*workers), fanout.WithLogger(log))
		scraped, err := measure(cfg)
		if err != nil {
			return err
		}
		if scraped != nil {
			options = append(options, fanout.WithMeterProvider(scraped))
		}
		opening, cancel := context.WithTimeout(cmd.Context(), startTimeout)
		defer cancel()
		relay, err := fanout.Open(opening, cfg, options...)
		if err != nil {
			return err
		}
		log.Info("relay started", "databases", len(cfg.Databases), "brokers", strings.Join(cfg.BrokerNames(), ","))
		started := time.Now()
		err = runMonitored(cmd.Context(), relay, listener, cfg, scraped, log)
		for _, s := range relay.Stats() {
			log.Info("processor stopped", "database", s.Database, "broker", s.Broker, "published", s.Published, "retried", s.Retried,
				"abandoned", s.Abandoned, "released", s.Released, "lease_lost", s.LeaseLost)
		}
		log.Info("relay stopped", "ran", time.Since(started).Round(time.Millisecond).String())
		return err
	}
	return cmd
}

// startTimeout bounds how long a relay waits for its databases when it starts: a busy one answers the check of the
// schema late.
const startTimeout = time.Minute

// deliverable refuses brokers of types that another program links.
func deliverable(cfg *config.Config) error {
	var problems []error
	for _, name := range cfg.BrokerNames() {
		if broker := cfg.Brokers[name]; broker.Settings == nil {
			problems = append(problems, fmt.Errorf("brokers.%s: this command cannot deliver to type %q, only to %s: run the program that links it (fanout.WithBrokerType)",
				name, broker.Type, strings.Join(clients.Names(), ", ")))
		}
	}
	if len(problems) > 0 {
		return usageError{errors.Join(problems...)}
	}
	return nil
}

// relayLog is where the relay of this process logs; nil in other commands.
var relayLog atomic.Pointer[slog.Logger] //nolint:gochecknoglobals // the Redis client has one log for the whole process, too

// redisLog takes what the Redis client has to say: each failed dial, which the relay sums up
// itself. In other commands it is dropped: a broker that cannot be reached is said once, by us.
var redisLog = redisstreams.ClientLog(relayLog.Load) //nolint:gochecknoglobals // it is set once

func newLogger(cmd *cobra.Command, level string, asJSON bool) (*slog.Logger, error) {
	var options slog.HandlerOptions
	var parsed slog.Level
	if err := parsed.UnmarshalText([]byte(level)); err != nil {
		return nil, usageError{errors.New("--log-level is " + level + ": use debug, info, warn or error")}
	}
	options.Level = parsed
	if asJSON {
		return slog.New(slog.NewJSONHandler(visibleJSON{cmd.ErrOrStderr()}, &options)), nil
	}
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &options)), nil
}
