package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/google/uuid"
	mssql "github.com/microsoft/go-mssqldb"

	"github.com/gorm-fanout/fanout/outbox"
)

var _ outbox.Browser = (*Store)(nil)

// browseTexts are the batches for people, by the name of their file; columnsHere stands where they read a row.
func browseTexts(s *statements, table string) {
	columns := embedded("browse_columns")
	for name, text := range map[string]*string{"list": &s.list, "message": &s.message} {
		*text = strings.ReplaceAll(batchText(table, name), columnsHere, columns)
	}
	s.overview, s.blocked, s.deferrals = batchText(table, "overview"), batchText(table, "blocked"), batchText(table, "deferrals")
}

const columnsHere = "{{columns}}\n"

// browse runs a batch for people, with what it repeats, in bounded time. begin runs before each try.
func (s *Store) browse(ctx context.Context, text string, args []any, begin func(), sets resultSets) error {
	ctx, cancel := context.WithTimeoutCause(ctx, browseTime, errBrowseTime)
	defer cancel()
	err := retry(func() error {
		begin()
		return s.query(ctx, text, args, sets)
	})
	if err != nil && errors.Is(context.Cause(ctx), errBrowseTime) {
		return fmt.Errorf("%w: %w", errBrowseTime, err)
	}
	return explain(err)
}

// atLeastOne refuses a bound that lets nothing through.
func atLeastOne(action, name string, n int) error {
	if n < 1 {
		return fmt.Errorf("sqlserver: %s: the %s is %d: it must be at least 1", action, name, n)
	}
	return nil
}

// bound is a number of rows for TOP, to which the batches add one.
func bound(n int) int64 { return min(int64(n), math.MaxInt32) }

// Overview implements outbox.Browser. Rows behind the first ones of a shard, 20,000 or the limit, are not looked at: the counts of open
// rows say that there are more then.
func (s *Store) Overview(ctx context.Context, limit int) ([]outbox.BrokerOverview, error) {
	if err := atLeastOne("overview", "limit", limit); err != nil {
		return nil, err
	}
	backlog, err := s.Backlog(ctx)
	if err != nil {
		return nil, err
	}
	var tally overviews
	err = s.browse(ctx, s.sql.overview, []any{sql.Named("limit", bound(limit))}, func() { tally = overviews{limit: bound(limit)} }, resultSets{
		"fanout_overview": tally.broker, "fanout_count": tally.count, "fanout_error": tally.lastError,
	})
	if err != nil {
		return nil, fmt.Errorf("sqlserver: read the overview of %s: %w", s.table, err)
	}
	for _, behind := range backlog {
		if b := tally.find(behind.Broker); b != nil {
			b.Lag = behind.Lag
		}
	}
	return tally.brokers, nil
}

// List implements outbox.Browser. It passes over rows that somebody is writing.
func (s *Store) List(ctx context.Context, request outbox.ListRequest) (outbox.List, error) {
	args, err := listArgs(request)
	if err != nil {
		return outbox.List{}, err
	}
	var p page
	err = s.browse(ctx, s.sql.list, args, func() { p = page{} }, resultSets{"fanout_listed": p.row, "fanout_looked": p.end})
	if err == nil {
		err = s.deferrals(ctx, p.records)
	}
	if err != nil {
		return outbox.List{}, fmt.Errorf("sqlserver: list %s rows of broker %q in %s: %w", request.Status, request.Broker, s.table, err)
	}
	return p.list(request.Limit, request.Scan), nil
}

