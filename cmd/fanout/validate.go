package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

// connectTimeout bounds how long a command waits for a database to answer.
const connectTimeout = 10 * time.Second

func validateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration, the databases with their schema, and the brokers",
		Long: "Check the configuration, the databases with their schema, and the brokers. All problems are reported, not just\n" +
			"the first. A broker that cannot be reached is a warning: a relay starts without it. With --offline only the\n" +
			"configuration is read.",
		Args: noArgs,
	}
	path := configFlag(cmd)
	offline := cmd.Flags().Bool("offline", false, "do not connect to the databases")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load(cmd, *path)
		if err != nil {
			return err
		}
		cmd.Printf("%s: the configuration is valid\n", *path)
		if *offline {
			return nil
		}
		var problems []error
		for _, name := range slices.Sorted(maps.Keys(cfg.Databases)) {
			if err := check(cmd.Context(), cfg, name); err != nil {
				problems = append(problems, err)
				continue
			}
			cmd.Printf("database %s: the schema is up to date\n", name)
			problems = append(problems, warnOfOrphans(cmd, cfg, name))
		}
		for _, name := range cfg.BrokerNames() {
			problems = append(problems, checkBroker(cmd, cfg, name))
		}
		return errors.Join(problems...)
	}
	return cmd
}

// warnOfOrphans names the brokers that have rows and no place in the configuration: nobody delivers those.
func warnOfOrphans(cmd *cobra.Command, cfg *config.Config, name string) error {
	entries, err := counts(cmd.Context(), cfg, name)
	if err != nil {
		return err
	}
	for broker, status := range summarise(cfg, entries).Brokers {
		open := status.Counts[outbox.StatusPending] + status.Counts[outbox.StatusProcessing] + status.Counts[outbox.StatusFailed]
		if status.Unknown && open > 0 {
			cmd.PrintErrf("warning: database %s: %d rows wait for broker %q, which is not configured: nobody delivers them\n", name, open, broker)
		}
	}
	return nil
}

// checkBroker makes the broker's client and asks whether the broker is there.
func checkBroker(cmd *cobra.Command, cfg *config.Config, name string) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
	defer cancel()
	broker, err := fanout.OpenBroker(ctx, cfg, name)
	if err != nil {
		return err
	}
	defer func() { _ = broker.Close(ctx) }()
	if err := broker.Ping(ctx); err != nil {
		cmd.PrintErrf("warning: broker %s cannot be reached: %v\n", name, err)
		return nil
	}
	cmd.Printf("broker %s: reached\n", name)
	return nil
}

func check(ctx context.Context, cfg *config.Config, name string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	store, err := fanout.OpenStore(ctx, cfg, name)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Check(ctx)
}
