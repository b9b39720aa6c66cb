//go:build unix

package chaos

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// Rule is what a run has violated.
type Rule string

// The kinds of violations, with the invariant that each one breaks.
const (
	Lost        Rule = "lost"                 // G1: committed, and in the end not with the broker
	NoRow       Rule = "not captured"         // G1: committed, and without a row in the outbox
	Stuck       Rule = "stuck"                // G1: still open after the drain
	Phantom     Rule = "phantom"              // G2: never committed, or not meant for this broker, and published
	Unconfirmed Rule = "unconfirmed"          // G3: published by its row, and not with the broker
	Fence       Rule = "fence"                // G4, G5: a row was changed that another process had claimed, or after it was finished
	Kept        Rule = "kept"                 // published by its row, where rows go as they are delivered
	OutOfOrder  Rule = "out of order"         // G6: first deliveries of a key against the order of its commits
	Abandoned   Rule = "abandoned"            // G7: abandoned, though no message was at fault
	Attempts    Rule = "attempts"             // G7: more than the maximum
	TwoRows     Rule = "two rows"             // one row per event and broker
	Leak        Rule = "leak"                 // G9: something internal in an external message
	Unseen      Rule = "unseen"               // with the broker, and no consumer saw it
	Vanished    Rule = "vanished"             // seen by a consumer, and not with the broker: the broker lost it
	LostCommit  Rule = "lost commit"          // answered as committed, and not in the database: the database lost it
	GhostCommit Rule = "ghost commit"         // reported as rolled back, and in the database
	Sessions    Rule = "database sessions"    // left when all processes had ended
	Goroutines  Rule = "goroutines"           // left in a process that ended in good order
	Crash       Rule = "crash"                // a process ended by itself in a way that it must not
	Projection  Rule = "projection"           // an event was not counted exactly once by a consumer with an inbox
	Disorder    Rule = "handled out of order" // first deliveries to a handler against the order of its key's commits, where the consumer keeps it
	DeadLetters Rule = "dead-letters"         // made by a consumer, though no message was at fault
	Clock       Rule = "clock"                // a defect of the rig: a clock showed a wrong time
)

// Violation is a broken guarantee, with its cases.
type Violation struct {
	Rule   Rule     `json:"rule"`
	Broker string   `json:"broker,omitempty"`
	Count  int      `json:"count"`
	Cases  []string `json:"cases"` // some of them
}

// casesKept bounds the cases of a violation.
const casesKept = 5

// findings are the violations of a run.
type findings struct{ violations []Violation }

func (d *findings) addf(rule Rule, broker, format string, args ...any) {
	at := slices.IndexFunc(d.violations, func(v Violation) bool { return v.Rule == rule && v.Broker == broker })
	if at < 0 {
		at = len(d.violations)
		d.violations = append(d.violations, Violation{Rule: rule, Broker: broker})
	}
	v := &d.violations[at]
	if v.Count++; len(v.Cases) < casesKept {
		v.Cases = append(v.Cases, fmt.Sprintf(format, args...))
	}
}

// judge compares the ledgers.
func (e *evidence) judge() ([]BrokerVerdict, []Violation) {
	d := &findings{}
	e.judgeProducers(d)
	verdicts := make([]BrokerVerdict, 0, len(e.brokers))
	for _, b := range e.brokers {
		verdicts = append(verdicts, e.judgeBroker(d, b))
	}
	e.judgeConsumers(d)
	e.judgeProcesses(d)
	return verdicts, d.violations
}

// judgeProducers compares the outcomes that producers recorded with the database.
func (e *evidence) judgeProducers(d *findings) {
	there := map[string]bool{}
	for at := range e.facts {
		there[at.tx] = true
	}
	for tx, is := range e.outcomes {
		switch {
		case (is.outcome == scenario.Committed || is.completed) && !there[tx]:
			d.addf(LostCommit, "", "transaction %s", tx)
		case is.outcome == scenario.RolledBack && there[tx]:
			d.addf(GhostCommit, "", "transaction %s", tx)
		}
	}
}

func (e *evidence) judgeProcesses(d *findings) {
	for _, line := range e.watch {
		d.addf(Fence, "", "%s", line)
	}
	if e.sessions > 0 {
		d.addf(Sessions, "", "%d sessions", e.sessions)
	}
	for rule, list := range map[Rule][]string{Goroutines: e.leaked, Crash: e.crashed, Clock: e.clocks} {
		for _, line := range list {
			d.addf(rule, "", "%s", line)
		}
	}
}

