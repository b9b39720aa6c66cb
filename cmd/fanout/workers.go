package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/outbox/driver"
)

// silentAfter is how long a process may not have been seen: it says every 30 s that it is there.
const silentAfter = 2 * time.Minute

// wireInstance is one process that runs a relay.
type wireInstance struct {
	Database  string        `json:"database"`
	ID        string        `json:"id"`
	Name      string        `json:"name"`
	Host      string        `json:"host"`
	PID       int           `json:"pid"`
	Version   string        `json:"version,omitempty"`
	StartedAt *time.Time    `json:"started_at,omitempty"`
	SeenAt    *time.Time    `json:"seen_at,omitempty"`
	Silent    bool          `json:"silent"`
	Work      []driver.Work `json:"work"`
	// Unreadable is there for a row that cannot be read, with what is wrong.
	Unreadable string `json:"unreadable,omitempty"`
}

func workersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "Show the processes that run a relay, and what they had claimed when last seen",
		Args:  noArgs,
	}
	target := targetFlags(cmd)
	asJSON := jsonFlag(cmd, jsonLines)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		now := time.Now()
		table, found := newTable(cmd.OutOrStdout(), "DATABASE", "NAME", "HOST", "PID", "VERSION", "STARTED", "SEEN", "IN HAND"), 0
		err = session.each(func(database string) error {
			instances, err := session.Workers(cmd.Context(), database)
			for i := range instances {
				p := &instances[i]
				found++
				silent := now.Sub(p.SeenAt) > silentAfter
				if !*asJSON {
					seen := text(since(p.SeenAt, now))
					if silent {
						seen = styled(seen.text+" (silent)", red)
					}
					table.add(text(database), styled(p.Name, bold), text(p.Host), textf("%d", p.PID), text(orDash(p.Version)),
						text(since(p.StartedAt, now)), seen, inHand(p))
				} else if err := printLine(cmd, toInstance(database, p, silent)); err != nil {
					return err
				}
			}
			return err
		})
		switch {
		case !*asJSON && found > 0:
			err = errors.Join(err, table.print(cmd.OutOrStdout()))
		case !*asJSON && err == nil:
			cmd.PrintErrln("no relay runs: those that were stopped have left the list")
		}
		return err
	}
	return cmd
}

func toInstance(database string, p *driver.Instance, silent bool) wireInstance {
	work := p.Work
	if work == nil {
		work = []driver.Work{}
	}
	return wireInstance{
		Database: database, ID: p.ID.String(), Name: p.Name, Host: p.Host, PID: p.PID, Version: p.Version, StartedAt: toTime(p.StartedAt),
		SeenAt: toTime(p.SeenAt), Silent: silent, Work: work, Unreadable: p.Unreadable,
	}
}

// inHand is what a process had claimed, or why nobody knows.
func inHand(p *driver.Instance) cell {
	if p.Unreadable != "" {
		return styled("unreadable row "+p.ID.String()+": "+shorten(p.Unreadable), red)
	}
	return text(workText(p.Work))
}

// workText sums up what is claimed by broker, in the order in which the brokers come.
func workText(work []driver.Work) string {
	var brokers []string
	sums := map[string]int{}
	for _, w := range work {
		if _, ok := sums[w.Broker]; !ok {
			brokers = append(brokers, w.Broker)
		}
		sums[w.Broker] += w.Rows
	}
	for i, broker := range brokers {
		brokers[i] = fmt.Sprintf("%s: %d", broker, sums[broker])
	}
	return orDash(strings.Join(brokers, ", "))
}
