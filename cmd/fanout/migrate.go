package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/cmd/fanout/internal/clients"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/mysql"
	"github.com/gorm-fanout/fanout/outbox/postgres"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
	"github.com/gorm-fanout/fanout/outbox/sqlserver"
)

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create or update the outbox table in every configured database",
		Long: "Create or update the outbox table in every configured database. Running it again changes nothing.\n" +
			"With --print the SQL goes to standard output for another migration tool, and no database is touched.",
		Args: noArgs,
	}
	path := configFlag(cmd)
	printOnly := cmd.Flags().Bool("print", false, "print the SQL instead of running it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load(cmd, *path)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(cfg.Databases)) {
			if *printOnly {
				err = printMigrations(cmd, cfg, name)
			} else {
				err = migrate(cmd, cfg, name)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func migrate(cmd *cobra.Command, cfg *config.Config, name string) error {
	store, err := fanout.OpenStore(cmd.Context(), cfg, name, clients.Options()...)
	if err != nil {
		return err
	}
	defer store.Close()
	applied, err := store.Migrate(cmd.Context())
	if err != nil {
		return fmt.Errorf("database %q: %w", name, err)
	}
	printApplied(cmd, name, applied)
	return nil
}

// printApplied says which steps of a schema were applied.
func printApplied(cmd *cobra.Command, database string, applied []string) {
	if len(applied) == 0 {
		cmd.Printf("%s: up to date\n", database)
		return
	}
	cmd.Printf("%s: applied %s\n", database, strings.Join(applied, ", "))
}

func printMigrations(cmd *cobra.Command, cfg *config.Config, name string) error {
	migrations := postgres.Migrations
	switch dialect := cfg.Databases[name].Driver; dialect {
	case outbox.Postgres:
	case outbox.SQLServer:
		migrations = sqlserver.Migrations
	case outbox.MySQL:
		migrations = mysql.Migrations
	case outbox.SQLite:
		migrations = sqlite.Migrations
	default:
		return fmt.Errorf("driver %q is not supported", dialect)
	}
	steps, err := migrations(cfg.Routing().WithDefaults().Table)
	if err != nil {
		return err
	}
	for _, step := range steps {
		cmd.Printf("-- database %s (%s), step %04d_%s\n%s\n", name, cfg.Databases[name].Driver, step.Version, step.Name, strings.TrimSpace(step.SQL))
	}
	return nil
}
