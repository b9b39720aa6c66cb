package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// watchEvery is the time between two looks of "status --watch".
const watchEvery = 2 * time.Second

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show where every broker stands: what waits, since when, and why",
		Long: "Show where every broker stands: what waits, since when, and why. It asks the databases alone, and needs no relay and no broker.\n" +
			"Counts stop at 10,000 (\"10,000+\") unless --exact counts every row, which takes its time in a large table. With --watch the second look\n" +
			"and all later ones show rates. Circuit breakers are each relay's own: its log and its metrics tell of them.",
		Args: noArgs,
	}
	target := targetFlags(cmd)
	asJSON := jsonFlag(cmd, "print one JSON object; with --watch one per line")
	watch := cmd.Flags().BoolP("watch", "w", false, "repeat every two seconds, with rates")
	exact := cmd.Flags().Bool("exact", false, "count every row")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		look := &look{session: session, exact: *exact}
		if !*watch {
			status := look.take(cmd.Context(), time.Now())
			if *asJSON {
				err = printJSON(cmd, toStatus(status, look.rates))
			} else {
				err = printStatus(cmd, status, nil)
			}
			return errors.Join(err, problems(status))
		}
		for {
			if err := repeat(cmd, look, *asJSON); err != nil {
				return err
			}
			select {
			case <-cmd.Context().Done():
				return nil
			case <-time.After(watchEvery):
			}
		}
	}
	return cmd
}

// repeat shows one look of many.
func repeat(cmd *cobra.Command, look *look, asJSON bool) error {
	status := look.take(cmd.Context(), time.Now())
	if cmd.Context().Err() != nil { // what came back is half an answer
		return nil //nolint:nilerr // to end it is how one leaves it
	}
	if asJSON {
		return printLine(cmd, toStatus(status, look.rates))
	}
	if isTerminal(cmd.OutOrStdout()) {
		cmd.Print("\x1b[H\x1b[2J") // from the top of an empty screen
	}
	cmd.Printf("%s\n", moment(time.Now()))
	if err := printStatus(cmd, status, look.rates); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(status)) {
		if err := status[name].Err; err != nil {
			cmd.Printf("%s: %s\n", name, printable(err.Error()))
		}
	}
	cmd.Println()
	return nil
}

// look looks again and again.
type look struct {
	session *session
	exact   bool
	// rates of the last look; empty after the first one.
	rates  map[spot]rates
	before map[spot]monitor.BrokerStatus
	at     time.Time
}

// spot is one broker of one database.
type spot struct{ database, broker string }

// take asks all databases. One that cannot be asked answers with its error, for itself only.
func (l *look) take(ctx context.Context, now time.Time) map[string]monitor.DatabaseStatus {
	status := l.session.Status(ctx, monitor.DefaultMaxCount)
	for name, err := range l.session.failed {
		status[name] = monitor.DatabaseStatus{Err: err}
	}
	if l.exact {
		l.count(ctx, status)
	}
	l.measure(ctx, status, now)
	return status
}

// count puts exact counts in place of those that stop.
func (l *look) count(ctx context.Context, status map[string]monitor.DatabaseStatus) {
	for name, store := range l.session.stores {
		if status[name].Err != nil {
			continue
		}
		counts, err := store.Counts(ctx)
		if err != nil {
			status[name] = monitor.DatabaseStatus{Err: fmt.Errorf("database %q: %w", name, err)}
			continue
		}
		database := status[name]
		database.Counts = map[outbox.Status]admin.Count{}
		for i := range database.Brokers {
			broker := &database.Brokers[i]
			at := slices.IndexFunc(counts, func(c admin.BrokerCounts) bool { return c.Broker == broker.Broker })
			for s := range broker.Counts {
				var n int64
				if at >= 0 {
					n = counts[at].Counts[s]
				}
				broker.Counts[s] = admin.Count{N: n}
				database.Counts[s] = admin.Count{N: database.Counts[s].N + n}
			}
		}
		status[name] = database
	}
}

// problems joins the errors of databases.
func problems(status map[string]monitor.DatabaseStatus) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(status)) {
		problems = append(problems, status[name].Err)
	}
	return errors.Join(problems...)
}

// openRows are the rows that somebody has to deliver.
func openRows(b *monitor.BrokerStatus) int64 {
	return b.Counts[outbox.StatusPending].N + b.Counts[outbox.StatusProcessing].N + b.Counts[outbox.StatusFailed].N
}

// stray reports whether rows wait that nobody delivers. A broker that was removed and has finished rows only is nobody's business.
func stray(b *monitor.BrokerStatus) bool { return b.Unknown && openRows(b) > 0 }
