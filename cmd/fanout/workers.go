package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

func workersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "workers",
		Short: "Show the processes that run a relay, and what they had claimed when last seen",
		Args:  noArgs,
	}
	target := targetFlags(cmd)
	asJSON := jsonFlag(cmd, jsonLines)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		now := time.Now()
		out := newOutput(cmd, *asJSON, "DATABASE", "NAME", "HOST", "PID", "VERSION", "STARTED", "SEEN", "CLAIMED")
		return target.show(out, "", "no relay runs: a relay that stops leaves the list", func(session *session, database string) error {
			instances, err := session.Workers(cmd.Context(), database)
			for i := range instances {
				p := &instances[i]
				object, seen := api.NewInstance(database, p, now), text(since(p.SeenAt, now))
				if object.Silent {
					seen = styled(seen.text+" (gone: killed, or cut off)", red)
				}
				if err := out.add(object, text(database), styled(p.Name, bold), text(p.Host), textf("%d", p.PID), text(orDash(p.Version)),
					text(since(p.StartedAt, now)), seen, claimed(p)); err != nil {
					return err
				}
			}
			return err
		})
	}
	return cmd
}

// claimed is what a process had claimed, or why that is not known.
func claimed(p *admin.Instance) cell {
	if p.Unreadable != "" {
		return styled("unreadable row "+p.ID.String()+": "+shorten(p.Unreadable), red)
	}
	return text(workText(p.Work))
}

// workText sums up what is claimed by broker, in the order in which the brokers come.
func workText(work []admin.Work) string {
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
