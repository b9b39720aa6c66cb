package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// printStatus shows one line per broker, and below them the pauses and what needs a person. nil rates have
// no columns.
func printStatus(cmd *cobra.Command, status map[string]monitor.DatabaseStatus, rated map[spot]rates, found map[string]stranded) error {
	head := []string{"DATABASE", "BROKER", "PENDING", "PROCESSING", "FAILED", "PUBLISHED", "ABANDONED", "DEFERRED", "OLDEST", "LAG", "LAST SENT"}
	if rated != nil {
		head = append(head, "SENT/S", "RETRY")
	}
	out, now := cmd.OutOrStdout(), time.Now()
	table := newTable(out, append(head, "LAST ERROR")...)
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(status)) {
		database := status[name]
		if database.Err != nil {
			row := cells(name)
			for range len(head) - 1 {
				row = append(row, text("-"))
			}
			table.add(append(row, styled("does not answer (see below)", red))...)
			continue
		}
		strangers := 0
		for i := range database.Brokers {
			b := &database.Brokers[i]
			if b.Unknown {
				strangers++
			}
			row := []cell{text(name), brokerCell(b)}
			for _, s := range outbox.Statuses() {
				row = append(row, statusCell(s, b.Counts[s]))
			}
			row = append(row, text(countText(b.Deferred)), text(age(b.OldestPending)), lagCell(b.Lag), lastSentCell(b, now))
			if rated != nil {
				row = append(row, rateCells(rated, spot{name, b.Broker})...)
			}
			table.add(append(row, text(agedError(b.LastError, now)))...)
			if b.Paused != nil {
				notes = append(notes, pauseNote(name, b.Paused, now))
			}
		}
		notes = append(notes, statusNotes(name, &database, found[name], now)...)
		if strangers >= admin.MaxStrangers {
			notes = append(notes, fmt.Sprintf("%s: of brokers that are not configured, the first %d by name are shown: there may be more", name, admin.MaxStrangers))
		}
	}
	if err := table.print(out); err != nil {
		return err
	}
	for _, note := range notes {
		cmd.Println(printable(note))
	}
	return nil
}

func brokerCell(b *monitor.BrokerStatus) cell {
	c := styled(b.Broker, bold)
	if stray(b) {
		c.text += " (not configured!)"
		c.style = red
	}
	if b.Paused != nil {
		c.text += " (paused)"
		c.style = yellow
	}
	return c
}

func pauseNote(database string, p *admin.Pause, now time.Time) string {
	note := fmt.Sprintf("%s: broker %s has been paused for %s", database, p.Broker, age(max(time.Millisecond, now.Sub(p.Since))))
	if p.By != "" {
		note += " by " + p.By
	}
	if p.Reason != "" {
		note += ": " + p.Reason
	}
	return note + fmt.Sprintf(" (fanout broker resume %s)", p.Broker)
}

func statusCell(s outbox.Status, n admin.Count) cell {
	c := text(countText(n))
	if n.N > 0 {
		c.style = statusStyle(s)
	}
	return c
}

// lateAfter is the lag from which a broker counts as late.
const lateAfter = time.Minute

func lagCell(lag time.Duration) cell {
	c := text(age(lag))
	if lag > lateAfter {
		c.style = red
	}
	return c
}

// lastSentCell is when a message was delivered last, which only rows that are kept tell.
func lastSentCell(b *monitor.BrokerStatus, now time.Time) cell {
	if b.NotKept {
		return text("not kept")
	}
	return text(since(b.LastPublished, now))
}

func rateCells(rated map[spot]rates, at spot) []cell {
	r, ok := rated[at]
	if !ok {
		return cells("-", "-")
	}
	sent, retry := fmt.Sprintf("%.1f", r.Published), "-"
	if r.AtLeast {
		sent += "+"
	}
	if r.Known {
		retry = fmt.Sprintf("%.0f %%", 100*r.Retry)
	}
	return cells(sent, retry)
}
