package main

import (
	"errors"
	"fmt"
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
		Long: "Create or update the outbox table in every configured database. Running it again changes nothing. Tables that another\n" +
			"migration tool has made are recorded; where they are not as they should be, each difference is named, and nothing is changed.\n" +
			"With --print the SQL goes to standard output for another migration tool, and no database is touched.",
		Example: "  fanout migrate\n  fanout migrate --print --database shop | psql -1 -v ON_ERROR_STOP=1 \"$SHOP_DSN\"",
		Args:    noArgs,
	}
	target := targetFlags(cmd)
	printOnly := printFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *printOnly {
			return printAll(cmd, target, printMigrations)
		}
		cfg, err := load(cmd, *target.config)
		if err != nil {
			return err
		}
		_, problem := addTenants(cmd, cfg)
		return withTenants(oneByOne(cmd, cfg, target, migrate), problem)
	}
	return cmd
}

func printFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("print", false, "print the SQL instead of running it")
}

// printAll prints the steps of each database. No value that stands for a secret is needed.
func printAll(cmd *cobra.Command, target *target, steps func(cmd *cobra.Command, cfg *config.Config, database string) error) error {
	cfg, err := loadWith(cmd, *target.config, config.WithUnsetVariables("databases", "consumers", "brokers", "monitor"))
	if err != nil {
		return err
	}
	return oneByOne(cmd, cfg, target, steps)
}

// oneByOne does something to each database. One that fails does not keep it from the others: a tenant's
// may have been dropped.
func oneByOne(cmd *cobra.Command, cfg *config.Config, target *target, do func(cmd *cobra.Command, cfg *config.Config, database string) error) error {
	names, err := target.names(cfg)
	if err != nil {
		return err
	}
	var problems []error
	for _, name := range names {
		problems = append(problems, do(cmd, cfg, name))
	}
	return errors.Join(problems...)
}

func migrate(cmd *cobra.Command, cfg *config.Config, name string) error {
	store, err := fanout.OpenStore(cmd.Context(), cfg, name, clients.Options()...)
	if err != nil {
		return err
	}
	defer store.Close()
	steps, err := store.Migrate(cmd.Context())
	if err != nil {
		return fmt.Errorf("database %q: %w", name, spellOut(err))
	}
	printSteps(cmd, name, steps)
	return nil
}

// printSteps says which steps of a schema were applied, and which were recorded: these have a note
// behind their names.
func printSteps(cmd *cobra.Command, database string, steps []string) {
	var applied []string
	for _, step := range steps {
		if strings.Contains(step, " ") {
			cmd.Printf("%s: %s\n", database, step)
		} else {
			applied = append(applied, step)
		}
	}
	switch {
	case len(steps) == 0:
		cmd.Printf("%s: up to date\n", database)
	case len(applied) > 0:
		cmd.Printf("%s: applied %s\n", database, strings.Join(applied, ", "))
	}
}

func printMigrations(cmd *cobra.Command, cfg *config.Config, name string) error {
	table := cfg.Routing().WithDefaults().Table
	steps, err := postgres.Migrations(table)
	switch dialect := cfg.Databases[name].Driver; dialect {
	case outbox.Postgres:
	case outbox.SQLServer:
		steps, err = sqlserver.Migrations(table)
	case outbox.MySQL:
		steps, err = mysql.Migrations(table)
	case outbox.SQLite:
		steps, err = sqlite.Migrations(table)
	default:
		return fmt.Errorf("driver %q is not supported", dialect)
	}
	if err != nil {
		return err
	}
	for _, step := range steps {
		printStep(cmd, cfg, name, step.String(), step.SQL)
	}
	return nil
}

// printStep prints a step so that the command lines of databases take it: the last statement ends like
// the others.
func printStep(cmd *cobra.Command, cfg *config.Config, database, step, text string) {
	text = strings.TrimSuffix(strings.TrimSpace(text), ";")
	cmd.Printf("-- database %s (%s), step %s\n%s;\n", database, cfg.Databases[database].Driver, step, text)
}
