package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/benchmarks/internal/scenario"
)

func latencyCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultLatency()
	cmd := &cobra.Command{Use: "latency", Short: "From a commit to a consumer of Redis Streams, beside loops written by hand and other projects", Args: noArgs}
	flags := cmd.Flags()
	seconds := flags.Float64("seconds", sizes.For.Seconds(), "how long transactions are written in each turn, in seconds")
	flags.IntVar(&sizes.Turns, "turns", sizes.Turns, "turns of each case in each run")
	flags.IntVar(&sizes.Rate, "rate", sizes.Rate, "transactions per second")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.StringArrayVar(&sizes.Only, "only", nil, "measure only the cases in whose names this `text` occurs; may be given more than once")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		sizes.For = time.Duration(*seconds * float64(time.Second))
		if s.short {
			only := sizes.Only
			sizes = scenario.ShortLatency()
			sizes.Only = only
		}
		return s.measure(cmd, sizes)
	}
	return cmd
}
