package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/benchmarks/internal/scenario"
)

func sqliteCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultSQLite()
	cmd := &cobra.Command{Use: "sqlite", Short: "A backlog out of SQLite, beside a loop written by hand, and what it costs the application's transactions", Args: noArgs}
	flags := cmd.Flags()
	flags.Int64Var(&sizes.Rows, "rows", sizes.Rows, "messages to drain")
	flags.Int64Var(&sizes.Parts, "parts", sizes.Parts, "cut the messages of a run into so many backlogs, between which the cases take turns")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.IntVar(&sizes.Batch, "batch", sizes.Batch, "rows of a claim")
	flags.Int64Var(&sizes.Keys, "keys", sizes.Keys, "number of ordering keys")
	pause := flags.Float64("pause", float64(sizes.Pause)/float64(time.Millisecond), "between two transactions of the application, in milliseconds")
	flags.StringArrayVar(&sizes.Only, "only", nil, "measure only the cases in whose names this `text` occurs; may be given more than once")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		sizes.Pause = time.Duration(*pause * float64(time.Millisecond))
		if s.short {
			sizes = scenario.ShortSQLite()
		}
		return s.measure(cmd, sizes)
	}
	return cmd
}
