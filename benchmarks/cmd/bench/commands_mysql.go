package main

import (
	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/benchmarks/internal/scenario"
)

func mysqlCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultMySQL()
	cmd := &cobra.Command{Use: "mysql", Short: "A backlog out of MySQL or MariaDB, beside a loop written by hand", Args: noArgs}
	flags := cmd.Flags()
	flags.IntVar(&sizes.Rows, "rows", sizes.Rows, "messages to drain")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.IntVar(&sizes.Batch, "batch", sizes.Batch, "rows of a claim")
	flags.IntVar(&sizes.Keys, "keys", sizes.Keys, "number of ordering keys")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.short {
			sizes = scenario.ShortMySQL()
		}
		return s.measure(cmd, sizes)
	}
	return cmd
}
