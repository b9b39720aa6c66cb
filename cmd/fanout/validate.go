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
)

// connectTimeout bounds how long a command waits for a database to answer.
const connectTimeout = 10 * time.Second

func validateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check the configuration, the databases and their schema",
		Long: "Check the configuration, the databases and their schema. All problems are reported, not just the first.\n" +
			"With --offline only the configuration is read.",
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
		}
		return errors.Join(problems...)
	}
	return cmd
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
