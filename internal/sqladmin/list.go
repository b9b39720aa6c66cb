package sqladmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/google/uuid"

	"github.com/gorm-fanout/fanout/internal/eventid"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// List implements admin.Administration. Claimed rows are looked for at the heads of the shards,
// where claims find them. A failed row without an error is not found, nor one that finished at an
// infinite time. A role that may not read payloads gets no sizes.
func (a *Admin) List(ctx context.Context, request admin.ListRequest) (list admin.List, err error) {
	filter, err := listFilter(&request)
	if err != nil {
		return list, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	given := args{
		"broker": request.Broker, "status": string(request.Status), "after": request.After.Time, "after_id": beforeID(request.After),
		"limit": int64(request.Limit), "scan": int64(request.Scan),
	}
	maps.Copy(given, matchArgs(&filter))
	statement := "list_" + string(request.Status)
	err = a.withContent(func(suffix string) error {
		return a.read(ctx, Browse, func(ctx context.Context, conn Conn) error {
			list = admin.List{}
			if err := a.page(ctx, conn, statement+suffix, given, &request, &list); err != nil {
				return err
			}
			return a.states(ctx, conn, list.Records)
		})
	})
	if err != nil {
		return admin.List{}, a.failed(err, "list %s rows of broker %q in %s", request.Status, request.Broker, a.table)
	}
	return list, nil
}

// beforeID is the id before which a list goes on.
func beforeID(after admin.Position) int64 {
	if after.ID == 0 && after.Time.IsZero() {
		return math.MaxInt64
	}
	return after.ID
}

// matchArgs are what part_matches.sql uses.
func matchArgs(f *admin.Filter) args {
	exact, prefix := f.TypePattern()
	correlated := f.Correlation
	if id, ok := parsedID(correlated); ok {
		correlated = id.String()
	}
	return args{
		"type": Text(exact), "type_prefix": Text(prefix), "key": Text(f.Key), "aggregate": Text(f.Aggregate), "correlation": Text(f.Correlation),
		"correlated": Text(correlated), "tenant": Text(f.Tenant), "class": Text(f.ErrorClass), "since": f.Since, "until": f.Until,
	}
}

// listFilter refuses what cannot be meant.
func listFilter(r *admin.ListRequest) (admin.Filter, error) {
	filter := r.Filter
	filter.Broker, filter.Statuses = r.Broker, []outbox.Status{r.Status}
	_, err := filter.For("list", r.Limit, outbox.Statuses()...)
	if r.Scan < r.Limit || r.Scan > mostRows {
		err = errors.Join(err, fmt.Errorf("list: %d rows are to be read for a page of %d: use at least as many and at most %d", r.Scan, r.Limit, mostRows))
	}
	return filter, err
}

// page reads a page. Rows come in order with their place among those that are read (0: right behind
// the one before), whether they match, and their position. Of those that do not match only the last
// ones need to come, which tell how far the reading went, and no more than the position need be
// known of them. One behind a full page is the beginning of the next.
func (a *Admin) page(ctx context.Context, conn Conn, statement string, given args, request *admin.ListRequest, list *admin.List) error {
	var (
		last admin.Position
		rest = make([]any, len(new(record).fields())-1)
	)
	for i := range rest {
		rest[i] = new(any)
	}
	return a.query(ctx, conn, statement, given, func(scan scanner) error {
		full := len(list.Records) == request.Limit || list.Scanned == request.Scan
		var (
			place   int
			matches bool
			at      moment
			id      int64
		)
		if err := scan(append([]any{&place, &matches, &at, &id}, rest...)...); err != nil {
			return err
		}
		if full || place > request.Scan {
			list.Next = last
			return errEnough
		}
		list.Scanned, last = cmp.Or(place, list.Scanned+1), admin.Position{ID: id, Time: at.Time}
		if !matches {
			return nil
		}
		var r record
		err := scan(append([]any{&place, &matches, &at}, r.fields()...)...)
		list.Records = append(list.Records, r.read())
		return err
	})
}

// Message implements admin.Administration. A role that may not read payloads and headers gets the
// rows without them.
func (a *Admin) Message(ctx context.Context, id string) (records []admin.Record, err error) {
	return a.message(ctx, id, false)
}

// Event implements admin.Administration. SQL Server does not order ids by their first bytes: there it is Message.
func (a *Admin) Event(ctx context.Context, id string) (records []admin.Record, err error) {
	return a.message(ctx, id, true)
}

// message reads the rows of a message, and of its siblings, the other messages of the same event.
func (a *Admin) message(ctx context.Context, id string, siblings bool) (records []admin.Record, err error) {
	filter, err := admin.Filter{MessageIDs: []string{id}}.For("message", 1, outbox.Statuses()...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	known, err := uuid.Parse(filter.MessageIDs[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.dialect.Name, err)
	}
	err = a.withContent(func(suffix string) error {
		return a.read(ctx, Browse, func(ctx context.Context, conn Conn) (err error) {
			if records, err = a.rowsOf(ctx, conn, suffix, known, siblings, admin.MaxShownBytes); err != nil {
				return err
			}
			return a.states(ctx, conn, records)
		})
	})
	if err != nil {
		return nil, a.failed(err, "read message %s in %s", filter.MessageIDs[0], a.table)
	}
	return records, nil
}

// rowsOf reads the rows of a message, and of its siblings where the database finds them, with payloads of so many bytes.
func (a *Admin) rowsOf(ctx context.Context, conn Conn, suffix string, message uuid.UUID, siblings bool, shown int) ([]admin.Record, error) {
	first, last := eventid.Bounds(message)
	given := args{"message_id": message.String(), "first": first.String(), "last": last.String(), "shown": shown, "limit": admin.MaxShownRows}
	records, err := a.shown(ctx, conn, "message"+suffix, given)
	if _, can := a.statements["siblings"+suffix]; err != nil || !siblings || !can {
		return records, err
	}
	others, err := a.shown(ctx, conn, "siblings"+suffix, given)
	return ofEvent(message, append(records, others...)), err
}

// shown reads rows with what is in them.
func (a *Admin) shown(ctx context.Context, conn Conn, statement string, given args) (records []admin.Record, err error) {
	err = a.query(ctx, conn, statement, given, func(scan scanner) error {
		var (
			r       record
			headers *string
		)
		err := scan(append(r.fields(), &r.Payload, &headers)...)
		r.Headers = valueOf(headers)
		records = append(records, r.read())
		return err
	})
	return records, err
}

// ofEvent leaves the records of the event that a message is of.
func ofEvent(message uuid.UUID, records []admin.Record) (of []admin.Record) {
	messages := make([]eventid.Message, len(records))
	for i := range records {
		id, err := uuid.Parse(records[i].MessageID)
		if err != nil { // of no database of ours
			id = uuid.Nil
		}
		messages[i] = eventid.Message{ID: id, Type: records[i].Type}
	}
	for i, is := range eventid.Of(message, messages) {
		if is && len(of) < admin.MaxShownRows {
			of = append(of, records[i])
		}
	}
	return of
}

// withContent runs f, and again without payloads where the role may not read them.
func (a *Admin) withContent(f func(suffix string) error) error {
	err := f("")
	if err != nil && a.db.Denied(err) && f(hidden) == nil {
		return nil
	}
	return err
}

// A record is a row on its way from the database.
type record struct {
	admin.Record

	key, aggregateType, aggregateID, correlation, causation, tenant, lockedBy, brokerMessage, lastError *string
	created, available, expires, locked, published, finished                                            moment
}

// fields are the destinations of part_columns.sql.
func (r *record) fields() []any {
	return []any{
		&r.ID, &r.MessageID, &r.Broker, &r.Status, &r.Stream, &r.Type, &r.key, &r.Shard, &r.Priority, &r.Deferred,
		&r.ContentType, &r.aggregateType, &r.aggregateID, &r.correlation, &r.causation, &r.tenant, &r.Attempts, &r.Crashes,
		&r.created, &r.available, &r.expires, &r.locked, &r.published, &r.finished, &r.lockedBy, &r.brokerMessage, &r.lastError, &r.PayloadBytes,
	}
}

func (r *record) read() admin.Record {
	row := r.Record
	row.OrderingKey, row.AggregateType, row.AggregateID = valueOf(r.key), valueOf(r.aggregateType), valueOf(r.aggregateID)
	row.CorrelationID, row.CausationID, row.TenantID = valueOf(r.correlation), valueOf(r.causation), valueOf(r.tenant)
	row.LockedBy, row.BrokerMessageID, row.LastError = valueOf(r.lockedBy), valueOf(r.brokerMessage), lastErrorOf(r.lastError)
	row.CreatedAt, row.AvailableAt, row.ExpiresAt = r.created.Time, r.available.Time, r.expires.Time
	row.LockedUntil, row.PublishedAt, row.FinishedAt = r.locked.Time, r.published.Time, r.finished.Time
	return row
}

// valueOf is a text; empty where it is NULL.
func valueOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
