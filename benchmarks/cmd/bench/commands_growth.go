package main

import (
	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/benchmarks/internal/scenario"
)

// growthCommands are those of the scenarios that ask how cost grows, and of the project's targets.
func growthCommands(s *settings) []*cobra.Command {
	return []*cobra.Command{
		fanoutCommand(s), payloadCommand(s), purgeCommand(s), restCommand(s), memoryCommand(s), pagesCommand(s), commitCommand(s), targetsCommand(s),
		inboxCommand(s), partitionCommand(s),
	}
}

func defaultGrowth() []scenario.Scenario {
	return []scenario.Scenario{
		scenario.DefaultFanout(), scenario.DefaultPayload(), scenario.DefaultPurge(), scenario.DefaultRest(), scenario.DefaultMemory(), scenario.DefaultPages(),
		scenario.DefaultCommit(), scenario.DefaultInbox(), scenario.DefaultPartition(),
	}
}

func shortGrowth() []scenario.Scenario {
	return []scenario.Scenario{
		scenario.ShortFanout(), scenario.ShortPayload(), scenario.ShortPurge(), scenario.ShortRest(), scenario.ShortMemory(), scenario.ShortPages(), scenario.ShortCommit(),
		scenario.ShortInbox(), scenario.ShortPartition(),
	}
}

func fanoutCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultFanout()
	cmd, flags := command(s, "fanout", "Commits and drains with more and more brokers", &sizes, scenario.ShortFanout)
	flags.IntSliceVar(&sizes.Brokers, "brokers", sizes.Brokers, "numbers of brokers")
	flags.IntVar(&sizes.Workers, "workers", 0, "workers for each broker, instead of the default")
	flags.Int64Var(&sizes.Events, "events", sizes.Events, "events to drain, to each broker")
	flags.IntVar(&sizes.Commits, "commits", sizes.Commits, "transactions, for each number of brokers")
	flags.IntVar(&sizes.Writers, "writers", sizes.Writers, "transactions at a time")
	flags.IntVar(&sizes.Parts, "parts", sizes.Parts, "cut the transactions of a run into so many parts, between which the cases take turns")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.Int64Var(&sizes.Keys, "keys", sizes.Keys, "number of ordering keys")
	return cmd
}

func payloadCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultPayload()
	cmd, flags := command(s, "payload", "A backlog of small messages, and of large ones", &sizes, scenario.ShortPayload)
	flags.IntSliceVar(&sizes.Sizes, "sizes", sizes.Sizes, "bytes of payload")
	flags.Int64Var(&sizes.Rows, "rows", sizes.Rows, "messages to drain, of each size")
	flags.Int64Var(&sizes.Bytes, "bytes", sizes.Bytes, "fewer messages where their payloads would be more than so many bytes")
	flags.Int64Var(&sizes.Keys, "keys", sizes.Keys, "number of ordering keys")
	return cmd
}

func purgeCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultPurge()
	cmd, flags := command(s, "purge", "A purge beside a drain", &sizes, scenario.ShortPurge)
	flags.Int64Var(&sizes.Published, "published", sizes.Published, "rows to purge")
	flags.Int64Var(&sizes.Backlog, "backlog", sizes.Backlog, "messages to drain")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.Int64Var(&sizes.Keys, "keys", sizes.Keys, "number of ordering keys")
	return cmd
}

func restCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultRest()
	cmd, flags := command(s, "idle", "An engine that has nothing to do", &sizes, scenario.ShortRest)
	flags.IntSliceVar(&sizes.Brokers, "brokers", sizes.Brokers, "numbers of brokers")
	flags.DurationVar(&sizes.PollMax, "poll-max", sizes.PollMax, "longest time between two looks")
	secondsVar(flags, &sizes.For, "how long is measured, in seconds, after three times that of two looks")
	return cmd
}

func memoryCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultMemory()
	cmd, flags := command(s, "memory", "The memory of the process with a small backlog, a large one, and one that grows", &sizes, scenario.ShortMemory)
	flags.Int64Var(&sizes.Small, "small", sizes.Small, "messages of the small backlog")
	flags.Int64Var(&sizes.Large, "large", sizes.Large, "messages of the large backlog")
	secondsVar(flags, &sizes.For, "how long more is written than delivered, in seconds")
	flags.IntVar(&sizes.Produce, "produce", sizes.Produce, "messages per second that are written meanwhile")
	flags.IntVar(&sizes.Deliver, "deliver", sizes.Deliver, "messages per second that are delivered meanwhile")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.Int64Var(&sizes.Keys, "keys", sizes.Keys, "number of ordering keys")
	return cmd
}

func pagesCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultPages()
	cmd, flags := command(s, "pages", "What people look at in a large table", &sizes, scenario.ShortPages)
	flags.Int64Var(&sizes.Rows, "rows", sizes.Rows, "rows of the table, half of them finished")
	flags.IntVar(&sizes.Brokers, "brokers", sizes.Brokers, "number of brokers")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.StringVar(&sizes.Database, "database", "", "measure in this database, a `URL`, which has such a table already, named outbox")
	flags.IntVar(&sizes.Calls, "calls", sizes.Calls, "calls of each kind to measure in each run")
	return cmd
}

func commitCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultCommit()
	cmd, _ := command(s, "commit", "Commits with the plugin and without it, as make bench-commit measures them", &sizes, scenario.ShortCommit)
	cmd.Flags().IntVar(&sizes.Rounds, "rounds", sizes.Rounds, "rounds of a few transactions of each kind")
	return cmd
}

func inboxCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultInbox()
	cmd, flags := command(s, "inbox", "Handling each message once, beside transactions written by hand", &sizes, scenario.ShortInbox)
	flags.IntVar(&sizes.Messages, "messages", sizes.Messages, "messages to handle in each run, for each number of workers and in each way")
	flags.IntVar(&sizes.Parts, "parts", sizes.Parts, "cut the messages of a run into so many parts, between which the ways take turns")
	flags.IntSliceVar(&sizes.Workers, "workers", sizes.Workers, "numbers of workers")
	flags.IntVar(&sizes.Projections, "projections", sizes.Projections, "rows that the messages change")
	return cmd
}

func partitionCommand(s *settings) *cobra.Command {
	sizes := scenario.DefaultPartition()
	cmd, flags := command(s, "partition", "An outbox that is partitioned by day, beside one that is not", &sizes, scenario.ShortPartition)
	flags.Int64Var(&sizes.Rows, "rows", sizes.Rows, "published rows of each table")
	flags.Int64Var(&sizes.Days, "days", sizes.Days, "days on which they were published")
	flags.IntVar(&sizes.Payload, "payload", sizes.Payload, "bytes of payload")
	flags.Int64Var(&sizes.Keys, "keys", sizes.Keys, "number of ordering keys")
	flags.IntSliceVar(&sizes.Batches, "batches", sizes.Batches, "messages of an exchange")
	flags.IntVar(&sizes.Exchanges, "exchanges", sizes.Exchanges, "exchanges of each size, with each table")
	flags.IntVar(&sizes.Commits, "commits", sizes.Commits, "transactions of one message, on each table")
	return cmd
}

func targetsCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{Use: "targets", Short: "All scenarios that the project's targets need, and a table of the targets", Args: noArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s.targets = true
		if s.short {
			return s.measure(cmd, scenario.ShortBacklog(), scenario.ShortCommit(), scenario.ShortClaims(), scenario.ShortIdle(), scenario.ShortHung(),
				scenario.ShortPurge(), scenario.ShortRest(), scenario.ShortLatency())
		}
		return s.measure(cmd, scenario.DefaultBacklog(), scenario.DefaultCommit(), scenario.DefaultClaims(), scenario.DefaultIdle(), scenario.DefaultHung(),
			scenario.DefaultPurge(), scenario.DefaultRest(), scenario.DefaultLatency())
	}
	return cmd
}
