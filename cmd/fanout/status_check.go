package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// stranded are the rows of one database that no rule can ever make due.
type stranded struct {
	rows []admin.Record
	more bool
}

// lookForStranded asks the databases that answered.
func lookForStranded(ctx context.Context, session *session, status map[string]monitor.DatabaseStatus) map[string]stranded {
	found := map[string]stranded{}
	for name, database := range status {
		if database.Err != nil {
			continue
		}
		rows, more, err := session.Stranded(ctx, name)
		if err != nil {
			database.Err = err
			status[name] = database
			continue
		}
		found[name] = stranded{rows, more}
	}
	return found
}

// forgottenAfter is the age of a pause from which it counts as forgotten, as for the alert FanoutBrokerPaused.
const forgottenAfter = time.Hour

// faults are the sentences about what needs a person, database by database.
func faults(status map[string]monitor.DatabaseStatus, found map[string]stranded, now time.Time) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(status)) {
		database := status[name]
		say := func(format string, args ...any) { list = append(list, name+": "+fmt.Sprintf(format, args...)) }
		if database.Err != nil {
			say("does not answer: %v", database.Err)
			continue
		}
		if note := relaysNote(&database, now); len(database.Relays) == database.Silent(now) {
			say("%s", note)
		}
		for i := range database.Brokers {
			b := &database.Brokers[i]
			if b.Paused != nil && now.Sub(b.Paused.Since) > forgottenAfter {
				list = append(list, pauseNote(name, b.Paused, now))
			}
			for _, fault := range brokerFaults(b) {
				say("broker %s: %s", b.Broker, fault)
			}
		}
		if note := strandedNote(found[name]); note != "" {
			say("%s", note)
		}
	}
	return list
}

// brokerFaults say what of a broker needs a person.
func brokerFaults(b *monitor.BrokerStatus) (list []string) {
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if stray(b) {
		say("not configured, and %s wait for it: add it to the configuration, or abandon them", rows(admin.Count{N: openRows(b)}))
	}
	if b.Unavailable {
		say("unavailable, as its relays say: their log has its error")
	}
	if len(b.UnavailableDestinations) > 0 {
		say("unavailable: %s: create the stream or topic, or permit the relay to write to it", some(b.UnavailableDestinations))
	}
	if b.BlockedKeys.N > 0 {
		say("%s blocked, with %s behind: \"fanout messages blocked\"", keys(b.BlockedKeys), rows(b.Held))
	}
	if b.Unacknowledged.N > 0 {
		say("%s abandoned and not acknowledged: \"fanout messages failures\"", rows(b.Unacknowledged))
	}
	if b.Lag > lateAfter && b.Paused == nil && !b.Unknown {
		say("the first message that is due has waited for %s", age(b.Lag))
	}
	return list
}

// some lists names, and how many others there are.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// keys counts ordering keys.
func keys(n admin.Count) string {
	if n.N == 1 && !n.More {
		return "1 ordering key is"
	}
	return countText(n) + " ordering keys are"
}

// relaysNote says how many relays run; empty where all that are listed do.
func relaysNote(d *monitor.DatabaseStatus, now time.Time) string {
	silent := d.Silent(now)
	var latest time.Time
	for i := range d.Relays {
		if d.Relays[i].SeenAt.After(latest) {
			latest = d.Relays[i].SeenAt
		}
	}
	switch {
	case len(d.Relays) == 0:
		return "no relay runs: messages wait until one does (fanout relay)"
	case silent == len(d.Relays):
		return fmt.Sprintf("no relay runs: the last one was seen %s; it was killed, or does not reach the database (fanout workers)", since(latest, now))
	case silent > 0:
		return fmt.Sprintf("%d of %d relays are gone: killed, or cut off from the database (fanout workers)", silent, len(d.Relays))
	}
	return ""
}

// strandedNote names the first stranded row and the remedy; empty where there is none.
func strandedNote(s stranded) string {
	if len(s.rows) == 0 {
		return ""
	}
	r := &s.rows[0]
	return fmt.Sprintf("%s stranded: no rule can ever make them due; the first is %s of type %s and key %s for broker %s (fanout messages requeue --id %s --broker %s)",
		rows(admin.Count{N: int64(len(s.rows)), More: s.more}), r.MessageID, r.Type, orDash(r.OrderingKey), r.Broker, r.MessageID, r.Broker)
}

// statusNotes are the sentences below the table of a status.
func statusNotes(name string, d *monitor.DatabaseStatus, found stranded, now time.Time) (notes []string) {
	if note := relaysNote(d, now); note != "" {
		notes = append(notes, name+": "+note)
	}
	for i := range d.Brokers {
		b := &d.Brokers[i]
		if b.Scheduled.N > 0 {
			notes = append(notes, fmt.Sprintf("%s: broker %s: %s scheduled for later", name, b.Broker, countText(b.Scheduled)))
		}
		if b.Unavailable || len(b.UnavailableDestinations) > 0 || b.BlockedKeys.N > 0 {
			for _, fault := range brokerFaults(&monitor.BrokerStatus{
				BrokerOverview: admin.BrokerOverview{BlockedKeys: b.BlockedKeys, Held: b.Held},
				Unavailable:    b.Unavailable, UnavailableDestinations: b.UnavailableDestinations,
			}) {
				notes = append(notes, fmt.Sprintf("%s: broker %s: %s", name, b.Broker, fault))
			}
		}
	}
	if note := strandedNote(found); note != "" {
		notes = append(notes, name+": "+note)
	}
	return notes
}

// errUnhealthy ends "status --check" with the exit code 1; what is wrong was printed.
var errUnhealthy = errors.New("something needs a person: see above")

// check prints what needs a person, for probes and cron.
func check(cmd *cobra.Command, list []string) error {
	if len(list) == 0 {
		cmd.Println("ok")
		return nil
	}
	for _, fault := range list {
		cmd.PrintErrln(printable(fault))
	}
	return errUnhealthy
}

// consumerFaults say which consumers are late, so that a person should look.
func consumerFaults(consumers []monitor.ConsumerStatus) (list []string) {
	for i := range consumers {
		if c := &consumers[i]; c.Err != nil || c.Behind > lateAfter {
			list = append(list, consumerNote(c))
		}
	}
	return list
}

// consumerNotes have also what need not be a fault.
func consumerNotes(consumers []monitor.ConsumerStatus) (list []string) {
	for i := range consumers {
		if note := consumerNote(&consumers[i]); note != "" {
			list = append(list, note)
		}
	}
	return list
}

// consumerNote says how far a consumer is behind; empty where it is not.
func consumerNote(c *monitor.ConsumerStatus) string {
	switch {
	case c.Err != nil:
		return fmt.Sprintf("consumer %s: whether it is behind is not known: %v", c.Name, c.Err)
	case c.NotKept:
		return fmt.Sprintf("consumer %s: whether it is behind is not known, as the rows of broker %s are not kept after their delivery (keep: false)", c.Name, c.Broker)
	case c.Silent:
		return fmt.Sprintf("consumer %s has recorded none of the newest messages of broker %s: it takes other types, or has not run for long", c.Name, c.Broker)
	case c.Waiting.N > 0:
		return fmt.Sprintf("consumer %s has not recorded the last %s of broker %s, the first of which was published %s ago: does it run?",
			c.Name, rows(c.Waiting), c.Broker, age(c.Behind))
	}
	return ""
}
