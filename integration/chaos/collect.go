//go:build unix

package chaos

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// collect reads all ledgers: the database, the brokers, and the files of the processes.
func (s *fixture) collect(ctx context.Context) (*evidence, error) {
	e := &evidence{
		facts: map[event]fact{}, outcomes: map[string]outcome{}, held: map[string][]delivery{},
		seen: map[string]map[string]struct{}{}, dropped: map[string]int{}, peakMemory: map[string]int64{},
	}
	for _, broker := range scenario.Brokers() {
		e.seen[broker] = map[string]struct{}{}
	}
	err := errors.Join(s.readDatabase(ctx, e), s.readProjections(ctx, e), s.readRedis(ctx, e), s.readFake(ctx, e))
	for _, p := range s.processes {
		err = errors.Join(err, p.addProcess(e))
	}
	return e, err
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

func (s *fixture) readRedis(ctx context.Context, e *evidence) error {
	options, err := redis.ParseURL(s.servers.redisURL)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	for _, stream := range scenario.Streams() {
		for broker, name := range map[string]string{scenario.Internal: stream, scenario.Partner: scenario.PartnerPrefix + stream} {
			if err := readStream(ctx, client, name, func(entry redis.XMessage) error {
				fields := map[string]string{}
				for name, value := range entry.Values {
					fields[name], _ = value.(string)
				}
				data := []byte(fields["data"])
				delete(fields, "data")
				milliseconds, _, _ := strings.Cut(entry.ID, "-")
				at, err := strconv.ParseInt(milliseconds, 10, 64)
				if err != nil {
					return err
				}
				return e.hold(broker, fields, data, time.UnixMilli(at))
			}); err != nil {
				return fmt.Errorf("chaos: read stream %s: %w", name, err)
			}
		}
	}
	return nil
}

// readStream reads a whole stream, page by page.
func readStream(ctx context.Context, client *redis.Client, stream string, f func(redis.XMessage) error) error {
	const piece = 1000
	for from := "-"; ; {
		entries, err := client.XRangeN(ctx, stream, from, "+", piece).Result()
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := f(entry); err != nil {
				return err
			}
			from = "(" + entry.ID
		}
		if len(entries) < piece {
			return nil
		}
	}
}

func (s *fixture) readFake(ctx context.Context, e *evidence) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.servers.messages, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := json.NewDecoder(bufio.NewReader(answer.Body))
	for lines.More() {
		var m scenario.Message
		if err := lines.Decode(&m); err != nil {
			return fmt.Errorf("chaos: read the messages of Pub/Sub: %w", err)
		}
		if err := e.hold(scenario.PubSub, m.Attributes, m.Data, m.At); err != nil {
			return err
		}
	}
	return nil
}

// hold records a message that a broker holds.
func (e *evidence) hold(broker string, fields map[string]string, payload []byte, at time.Time) error {
	content, err := contentOf(payload)
	if err != nil {
		return fmt.Errorf("broker %s: %w", broker, err)
	}
	d := delivery{
		event: event{content.Tx, content.N}, account: content.Account, seq: content.Seq, message: fields["id"], kind: fields["type"], at: at,
	}
	if broker != scenario.Internal {
		d.leaks = leaks(broker, fields, payload)
	}
	e.held[broker] = append(e.held[broker], d)
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
			e.seen[brokerOf(p.name, line.Stream)][line.Message] = struct{}{}
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

// brokerOf returns the broker whose messages a stream holds.
func brokerOf(consumer, stream string) string {
	switch {
	case consumer == "puller":
		return scenario.PubSub
	case strings.HasPrefix(stream, scenario.PartnerPrefix):
		return scenario.Partner
	default:
		return scenario.Internal
	}
}
