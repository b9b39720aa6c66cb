package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Browser = (*Store)(nil)

const (
	// headRows is how many rows of a shard can be in somebody's hands, and how many of them are looked at: claims look no further, but
	// for the moment before what fills the head is deferred.
	headRows = 4000
	// firstRows of a shard are looked at where few are claimed, and for the rows that wait behind a blocked key.
	firstRows = 1000
	// slackRows are looked at beyond a count's limit, so that a count near to it is exact although some rows are in another status.
	slackRows = 1000
	// mostRows bounds what a caller can ask for, so that arguments of statements do not overflow.
	mostRows = 1 << 30
)

// look runs f in a transaction that only reads, sees one state of the tables, and in which no statement takes longer than people wait.
func (s *Store) look(ctx context.Context, f func(pgx.Tx) error) error {
	return s.conn(ctx, func(conn *pgx.Conn) error {
		options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
		return pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, s.Text("settings_browse")); err != nil {
				return err
			}
			return f(tx)
		})
	})
}

// Overview implements outbox.Browser. Counts look at no more rows than their limit and a few: a broker with many rows in other
// statuses can have a count that stops below the limit. Claimed rows are looked for at the head of each shard, the oldest row there
// and among as many deferred rows, the last error among the newest failed rows. A failed row without an error counts as pending.
func (s *Store) Overview(ctx context.Context, limit int) ([]outbox.BrokerOverview, error) {
	if limit < 1 || limit > mostRows {
		return nil, fmt.Errorf("postgres: overview: the limit is %d: it must be at least 1 and at most %d", limit, mostRows)
	}
	var brokers []outbox.BrokerOverview
	err := s.look(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.sql.overview, limit+slackRows, limit+1, firstRows, headRows)
		if err != nil {
			return err
		}
		brokers, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (outbox.BrokerOverview, error) { return readOverview(row, limit) })
		if err != nil {
			return err
		}
		return s.lags(ctx, tx, brokers)
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: look over %s: %w", s.table, err)
	}
	return brokers, nil
}

// lags fills in how long the first rows that could be claimed have been waiting.
func (s *Store) lags(ctx context.Context, tx pgx.Tx, brokers []outbox.BrokerOverview) error {
	rows, err := tx.Query(ctx, s.Text("backlog"))
	if err != nil {
		return err
	}
	var (
		broker string
		lag    int64
		i      int // both are sorted by the server
	)
	_, err = pgx.ForEachRow(rows, []any{&broker, &lag}, func() error {
		for ; i < len(brokers); i++ {
			if brokers[i].Broker == broker {
				brokers[i].Lag = time.Duration(lag) * time.Microsecond
				break
			}
		}
		return nil
	})
	return err
}

func readOverview(row pgx.CollectableRow, limit int) (outbox.BrokerOverview, error) {
	var (
		o                                                                       outbox.BrokerOverview
		undeferred, deferred, newestPending, processing, failed, failing, p, ab int64
		age                                                                     int64
		beyondHeads                                                             bool
		lastPublished                                                           *time.Time
		lastError                                                               *string
	)
	err := row.Scan(&o.Broker, &undeferred, &deferred, &newestPending, &processing, &beyondHeads, &failed, &failing, &p, &ab, &age, &lastPublished, &lastError)
	if err != nil {
		return o, err
	}
	most := int64(limit + slackRows) // of each kind were looked at
	pending, more := undeferred+deferred-processing-failed, undeferred >= most+processing+failed || deferred >= most || beyondHeads
	if failing >= most { // some of what is left has failed, too
		pending, more = newestPending, true
	}
	o.Counts = map[outbox.Status]outbox.Count{
		outbox.StatusPending:    counted(max(pending, 0), limit, more),
		outbox.StatusProcessing: counted(processing, limit, beyondHeads),
		outbox.StatusFailed:     counted(failed, limit, failing >= most),
		outbox.StatusPublished:  counted(p, limit, false),
		outbox.StatusAbandoned:  counted(ab, limit, false),
	}
	o.Deferred = counted(deferred, limit, false)
	o.OldestPending = time.Duration(age) * time.Microsecond
	o.LastPublished = utc(lastPublished)
	o.LastError = readError(lastError)
	return o, nil
}

// counted is a count that found n rows; more is true when not all rows were looked at.
func counted(n int64, limit int, more bool) outbox.Count {
	return outbox.Count{N: min(n, int64(limit)), More: more || n > int64(limit)}
}

// readError decodes last_error; nil where there is none, or one that is no JSON.
func readError(text *string) *outbox.LastError {
	if text == nil {
		return nil
	}
	var last outbox.LastError
	if err := json.Unmarshal([]byte(*text), &last); err != nil {
		return nil
	}
	return &last
}

func utc(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.UTC()
}

// Message implements outbox.Browser. A role that may not read payloads and headers gets the rows without them.
func (s *Store) Message(ctx context.Context, id string) ([]outbox.Record, error) {
	filter, err := outbox.Filter{MessageIDs: []string{id}}.For("message", 1, outbox.Statuses()...)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	var records []outbox.Record
	err = s.withContent(func(content int) error {
		return s.look(ctx, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, s.sql.message[content], filter.MessageIDs[0])
			if err != nil {
				return err
			}
			records, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (outbox.Record, error) {
				var r record
				err := row.Scan(append(r.fields(), &r.Payload, &r.headers)...)
				return r.read(), err
			})
			if err != nil {
				return err
			}
			return s.deferrals(ctx, tx, records)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: read message %s in %s: %w", filter.MessageIDs[0], s.table, err)
	}
	return records, nil
}

// deferrals fills in why rows are deferred. It asks only where some are.
func (s *Store) deferrals(ctx context.Context, tx pgx.Tx, records []outbox.Record) error {
	var (
		deferred                []*outbox.Record
		brokers, messages, keys []string
	)
	for i := range records {
		if r := &records[i]; r.Deferred {
			deferred, brokers, messages, keys = append(deferred, r), append(brokers, r.Broker), append(messages, r.MessageID), append(keys, r.OrderingKey)
		}
	}
	if len(deferred) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, s.sql.deferrals, brokers, messages, keys)
	if err != nil {
		return err
	}
	var (
		place int
		byKey bool
		found outbox.Deferral
		until pgtype.Timestamptz
	)
	_, err = pgx.ForEachRow(rows, []any{&place, &byKey, &found.Reason, &found.MessageID, &until}, func() error {
		if r := deferred[place-1]; byKey || r.Deferral == nil { // with a key it waits for all that the key waits for
			one := found
			one.Until = finite(until)
			r.Deferral = &one
		}
		return nil
	})
	return err
}

// Statements that read payloads, and those for a role that may not.
const (
	withPayload = iota
	withoutPayload
)

// withContent runs f, and again without payloads where the role may not read them.
func (s *Store) withContent(f func(content int) error) error {
	err := f(withPayload)
	if pgErr := (*pgconn.PgError)(nil); errors.As(err, &pgErr) && pgErr.Code == insufficientPrivilege {
		if again := f(withoutPayload); again == nil {
			return nil
		}
	}
	return err
}
