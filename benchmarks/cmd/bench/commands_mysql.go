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

func prioritiesCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultPriorities()
	cmd, flags := command(s, "priorities", "A backlog of mixed priorities, beside one in which all are alike", &sizes, scenario.ShortPriorities)
	flags.IntVar(&sizes.Rows, "rows", sizes.Rows, "messages to drain in each case")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.IntVar(&sizes.Batch, "batch", sizes.Batch, "rows of a claim")
	flags.Int64SliceVar(&sizes.Keys, "keys", sizes.Keys, "numbers of ordering keys")
	flags.Int64SliceVar(&sizes.Shares, "low", sizes.Shares, "how many of 100 messages have a low priority")
	return cmd
}

func mysqlClaimsCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultMySQLClaims()
	cmd, flags := command(s, "mysql-claims", "Claims of MySQL or MariaDB in a large table, and beside a forgotten transaction", &sizes, scenario.ShortMySQLClaims)
	flags.IntVar(&sizes.Rows, "rows", sizes.Rows, "rows of the large table, half of them published")
	flags.IntVar(&sizes.Small, "small", sizes.Small, "rows of the small table, all pending")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.IntVar(&sizes.Batch, "batch", sizes.Batch, "rows of a claim")
	flags.IntVar(&sizes.Keys, "keys", sizes.Keys, "number of ordering keys")
	flags.IntVar(&sizes.Exchanges, "exchanges", sizes.Exchanges, "claims to measure in each run, with each table")
	flags.IntVar(&sizes.Rate, "rate", sizes.Rate, "messages written per second beside the transaction")
	secondsVar(flags, &sizes.For, "how long the transaction is open")
	flags.BoolVar(&sizes.Writes, "writes", sizes.Writes, "the transaction writes a message, too")
	return cmd
}
