package sqlserver

import (
	"database/sql"
	"encoding/json"
	"time"

	"github.com/gorm-fanout/fanout/outbox"
)

// overviews gathers the result sets of sql/overview.sql; the brokers come first, by name.
type overviews struct {
	limit   int64
	brokers []outbox.BrokerOverview
}

func (o *overviews) find(broker string) *outbox.BrokerOverview {
	for i := range o.brokers {
		if o.brokers[i].Broker == broker {
			return &o.brokers[i]
		}
	}
	return nil
}

func (o *overviews) broker(rows *sql.Rows) error {
	var (
		b             outbox.BrokerOverview
		deferred, age int64
		latest        sql.NullTime
	)
	err := rows.Scan(&b.Broker, &deferred, &age, &latest)
	b.Deferred = capped(deferred, o.limit, false)
	b.OldestPending = time.Duration(age) * time.Microsecond
	b.LastPublished = utc(latest)
	b.Counts = make(map[outbox.Status]outbox.Count, len(outbox.Statuses()))
	for _, status := range outbox.Statuses() {
		b.Counts[status] = outbox.Count{}
	}
	o.brokers = append(o.brokers, b)
	return err
}

func (o *overviews) count(rows *sql.Rows) error {
	var (
		broker string
		status outbox.Status
		n      int64
		more   bool
	)
	err := rows.Scan(&broker, &status, &n, &more)
	if b := o.find(broker); b != nil {
		b.Counts[status] = capped(n, o.limit, more)
	}
	return err
}

func (o *overviews) lastError(rows *sql.Rows) error {
	var broker, text string
	err := rows.Scan(&broker, &text)
	if b := o.find(broker); b != nil {
		b.LastError = lastErrorOf(text)
	}
	return err
}

// capped is a count that stops at the limit, or stopped before it.
func capped(n, limit int64, more bool) outbox.Count {
	return outbox.Count{N: min(n, limit), More: more || n > limit}
}

// page gathers the result sets of sql/list.sql.
type page struct {
	records []outbox.Record
	places  []int64 // of the records, among what was looked at
	looked  int64
	last    outbox.Position // the last that was looked at
}

func (p *page) row(rows *sql.Rows) error {
	var place int64
	record, err := readRecord(rows, &place)
	p.records, p.places = append(p.records, record), append(p.places, place)
	return err
}

func (p *page) end(rows *sql.Rows) error {
	var at sql.NullTime
	err := rows.Scan(&p.looked, &p.last.ID, &at)
	p.last.Time = utc(at)
	return err
}

// list is the page for whoever asked for it. What was looked at behind the last record of a full page belongs to the next one.
func (p *page) list(limit, scan int) outbox.List {
	list := outbox.List{Records: p.records, Scanned: int(p.looked)}
	if n := len(p.records); n == limit {
		last := p.records[n-1]
		if list.Scanned = int(p.places[n-1]); p.places[n-1] < p.looked || p.looked >= int64(scan) {
			list.Next = outbox.Position{ID: last.ID}
			if last.Status.Terminal() {
				list.Next.Time = last.FinishedAt
			}
		}
		return list
	}
	if p.looked >= int64(scan) {
		list.Next = p.last
	}
	return list
}

// readRecord reads the columns of sql/browse_columns.sql, behind those that the batch has of its own.
func readRecord(rows *sql.Rows, own ...any) (r outbox.Record, err error) {
	var (
		key, aggregateType, aggregateID, correlation, causation, tenant, lockedBy, brokerMessageID, lastError sql.NullString
		available, expires, locked, published, finished                                                       sql.NullTime
	)
	err = rows.Scan(append(own,
		&r.ID, &r.MessageID, &r.Broker, &r.Status, &r.Stream, &r.Type, &key, &r.Shard, &r.Priority, &r.Deferred, &r.ContentType,
		&aggregateType, &aggregateID, &correlation, &causation, &tenant, &r.Attempts, &r.Crashes, &r.CreatedAt,
		&available, &expires, &locked, &published, &finished, &lockedBy, &brokerMessageID, &lastError, &r.PayloadBytes)...)
	r.OrderingKey, r.AggregateType, r.AggregateID = key.String, aggregateType.String, aggregateID.String
	r.CorrelationID, r.CausationID, r.TenantID = correlation.String, causation.String, tenant.String
	r.LockedBy, r.BrokerMessageID, r.LastError = lockedBy.String, brokerMessageID.String, lastErrorOf(lastError.String)
	r.CreatedAt = r.CreatedAt.UTC()
	r.AvailableAt, r.ExpiresAt, r.LockedUntil, r.PublishedAt, r.FinishedAt = utc(available), utc(expires), utc(locked), utc(published), utc(finished)
	return r, err
}

// readBlocked reads a row of sql/blocked.sql.
func readBlocked(rows *sql.Rows, maxCount int64) (k outbox.KeyBlock, err error) {
	var (
		until     sql.NullTime
		followers int64
		cut       bool
		lastError sql.NullString
	)
	err = rows.Scan(&k.Key, &k.MessageID, &k.Status, &k.Reason, &k.Since, &until, &followers, &cut, &lastError)
	k.Since, k.Until = k.Since.UTC(), utc(until)
	k.Followers, k.LastError = capped(followers, maxCount, cut), lastErrorOf(lastError.String)
	return k, err
}

// lastErrorOf reads last_error; nil where there is none, or one that is no JSON.
func lastErrorOf(text string) *outbox.LastError {
	var e outbox.LastError
	if text == "" || json.Unmarshal([]byte(text), &e) != nil {
		return nil
	}
	return &e
}

// utc is the time of a column; zero where it has none.
func utc(at sql.NullTime) time.Time {
	if !at.Valid {
		return time.Time{}
	}
	return at.Time.UTC()
}
