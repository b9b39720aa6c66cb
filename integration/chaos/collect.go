//go:build unix

package chaos

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// collect reads all ledgers: the database, the brokers, and the files of the processes.
func (s *fixture) collect(ctx context.Context) (*evidence, error) {
	e := &evidence{
		brokers: s.brokers, notKept: s.options.NotKept, facts: map[event]fact{}, outcomes: map[string]outcome{}, held: map[string][]delivery{},
		seen: map[string]map[string]struct{}{}, dropped: map[string]int{}, peakMemory: map[string]int64{},
	}
	err := errors.Join(s.readDatabase(ctx, e), s.readProjections(ctx, e))
	for _, b := range s.brokers {
		hold := func(fields map[string]string, payload []byte, at time.Time) error {
			return e.hold(b, fields, payload, at)
		}
		if failed := b.read(ctx, s.servers, hold); failed != nil {
			err = errors.Join(err, fmt.Errorf("chaos: read what %s holds: %w", b.name, failed))
		}
	}
	for _, p := range s.processes {
		err = errors.Join(err, p.addProcess(e))
	}
	e.dateCopies()
	return e, err
}

// dateCopies gives messages whose broker does not tell when they arrived the times at which the
// observer saw their copies.
func (e *evidence) dateCopies() {
	for broker, held := range e.held {
		copies := map[string]int{}
		for i := range held {
			times, n := e.seenAt[broker][held[i].message], copies[held[i].message]
			if copies[held[i].message]++; held[i].at.IsZero() && n < len(times) {
				held[i].at = times[n]
			}
		}
	}
}

func (s *fixture) readDatabase(ctx context.Context, e *evidence) error {
	return s.ask(ctx, func(ctx context.Context, db *sql.DB) error {
		var (
			at      event
			is      fact
			r       row
			message uuid.UUID
			payload []byte
			w       string
		)
		if err := each(ctx, db, "SELECT tx, n, account, seq, published FROM facts", []any{&at.tx, &at.n, &is.account, &is.seq, &is.published}, func() error {
			e.facts[at] = is
			return nil
		}); err != nil {
			return fmt.Errorf("chaos: read the facts: %w", err)
		}
		rows := "SELECT " + cmp.Or(s.database.id, "message_id") +
			", target_broker, status, attempts, coalesce(last_error, ''), payload FROM outbox_messages ORDER BY id"
		if err := each(ctx, db, rows, []any{&message, &r.broker, &r.status, &r.attempts, &r.err, &payload}, func() error {
			content, err := contentOf(payload)
			r.message, r.event = message.String(), event{content.Tx, content.N}
			e.rows = append(e.rows, r)
			return err
		}); err != nil {
			return fmt.Errorf("chaos: read the outbox: %w", err)
		}
		return each(ctx, db, "SELECT concat_ws(' | ', what, message_id, broker, was, became, session, at) FROM chaos_watch ORDER BY at", []any{&w}, func() error {
			e.watch = append(e.watch, w)
			return nil
		})
	})
}

// contentOf reads the event in an envelope. All forms of one have its data in the same place.
func contentOf(payload []byte) (scenario.Moved, error) {
	var content struct {
		Data scenario.Moved `json:"data"`
	}
	if err := json.Unmarshal(payload, &content); err != nil {
		return scenario.Moved{}, fmt.Errorf("chaos: an envelope is no JSON: %w: %s", err, payload)
	}
	return content.Data, nil
}

// hold records a message that a broker holds.
func (e *evidence) hold(b *broker, fields map[string]string, payload []byte, at time.Time) error {
	content, err := contentOf(payload)
	if err != nil {
		return err
	}
	d := delivery{
		event: event{content.Tx, content.N}, account: content.Account, seq: content.Seq, message: fields["id"], kind: fields["type"], at: at,
	}
	if !b.internal() {
		d.leaks = leaks(b.mayLeave, fields, payload)
	}
	e.held[b.name] = append(e.held[b.name], d)
	return nil
}

// addProcess adds the ledger of one process, and how the process ran.
func (p *process) addProcess(e *evidence) error {
	err := scenario.ReadLedger(p.path("ledger"), func(line scenario.Line) {
		switch {
		case line.Clock != 0:
			if !slices.ContainsFunc(p.starts, func(s startedAt) bool { return s.shows(line.Clock) }) {
				e.clocks = append(e.clocks, fmt.Sprintf("%s showed %s at one of its starts", p.name, time.Unix(line.Clock, 0)))
			}
		case line.Tx != "":
			e.note(line)
		case line.Dropped != "":
			e.dropped[line.Dropped]++
		case line.Message != "":
			noteSeen(e.seen, line)
			if line.At != 0 {
				e.noteTime(line)
			}
		case line.Ended:
			e.ended++
			e.leaseLost += line.LeaseLost
			if line.Leaked != "" {
				e.leaked = append(e.leaked, p.name+": "+line.Leaked)
			}
		}
	})
	e.crashed = append(e.crashed, p.crashed...)
	e.peakMemory[p.name] = p.peak
	return err
}

// clockPatience is how long a process may take from its start to its first reading of the clock.
const clockPatience = 20 * time.Second

// shows reports whether a clock reading fits the start of the process.
func (s startedAt) shows(clock int64) bool {
	began := time.Unix(clock, 0).Add(-s.skew)
	return began.After(s.at.Add(-2*time.Second)) && began.Before(s.at.Add(clockPatience))
}

// noteTime records when an observer saw a message.
func (e *evidence) noteTime(line scenario.Line) {
	if e.seenAt == nil {
		e.seenAt = map[string]map[string][]time.Time{}
	}
	if e.seenAt[line.Broker] == nil {
		e.seenAt[line.Broker] = map[string][]time.Time{}
	}
	times := e.seenAt[line.Broker]
	times[line.Message] = append(times[line.Message], time.UnixMilli(line.At))
}

// note records the outcome of a transaction.
func (e *evidence) note(line scenario.Line) {
	is := e.outcomes[line.Tx]
	if line.Repeated {
		is.completed = line.Outcome == scenario.Committed
	} else {
		is.outcome = line.Outcome
	}
	e.outcomes[line.Tx] = is
}