func listArgs(request outbox.ListRequest) ([]any, error) {
	filter := outbox.Filter{
		Broker: request.Broker, Statuses: []outbox.Status{request.Status}, Type: request.Type, Key: request.Key,
		ErrorClass: request.ErrorClass, Since: request.Since, Until: request.Until,
	}
	if _, err := filter.For("list", request.Limit, outbox.Statuses()...); err != nil {
		return nil, fmt.Errorf("sqlserver: %w", err)
	}
	if request.Broker == "" {
		return nil, errors.New("sqlserver: list: name the broker")
	}
	if request.Scan < request.Limit {
		return nil, fmt.Errorf("sqlserver: list: no more than %d rows may be looked at for a page of %d: allow as many at least", request.Scan, request.Limit)
	}
	after := request.After.ID
	if request.After == (outbox.Position{}) {
		after = math.MaxInt64
	}
	exact, prefix := filter.TypePattern()
	text := func(name, value string) any { return sql.Named(name, mssql.NVarCharMax(value)) }
	return []any{
		sql.Named("broker", request.Broker), sql.Named("status", string(request.Status)), text("type", exact), text("type_prefix", prefix),
		text("key", request.Key), text("error_class", request.ErrorClass), text("since", moment(request.Since)), text("until", moment(request.Until)),
		text("after", moment(request.After.Time)), sql.Named("after_id", after), sql.Named("limit", bound(request.Limit)), sql.Named("scan", bound(request.Scan)),
	}, nil
}

// Message implements outbox.Browser. It waits up to a second for somebody who is writing one of the rows.
func (s *Store) Message(ctx context.Context, id string) ([]outbox.Record, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return nil, fmt.Errorf("sqlserver: message id %q is no UUID", id)
	}
	var records []outbox.Record
	err = s.browse(ctx, s.sql.message, []any{sql.Named("message_id", parsed.String())}, func() { records = nil }, resultSets{
		"fanout_payload": func(rows *sql.Rows) error {
			var (
				payload []byte
				headers string
			)
			record, err := readRecord(rows, &payload, &headers)
			record.Payload, record.Headers = payload, headers
			records = append(records, record)
			return err
		},
	})
	if err == nil {
		err = s.deferrals(ctx, records)
	}
	if err != nil {
		return nil, fmt.Errorf("sqlserver: read message %s in %s: %w", parsed, s.table, err)
	}
	return records, nil
}

// deferrals fills in why rows are deferred. It asks only where some are.
func (s *Store) deferrals(ctx context.Context, records []outbox.Record) error {
	var ids []int64
	deferred := map[int64]*outbox.Record{}
	for i := range records {
		if r := &records[i]; r.Deferred {
			ids, deferred[r.ID] = append(ids, r.ID), r
		}
	}
	if len(ids) == 0 {
		return nil
	}
	list, err := jsonList(ids)
	if err != nil {
		return err
	}
	return s.browse(ctx, s.sql.deferrals, []any{sql.Named("ids", list)}, func() {}, resultSets{"fanout_deferral": func(rows *sql.Rows) error {
		var (
			id    int64
			byKey bool
			found outbox.Deferral
			until sql.NullTime
		)
		if err := rows.Scan(&id, &byKey, &found.Reason, &found.MessageID, &until); err != nil {
			return err
		}
		found.Until = utc(until)
		if r := deferred[id]; r != nil && (byKey || r.Deferral == nil) { // with a key it waits for all that the key waits for
			r.Deferral = &found
		}
		return nil
	}})
}

// Blocked implements outbox.Browser. Of each shard the 2,000 blocks that wait longest are looked at, and of the broker the 2,000 oldest rows
// that have failed. For followers that are not deferred it looks at the next 5,000 rows of the shard.
func (s *Store) Blocked(ctx context.Context, broker string, limit, maxCount int) ([]outbox.KeyBlock, error) {
	if _, err := (outbox.Filter{Broker: broker}).For("blocked keys", limit); err != nil {
		return nil, fmt.Errorf("sqlserver: %w", err)
	}
	if err := atLeastOne("blocked keys", "bound of the counts", maxCount); err != nil {
		return nil, err
	}
	if broker == "" {
		return nil, errors.New("sqlserver: blocked keys: name the broker")
	}
	var keys []outbox.KeyBlock
	args := []any{sql.Named("broker", broker), sql.Named("limit", bound(limit)), sql.Named("max_count", bound(maxCount))}
	err := s.browse(ctx, s.sql.blocked, args, func() { keys = nil }, resultSets{"fanout_blocked": func(rows *sql.Rows) error {
		key, err := readBlocked(rows, bound(maxCount))
		key.Broker = broker
		keys = append(keys, key)
		return err
	}})
	if err != nil {
		return nil, fmt.Errorf("sqlserver: list blocked keys of broker %q in %s: %w", broker, s.table, err)
	}
	return keys, nil
}
