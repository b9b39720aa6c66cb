package main

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
)

func failuresCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "failures",
		Short: "Group failed and abandoned messages by cause, the largest group first",
		Long: "Group failed and abandoned messages by cause, the largest group first: errors that differ only in ids, numbers and quoted parts are\n" +
			"the same. The newest 10,000 rows of each broker are read. --fingerprint of other commands selects a group.",
		Args: noArgs,
	}
	target := targetFlags(cmd)
	broker := brokerFlag(cmd)
	asJSON := jsonFlag(cmd, jsonLines)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		now, more := time.Now(), false
		out := newOutput(cmd, *asJSON, "FINGERPRINT", "DATABASE", "BROKER", "FAILED", "ABANDONED", "KEYS", "LAST", "TYPES", "ERROR")
		err := target.show(out, *broker, "nothing has failed", func(session *session, database string) error {
			groups, err := session.Failures(cmd.Context(), database, *broker)
			more = more || groups.More
			for i := range groups.Groups {
				g := &groups.Groups[i]
				if err := out.add(wireGroup{database, g},
					styled(g.Fingerprint, bold), text(database), text(g.Broker), countCell(g.ByStatus[outbox.StatusFailed], yellow),
					countCell(g.ByStatus[outbox.StatusAbandoned], red), text(strconv.Itoa(g.Keys)), text(since(g.LastAt, now)), text(typesText(g.Types)),
					text(shorten(errorText(&outbox.LastError{Class: g.Class, Message: g.Message})))); err != nil {
					return err
				}
			}
			return err
		})
		if more {
			cmd.PrintErrln("there are more failures: the counts are those of the newest 10,000 of each broker")
		}
		return err
	}
	return cmd
}

// wireGroup adds the database to a group's JSON.
type wireGroup struct {
	Database string `json:"database"`
	*monitor.FailureGroup
}

// brokerFlag adds --broker to a command that has no other filter.
func brokerFlag(cmd *cobra.Command) *string {
	broker := cmd.Flags().String("broker", "", "only of this broker (default: of all)")
	complete(cmd, "broker", (*config.Config).BrokerNames)
	return broker
}

func countCell(n int, as style) cell {
	if n == 0 {
		return text("0")
	}
	return styled(thousands(int64(n)), as)
}

// typesText names the commonest event type, and how many others there are.
func typesText(types map[string]int) string {
	names := slices.SortedFunc(maps.Keys(types), func(a, b string) int {
		return cmp.Or(types[b]-types[a], len(a)-len(b))
	})
	switch len(names) {
	case 0:
		return "-"
	case 1:
		return names[0]
	default:
		return names[0] + " and " + strconv.Itoa(len(names)-1) + " more"
	}
}
