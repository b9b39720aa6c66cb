package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
)

func validateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration, the databases with their schema, and the brokers",
		Long: "Check the configuration, the databases with their schema, and the brokers. All problems are reported, not just\n" +
			"the first; a relay would not start with any of them. How a database is set up, rows that nobody delivers and a\n" +
			"broker that cannot be reached can be warnings: a relay starts in spite of them. With --offline only the\n" +
			"configuration is read.",
		Args: noArgs,
	}
	path := configFlag(cmd)
	offline := cmd.Flags().Bool("offline", false, "do not connect to the databases and brokers")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadWith(cmd, *path, config.WithAnyBrokerType()) // with all variables, as a relay needs them
		if err != nil {
			return err
		}
		cmd.Printf("%s: the configuration is valid\n", *path)
		sayWhatLeaves(cmd, cfg)
		if *offline {
			return nil
		}
		var problems []error
		for _, name := range slices.Sorted(maps.Keys(cfg.Databases)) {
			if err := checkDatabase(cmd, cfg, name); err != nil {
				problems = append(problems, err)
			}
		}
		for _, name := range cfg.BrokerNames() {
			problems = append(problems, checkBroker(cmd, cfg, name))
		}
		return errors.Join(problems...)
	}
	return cmd
}

// sayWhatLeaves names what each external broker gets beside the fields that all of them get.
func sayWhatLeaves(cmd *cobra.Command, cfg *config.Config) {
	for _, route := range cfg.Routing().External {
		extensions := "no extensions"
		if len(route.Extensions) > 0 {
			extensions = "the extensions " + strings.Join(route.Extensions, ", ")
		}
		cmd.Printf("external broker %s: published events leave as %s, with %s\n", route.Broker, route.Format, extensions)
	}
}

// checkBroker makes the broker's client and asks whether the broker is there. Of a type that another program registers it can
// only say so.
func checkBroker(cmd *cobra.Command, cfg *config.Config, name string) error {
	if broker := cfg.Brokers[name]; !slices.Contains([]string{config.TypeRedis, config.TypePubSub, config.TypeMemory}, broker.Type) {
		cmd.PrintErrf("warning: broker %s is not checked: its type %q is not built in, and only a program that registers it can deliver\n", name, broker.Type)
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
	defer cancel()
	broker, err := fanout.OpenBroker(ctx, cfg, name)
	if err != nil {
		return err
	}
	defer func() { _ = broker.Close(ctx) }()
	if err := broker.Ping(ctx); err != nil {
		cmd.PrintErrf("warning: broker %s cannot be reached: %s\n", name, printable(err.Error()))
		return nil
	}
	cmd.Printf("broker %s: reached\n", name)
	return nil
}
