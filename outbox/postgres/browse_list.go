package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/gorm-fanout/fanout/outbox"
)

// A listing is one way to list rows: which of them are looked at.
type listing int

const (
	listShards listing = iota
	listKey
	listFailed
	listPublished
	listAbandoned
	listings
)

// recordColumns are those of a row as people look at it, in the order of record.fields; without its payload.
const recordColumns = `m.id, m.message_id::text AS message_id, m.target_broker, m.status, m.stream, m.type, m.ordering_key, m.shard, m.priority, m.deferred
     , m.content_type, m.aggregate_type, m.aggregate_id, m.correlation_id, m.causation_id, m.tenant_id, m.attempts, m.crashes
     , m.created_at, m.available_at, m.expires_at, m.locked_until, m.published_at, m.finished_at, m.locked_by, m.broker_message_id, m.last_error`

// messageSQL is message.sql with and without what not everybody may read.
func messageSQL(table string) (texts [2]string) {
	for content, columns := range [...][2]string{
		withPayload:    {recordColumns + ", octet_length(m.payload) AS payload_bytes", "m.payload, m.headers"},
		withoutPayload: {recordColumns + ", 0 AS payload_bytes", "NULL::bytea, NULL::text"},
	} {
		texts[content] = strings.NewReplacer("{{columns}}", columns[0], "{{content}}", columns[1]).Replace(readSQL("message", table))
	}
	return texts
}

// listSQL fills in which rows to look at.
func listSQL(table string, way listing, content int) string {
	var rows string
	order := "id DESC"
	switch way {
	case listShards:
		branches := []string{readPart("list_deferred", table)}
		for shard := range outbox.Classes * outbox.Shards {
			branches = append(branches, strings.ReplaceAll(readPart("list_shard", table), "{{shard}}", strconv.Itoa(shard)))
		}
		rows = strings.Join(branches, " UNION ALL\n")
	case listKey:
		rows = readPart("list_key", table)
	case listFailed:
		rows = readPart("list_failed", table)
	case listPublished, listAbandoned:
		end, published := "published_at", "m.published_at IS NOT NULL"
		if way == listAbandoned {
			end, published = "finished_at", "m.finished_at IS NOT NULL AND m.published_at IS NULL"
		}
		rows = strings.NewReplacer("{{end}}", end, "{{published}}", published).Replace(readPart("list_finished", table))
		order = end + " DESC, id DESC"
	case listings:
	}
	size := "octet_length(m.payload)"
	if content == withoutPayload {
		size = "0"
	}
	rows = strings.ReplaceAll(rows, "{{columns}}", recordColumns+", "+size+" AS payload_bytes")
	return strings.NewReplacer("{{rows}}", rows, "{{order}}", order).Replace(readSQL("list", table))
}

// readPart is a text that is filled into another one: without the comment that stands above it.
func readPart(name, table string) string {
	text := readSQL(name, table)
	for strings.HasPrefix(text, "--") {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}

// List implements outbox.Browser. Claimed rows are looked for at the head of each shard; those that wait are merged from the shards and from
// the deferred rows, in the order of ids. Finished rows that ended at the same
// instant, as those of one batch do, are looked at together, be they more than Scan. A failed row without an error is not found, nor one
// that finished at an infinite time. A role that may not read payloads gets no sizes.
func (s *Store) List(ctx context.Context, request outbox.ListRequest) (outbox.List, error) {
	args, err := listArguments(request)
	if err != nil {
		return outbox.List{}, fmt.Errorf("postgres: %w", err)
	}
	var list outbox.List
	err = s.withContent(func(content int) error {
		return s.look(ctx, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, s.sql.lists[listingOf(request)][content], args...)
			if err != nil {
				return err
			}
			if list, err = readList(rows, request); err != nil {
				return err
			}
			return s.deferrals(ctx, tx, list.Records)
		})
	})
	if err != nil {
		return outbox.List{}, fmt.Errorf("postgres: list %s rows of broker %q in %s: %w", request.Status, request.Broker, s.table, err)
	}
	return list, nil
}

func listingOf(request outbox.ListRequest) listing {
	switch {
	case request.Status == outbox.StatusPublished:
		return listPublished
	case request.Status == outbox.StatusAbandoned:
		return listAbandoned
	case request.Status == outbox.StatusFailed:
		return listFailed
	case request.Key != "":
		return listKey
	default:
		return listShards
	}
}

