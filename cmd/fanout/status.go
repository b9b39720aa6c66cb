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

// watchEvery is the time between two samples of "status --watch".
const watchEvery = 2 * time.Second

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of every broker: what waits, since when, and why",
		Long: "Show the state of every broker: what waits, since when, and why. It queries only the databases, and needs no relay and no broker.\n" +
			"Counts stop at 10,000 (\"10,000+\") unless --exact counts every row, which may take long in a large table. With --watch the output\n" +
			"has rates from the second sample on. Which brokers and destinations are unavailable is what relays said in their last heartbeat.\n" +
			"--check prints only what needs a person, and exits with 1 where there is something, for probes and cron: no relay that runs, a database\n" +
			"that does not answer, unavailable brokers and destinations, blocked keys, abandoned messages that are not acknowledged, stranded\n" +
			"messages, those of brokers that are not configured, a lag of more than a minute, pauses of more than an hour, and consumers of the\n" +
			"configuration whose inboxes have lacked a published message for more than a minute.",
		Args: noArgs,
	}
	target := targetFlags(cmd)
	asJSON := jsonFlag(cmd, "print one JSON object; with --watch one per line")
	watch := cmd.Flags().BoolP("watch", "w", false, "repeat every two seconds, with rates")
	exact := cmd.Flags().Bool("exact", false, "count every row")
	checks := cmd.Flags().Bool("check", false, "only say what needs a person, and exit with 1 where there is something")
	cmd.MarkFlagsMutuallyExclusive("check", "watch")
	cmd.MarkFlagsMutuallyExclusive("check", "json")
	cmd.MarkFlagsMutuallyExclusive("check", "exact")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		session, err := target.open(cmd)
		if err != nil {
			return err
		}
		defer session.Close()
		sampler := &sampler{session: session, exact: *exact}
		if !*watch {
			status := sampler.sample(cmd.Context(), time.Now())
			found := lookForStranded(cmd.Context(), session, status)
			consumers := session.Consumers(cmd.Context())
			if *checks {
				return check(cmd, slices.Concat(faults(status, found, time.Now()), consumerFaults(consumers), session.tenantFaults()))
			}
			if *asJSON {
				err = printJSON(cmd, toStatus(status, sampler.rates))
			} else {
				err = printStatus(cmd, status, nil, found)
				for _, note := range consumerNotes(consumers) {
					cmd.Println(printable(note))
				}
			}
			return errors.Join(err, problems(status), session.tenants)
		}
		for {
			if err := repeat(cmd, sampler, *asJSON); err != nil {
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

// repeat shows one of many samples.
func repeat(cmd *cobra.Command, sampler *sampler, asJSON bool) error {
	status := sampler.sample(cmd.Context(), time.Now())
	if cmd.Context().Err() != nil { // the sample is incomplete
		return nil //nolint:nilerr // users end it this way
	}
	if asJSON {
		return printLine(cmd, toStatus(status, sampler.rates))
	}
	if isTerminal(cmd.OutOrStdout()) {
		cmd.Print("\x1b[H\x1b[2J") // from the top of an empty screen
	}
	cmd.Printf("%s\n", moment(time.Now()))
	if err := printStatus(cmd, status, sampler.rates, nil); err != nil {
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

// sampler takes samples of the status.
type sampler struct {
	session *session
	exact   bool
	// rates between the last two samples; empty after the first one.
	rates  map[spot]rates
	before map[spot]monitor.BrokerStatus
	at     time.Time
}

// spot is one broker of one database.
type spot struct{ database, broker string }

// sample queries all databases. One that fails has an error of its own.
func (s *sampler) sample(ctx context.Context, now time.Time) map[string]monitor.DatabaseStatus {
	status := s.session.Status(ctx, monitor.DefaultMaxCount)
	for name, err := range s.session.failed {
		status[name] = monitor.DatabaseStatus{Err: err}
	}
	if s.exact {
		s.count(ctx, status)
	}
	s.measure(ctx, status, now)
	return status
}

// count replaces capped counts by exact ones.
func (s *sampler) count(ctx context.Context, status map[string]monitor.DatabaseStatus) {
	for name, store := range s.session.stores {
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
		counts, sum := unlisted(counts, database.Brokers)
		counts = append(counts, sum)
		if slices.ContainsFunc(outbox.Statuses(), func(s outbox.Status) bool { return sum.Counts[s] > 0 }) {
			others := monitor.BrokerStatus{Unknown: true}
			others.Broker, others.Counts = admin.OtherBrokers, map[outbox.Status]admin.Count{}
			for _, s := range outbox.Statuses() {
				others.Counts[s] = admin.Count{}
			}
			database.Brokers = append(database.Brokers, others)
		}
		for i := range database.Brokers {
			broker := &database.Brokers[i]
			at := slices.IndexFunc(counts, func(c admin.BrokerCounts) bool { return c.Broker == broker.Broker })
			for status := range broker.Counts {
				var n int64
				if at >= 0 {
					n = counts[at].Counts[status]
				}
				broker.Counts[status] = admin.Count{N: n}
				database.Counts[status] = admin.Count{N: database.Counts[status].N + n}
			}
		}
		status[name] = database
	}
}

// unlisted takes the counts of brokers that are not listed, by whatever order of names, out of the others,
// and sums them.
func unlisted(counts []admin.BrokerCounts, brokers []monitor.BrokerStatus) (listed []admin.BrokerCounts, sum admin.BrokerCounts) {
	sum = admin.BrokerCounts{Broker: admin.OtherBrokers, Counts: map[outbox.Status]int64{}}
	for _, c := range counts {
		if slices.ContainsFunc(brokers, func(b monitor.BrokerStatus) bool { return b.Broker == c.Broker }) {
			listed = append(listed, c)
			continue
		}
		for s, n := range c.Counts {
			sum.Counts[s] += n
		}
	}
	return listed, sum
}

// problems joins the errors of databases.
func problems(status map[string]monitor.DatabaseStatus) error {
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(status)) {
		problems = append(problems, status[name].Err)
	}
	return errors.Join(problems...)
}

// openRows are the unfinished rows.
func openRows(b *monitor.BrokerStatus) int64 {
	return b.Counts[outbox.StatusPending].N + b.Counts[outbox.StatusProcessing].N + b.Counts[outbox.StatusFailed].N
}

// stray reports whether an unconfigured broker has unfinished rows, which no relay delivers.
func stray(b *monitor.BrokerStatus) bool { return b.Unknown && openRows(b) > 0 }