// BrokerVerdict is the state of the events at one broker.
type BrokerVerdict struct {
	Broker      string         `json:"broker"`
	Expected    int            `json:"expected"`   // committed events routed to it
	Held        int            `json:"held"`       // messages with the broker, copies included
	Lost        int            `json:"lost"`       //
	Phantom     int            `json:"phantom"`    //
	Duplicates  int            `json:"duplicates"` // second and later copies
	Causes      map[string]int `json:"causes"`     // of duplicates
	OutOfOrder  int            `json:"out_of_order"`
	Stuck       int            `json:"stuck"`
	Abandoned   int            `json:"abandoned"`
	MaxAttempts int            `json:"max_attempts"`
	Spent       int            `json:"spent"` // attempts beyond the one that published a message
	Leaks       int            `json:"leaks"`
	Unseen      int            `json:"unseen"`
}

// Rate is duplicates per message.
func (v *BrokerVerdict) Rate() float64 { return float64(v.Duplicates) / float64(max(1, v.Expected)) }

// judgeBroker compares the messages of a broker with the committed events.
func (e *evidence) judgeBroker(d *findings, b *broker) BrokerVerdict {
	broker := b.name
	v := BrokerVerdict{Broker: broker, Held: len(e.held[broker]), Causes: map[string]int{}}
	arrived := e.judgeDeliveries(d, b, &v)
	rows := e.judgeRows(d, &v, arrived)
	for at, is := range e.facts {
		if !b.takes(is) {
			continue
		}
		v.Expected++
		if !arrived[at] {
			v.Lost++
			d.addf(Lost, broker, "event %d of transaction %s, %s %d: row %q", at.n, at.tx, is.account, is.seq, rows[at])
		}
		if _, captured := rows[at]; !captured && (!e.notKept || !arrived[at]) {
			d.addf(NoRow, broker, "event %d of transaction %s", at.n, at.tx)
		}
	}
	return v
}

// judgeDeliveries goes through the messages of a broker in its order, and returns the events that
// arrived.
func (e *evidence) judgeDeliveries(d *findings, b *broker, v *BrokerVerdict) map[event]bool {
	arrived, first, last := map[event]bool{}, map[string]delivery{}, map[string]delivery{}
	for _, m := range e.held[v.Broker] {
		if len(m.leaks) > 0 {
			v.Leaks++
			d.addf(Leak, v.Broker, "message %s: %s", m.message, strings.Join(m.leaks, ", "))
		}
		is, committed := e.facts[m.event]
		if !committed || !b.takes(is) {
			v.Phantom++
			d.addf(Phantom, v.Broker, "message %s of event %d of transaction %s, of which the producer says %q", m.message, m.event.n, m.event.tx,
				e.outcomes[m.event.tx].outcome)
		}
		if _, seen := e.seen[v.Broker][m.message]; !seen {
			v.Unseen++
			d.addf(Unseen, v.Broker, "message %s", m.message)
		}
		if before, again := first[m.message]; again {
			v.Duplicates++
			v.Causes[e.cause(before.at, m.at)]++
			continue
		}
		first[m.message] = m
		if arrived[m.event] {
			d.addf(TwoRows, v.Broker, "event %d of transaction %s has a second message id, %s", m.event.n, m.event.tx, m.message)
		}
		arrived[m.event] = true
		if !committed || m.account == "" {
			continue // it has no place in the order
		}
		if before := last[m.account]; m.seq <= before.seq {
			v.OutOfOrder++
			d.addf(OutOfOrder, v.Broker, "%s %d (%s) came after %d (%s)", m.account, m.seq, m.message, before.seq, before.message)
		} else {
			last[m.account] = m
		}
	}
	for message := range e.seen[v.Broker] {
		if _, held := first[message]; !held {
			d.addf(Vanished, v.Broker, "message %s", message)
		}
	}
	return arrived
}

// judgeRows goes through the rows of a broker, and returns the state of each event's.
func (e *evidence) judgeRows(d *findings, v *BrokerVerdict, arrived map[event]bool) map[event]string {
	states := map[event]string{}
	for i := range e.rows {
		r := &e.rows[i]
		if r.broker != v.Broker {
			continue
		}
		if _, twice := states[r.event]; twice {
			d.addf(TwoRows, v.Broker, "event %d of transaction %s", r.event.n, r.event.tx)
		}
		states[r.event] = r.status
		v.MaxAttempts = max(v.MaxAttempts, r.attempts)
		v.Spent += max(0, r.attempts-1)
		if r.attempts > maxAttempts {
			d.addf(Attempts, v.Broker, "message %s: %d attempts", r.message, r.attempts)
		}
		switch r.status {
		case "published":
			if e.notKept {
				d.addf(Kept, v.Broker, "message %s", r.message)
			}
			if !arrived[r.event] {
				d.addf(Unconfirmed, v.Broker, "message %s", r.message)
			}
		case "abandoned":
			v.Abandoned++
			d.addf(Abandoned, v.Broker, "message %s: %s", r.message, r.err)
		default:
			v.Stuck++
			d.addf(Stuck, v.Broker, "message %s is %s: %s", r.message, r.status, r.err)
		}
	}
	return states
}