// listArguments checks a request and returns the arguments of its statement.
func listArguments(request outbox.ListRequest) ([]any, error) {
	filter := outbox.Filter{
		Broker: request.Broker, Statuses: []outbox.Status{request.Status}, Type: request.Type, Key: request.Key,
		ErrorClass: request.ErrorClass, Since: request.Since, Until: request.Until,
	}
	_, err := filter.For("list", request.Limit, outbox.Statuses()...)
	if request.Broker == "" {
		err = errors.Join(err, errors.New("list: name the broker"))
	}
	if request.Scan < request.Limit || request.Scan > mostRows {
		err = errors.Join(err, fmt.Errorf("list: %d rows are to be looked at for a page of %d: use at least as many and at most %d", request.Scan, request.Limit, mostRows))
	}
	if err != nil {
		return nil, err
	}
	before := int64(math.MaxInt64)
	if request.After != (outbox.Position{}) {
		before = request.After.ID
	}
	exact, prefix := filter.TypePattern()
	args := []any{
		request.Broker, string(request.Status), request.Scan, request.Limit, exact, prefix, request.Key, request.ErrorClass,
		moment(request.Since), moment(request.Until), before,
	}
	switch listingOf(request) {
	case listShards:
		args = append(args, headRows)
	case listPublished, listAbandoned:
		upTo := pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
		if !request.After.Time.IsZero() {
			upTo = pgtype.Timestamptz{Time: request.After.Time, Valid: true}
		}
		args = append(args, upTo)
	default:
	}
	return args, nil
}

// readList reads a page. Of the rows that come, some only tell how far was looked.
func readList(rows pgx.Rows, request outbox.ListRequest) (outbox.List, error) {
	defer rows.Close()
	var (
		list    outbox.List
		r       record
		n       int
		last    bool
		matches bool
		looked  outbox.Position // the last row that was looked at
	)
	for rows.Next() {
		r = record{}
		if err := rows.Scan(append(r.fields(), &n, &last, &matches)...); err != nil {
			return outbox.List{}, err
		}
		switch {
		case n > request.Scan: // it is there, and more is not to be known of it
			list.Next = looked
		case matches && len(list.Records) == request.Limit:
			end := &list.Records[request.Limit-1]
			list.Next = position(end)
		default:
			row := r.read()
			looked, list.Scanned = position(&row), n
			if matches {
				list.Records = append(list.Records, row)
			}
			continue
		}
		return list, nil
	}
	return list, rows.Err()
}

// position is where a row stands in its list.
func position(r *outbox.Record) outbox.Position {
	at := outbox.Position{ID: r.ID}
	switch r.Status {
	case outbox.StatusPublished:
		at.Time = r.PublishedAt
	case outbox.StatusAbandoned:
		at.Time = r.FinishedAt
	default:
	}
	return at
}

// moment is NULL for the zero time.
func moment(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// A record is a row as the server sends it.
type record struct {
	outbox.Record

	key, aggregateType, aggregateID, correlationID, causationID, tenantID *string
	lockedBy, brokerMessageID, lastError, headers                         *string
	createdAt, availableAt, expiresAt, lockedUntil                        pgtype.Timestamptz
	publishedAt, finishedAt                                               pgtype.Timestamptz
}

// fields are the destinations of recordColumns and of the payload's size.
func (r *record) fields() []any {
	return []any{
		&r.ID, &r.MessageID, &r.Broker, &r.Status, &r.Stream, &r.Type, &r.key, &r.Shard, &r.Priority, &r.Deferred,
		&r.ContentType, &r.aggregateType, &r.aggregateID, &r.correlationID, &r.causationID, &r.tenantID, &r.Attempts, &r.Crashes,
		&r.createdAt, &r.availableAt, &r.expiresAt, &r.lockedUntil, &r.publishedAt, &r.finishedAt, &r.lockedBy, &r.brokerMessageID, &r.lastError,
		&r.PayloadBytes,
	}
}

// read is the row with zero values for what is NULL, and for infinite times.
func (r *record) read() outbox.Record {
	for field, value := range map[*string]*string{
		&r.OrderingKey: r.key, &r.AggregateType: r.aggregateType, &r.AggregateID: r.aggregateID, &r.CorrelationID: r.correlationID,
		&r.CausationID: r.causationID, &r.TenantID: r.tenantID, &r.LockedBy: r.lockedBy, &r.BrokerMessageID: r.brokerMessageID, &r.Headers: r.headers,
	} {
		if value != nil {
			*field = *value
		}
	}
	r.CreatedAt, r.AvailableAt, r.ExpiresAt = finite(r.createdAt), finite(r.availableAt), finite(r.expiresAt)
	r.LockedUntil, r.PublishedAt, r.FinishedAt = finite(r.lockedUntil), finite(r.publishedAt), finite(r.finishedAt)
	r.LastError = readError(r.lastError)
	return r.Record
}

func finite(at pgtype.Timestamptz) time.Time {
	if !at.Valid || at.InfinityModifier != pgtype.Finite {
		return time.Time{}
	}
	return at.Time.UTC()
}
