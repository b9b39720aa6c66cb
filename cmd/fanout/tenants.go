package main

import (
	"context"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
)

// addTenants asks once which tenants there are, and makes databases of the configuration of them, whose
// names it returns. The error names those that are wrong, or says why the list could not be read.
func addTenants(cmd *cobra.Command, cfg *config.Config) (names map[string]bool, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
	defer cancel()
	found, err := fanout.Tenants(ctx, cfg)
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

// tenantFaults are what is wrong with the list of the tenants, a line each.
func (s *session) tenantFaults() []string {
	if s.tenants == nil {
		return nil
	}
	return strings.Split(s.tenants.Error(), "\n")
}
