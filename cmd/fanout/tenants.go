package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

// addTenants asks once which tenants there are, and makes databases of the configuration of them, whose
// names it returns. The error names those that are wrong, or says why the list could not be read.
func addTenants(cmd *cobra.Command, cfg *config.Config) (names map[string]bool, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
	defer cancel()
	found, err := fanout.Tenants(ctx, cfg)
	if err != nil {
		err = errors.New(err.Error()) // an entry of the list that is wrong is no wrong configuration, which has another exit code
	}
	if len(found) == 0 {
		return nil, err
	}
	names = map[string]bool{}
	all := maps.Clone(cfg.Databases)
	for name, database := range found {
		all[name], names[name] = database, true
	}
	cfg.Databases = all
	return names, err
}

// withTenants adds what is wrong with the list of the tenants to an error. A database that there is not may
// be one that the list has, so the command line is not what was wrong.
func withTenants(err, problem error) error {
	if err == nil || problem == nil {
		return errors.Join(err, problem)
	}
	return errors.New(errors.Join(err, problem).Error())
}

// tenantFaults are what is wrong with the list of the tenants, a line each.
func (s *session) tenantFaults() []string {
	if s.tenants == nil {
		return nil
	}
	return strings.Split(s.tenants.Error(), "\n")
}

// present fails where a tenant on SQLite has no file: a question would make one, wherever the list says.
func present(cfg *config.Config, name string) error {
	if database := cfg.Databases[name]; database.Driver == outbox.SQLite {
		if _, err := os.Stat(database.DSN.Reveal()); err != nil {
			return fmt.Errorf("sqlite: cannot open the tenant's file: %w", err)
		}
	}
	return nil
}
