package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Browser = (*Store)(nil)

// mostRows bounds the numbers that people ask for.
const mostRows = 1 << 30

// ask is read for people, who do not wait for long. f may stop it with errEnough.
func (s *Store) ask(ctx context.Context, f func(*sql.Rows) error, text string, args ...any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.answerTime, errSlow)
	defer cancel()
	err := s.read(ctx, f, text, args...)
	switch {
	case err == nil || errors.Is(err, errEnough):
		return nil
	case errors.Is(context.Cause(ctx), errSlow):
		return fmt.Errorf("%w after %s: %w", errSlow, s.answerTime, err)
	}
	return err
}

var errEnough = errors.New("enough")

// Overview implements outbox.Browser. In each shard, and among the deferred rows, as many rows are looked at as the limit allows: where there
// are more, the counts of rows that are not finished say that there may be more, and the oldest of those rows is the oldest one.
func (s *Store) Overview(ctx context.Context, limit int) ([]outbox.BrokerOverview, error) {
	if limit < 1 || limit > mostRows {
		return nil, fmt.Errorf("sqlite: overview: the limit is %d: it must be from 1 to %d", limit, mostRows)
	}
	var brokers []outbox.BrokerOverview
	err := s.ask(ctx, func(rows *sql.Rows) error {
		var o outbox.BrokerOverview
		err := rows.Scan(&o.Broker)
		brokers = append(brokers, o)
		return err
	}, s.sql.brokers)
	for i := range brokers {
		if err == nil {
			err = s.overviewOf(ctx, &brokers[i], limit)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: look over %s: %w", s.table, err)
	}
	backlog, err := s.Backlog(ctx)
	if err != nil {
		return nil, err
	}
	for i := range brokers {
		for _, b := range backlog {
			if b.Broker == brokers[i].Broker {
				brokers[i].Lag = b.Lag
			}
		}
	}
	return brokers, nil
}

func (s *Store) overviewOf(ctx context.Context, o *outbox.BrokerOverview, limit int) error {
	return s.ask(ctx, func(rows *sql.Rows) error {
		var (
			pending, processing, fullest, deferredPending, deferred, failed, failing, published, abandoned int64
			oldest, lastPublished                                                                          sql.NullInt64
			lastError                                                                                      sql.NullString
		)
		err := rows.Scan(&pending, &processing, &fullest, &deferredPending, &deferred, &failed, &failing, &published, &abandoned, &oldest, &lastPublished, &lastError)
		if err != nil {
			return err
		}
		count := func(n, looked int64) outbox.Count {
			return outbox.Count{N: min(n, int64(limit)), More: n > int64(limit) || looked > int64(limit)}
		}
		o.Counts = map[outbox.Status]outbox.Count{
			outbox.StatusPending:    count(pending+deferredPending, max(fullest, deferred)),
			outbox.StatusProcessing: count(processing, fullest),
			outbox.StatusFailed:     count(failed, failing),
			outbox.StatusPublished:  count(published, published),
			outbox.StatusAbandoned:  count(abandoned, abandoned),
		}
		o.Deferred = count(deferred, deferred)
		if oldest.Valid {
			o.OldestPending = time.Duration(max(s.micros()-oldest.Int64, 0)) * time.Microsecond
		}
		o.LastPublished = moment(lastPublished.Int64)
		o.LastError = decodeError(lastError.String)
		return nil
	}, s.sql.overview, sql.Named("broker", o.Broker), sql.Named("rows", limit+1))
}

// decodeError reads last_error; nil where it is empty or no JSON object.
func decodeError(text string) *outbox.LastError {
	var last *outbox.LastError
	if json.Unmarshal([]byte(text), &last) != nil {
		return nil
	}
	return last
}

// moment is a time of a row; 0 is none.
func moment(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

// Message implements outbox.Browser.
func (s *Store) Message(ctx context.Context, id string) ([]outbox.Record, error) {
	filter, err := outbox.Filter{MessageIDs: []string{id}}.For("message", 1)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	var records []outbox.Record
	err = s.ask(ctx, func(rows *sql.Rows) error {
		var (
			r       record
			headers sql.NullString
		)
		err := rows.Scan(append(r.fields(), &r.Payload, &headers)...)
		r.Headers = headers.String
		records = append(records, r.read())
		records[len(records)-1].PayloadBytes = len(r.Payload)
		return err
	}, s.sql.message, sql.Named("message", filter.MessageIDs[0]))
	if err == nil {
		err = s.deferrals(ctx, records)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: read message %s in %s: %w", filter.MessageIDs[0], s.table, err)
	}
	return records, nil
}

// recordColumns are those of a row as people look at it, in the order of record.fields.
const recordColumns = `m.id, m.message_id, m.target_broker, m.status, m.stream, m.type, m.ordering_key, m.shard, m.priority, m.deferred
     , m.content_type, m.aggregate_type, m.aggregate_id, m.correlation_id, m.causation_id, m.tenant_id, m.attempts, m.crashes
     , m.created_at, m.available_at, m.expires_at, m.locked_until, m.published_at, m.finished_at, m.locked_by, m.broker_message_id
     , m.last_error, length(m.payload)`

// record is a row on its way from the database.
type record struct {
	outbox.Record

	key, aggregateType, aggregateID, correlation, causation, tenant, lockedBy, brokerMessage, lastError sql.NullString
	created                                                                                             int64
	available, expires, locked, published, finished                                                     sql.NullInt64
}

func (r *record) fields() []any {
	return []any{
		&r.ID, &r.MessageID, &r.Broker, &r.Status, &r.Stream, &r.Type, &r.key, &r.Shard, &r.Priority, &r.Deferred,
		&r.ContentType, &r.aggregateType, &r.aggregateID, &r.correlation, &r.causation, &r.tenant, &r.Attempts, &r.Crashes,
		&r.created, &r.available, &r.expires, &r.locked, &r.published, &r.finished, &r.lockedBy, &r.brokerMessage,
		&r.lastError, &r.PayloadBytes,
	}
}

func (r *record) read() outbox.Record {
	row := r.Record
	row.MessageID = strings.ToLower(row.MessageID)
	row.OrderingKey, row.AggregateType, row.AggregateID = r.key.String, r.aggregateType.String, r.aggregateID.String
	row.CorrelationID, row.CausationID, row.TenantID = r.correlation.String, r.causation.String, r.tenant.String
	row.LockedBy, row.BrokerMessageID = r.lockedBy.String, r.brokerMessage.String
	row.CreatedAt = time.UnixMicro(r.created).UTC()
	row.AvailableAt, row.ExpiresAt, row.LockedUntil = moment(r.available.Int64), moment(r.expires.Int64), moment(r.locked.Int64)
	row.PublishedAt, row.FinishedAt = moment(r.published.Int64), moment(r.finished.Int64)
	row.LastError = decodeError(r.lastError.String)
	return row
}
