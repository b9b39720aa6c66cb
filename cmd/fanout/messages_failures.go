package main

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
)

// wireGroup is one group of failures.
type wireGroup struct {
	Database    string                `json:"database"`
	Fingerprint string                `json:"fingerprint"`
	Broker      string                `json:"broker"`
	Class       string                `json:"class"`
	Message     string                `json:"message"`
	Count       int                   `json:"count"`
	ByStatus    map[outbox.Status]int `json:"by_status"`
	Types       map[string]int        `json:"types"`
	FirstAt     *time.Time            `json:"first_at,omitempty"`
	LastAt      *time.Time            `json:"last_at,omitempty"`
	Sample      []string              `json:"sample"`
	Keys        int                   `json:"keys"`
}

func failuresCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "failures",
		Short: "Group what failed and what was abandoned by its cause, the largest group first",
		Long: "Group what failed and what was abandoned by its cause, the largest group first: errors that differ in ids, numbers and quoted parts\n" +
			"alone are one. Of each broker the newest 10,000 rows are looked at. --fingerprint of the other commands takes what is shown here.",
		Args: noArgs,
	}
	target := targetFlags(cmd)
	broker := brokerFlag(cmd)
	asJSON := jsonFlag(cmd, jsonLines)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		now := time.Now()
		table, found := newTable(cmd.OutOrStdout(), "FINGERPRINT", "DATABASE", "BROKER", "FAILED", "ABANDONED", "KEYS", "LAST", "TYPES", "ERROR"), 0
		more := false
		err = session.each(func(database string) error {
			groups, err := session.Failures(cmd.Context(), database, *broker)
			more = more || groups.More
			for i := range groups.Groups {
				g := &groups.Groups[i]
				found++
				if *asJSON {
					if err := printLine(cmd, toGroup(database, g)); err != nil {
						return err
					}
					continue
				}
				table.add(styled(g.Fingerprint, bold), text(database), text(g.Broker), countCell(g.ByStatus[outbox.StatusFailed], yellow),
					countCell(g.ByStatus[outbox.StatusAbandoned], red), text(strconv.Itoa(g.Keys)), text(since(g.LastAt, now)), text(typesText(g.Types)),
					text(shorten(errorText(&outbox.LastError{Class: g.Class, Message: g.Message}))))
			}
			return err
		})
		switch {
		case !*asJSON && found > 0:
			if printErr := table.print(cmd.OutOrStdout()); printErr != nil {
				return printErr
			}
		case !*asJSON && err == nil:
			cmd.PrintErrln("nothing has failed")
		}
		if more {
			cmd.PrintErrln("there are more failures than were looked at: the counts are those of the newest 10,000 of each broker")
		}
		return err
	}
	return cmd
}

func toGroup(database string, g *monitor.FailureGroup) wireGroup {
	return wireGroup{
		Database: database, Fingerprint: g.Fingerprint, Broker: g.Broker, Class: g.Class, Message: g.Message, Count: g.Count, ByStatus: g.ByStatus,
		Types: g.Types, FirstAt: toTime(g.FirstAt), LastAt: toTime(g.LastAt), Sample: g.Sample, Keys: g.Keys,
	}
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
		if types[a] != types[b] {
			return types[b] - types[a]
		}
		return len(a) - len(b)
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
