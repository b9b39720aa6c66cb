// Package api has the JSON that the HTTP interface of package monitor answers with and that the command
// prints, from rows to the status of a database. monitor/openapi.json describes the fields. Times are in
// UTC, and left out where there is none; Database is set where several databases may answer at once, as
// to the command.
package api

import (
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// Error is the last error of a row.
type Error struct {
	Acknowledged bool      `json:"acknowledged,omitempty"` // an operator has seen that the row is abandoned
	Class        string    `json:"class"`
	Message      string    `json:"message"`
	At           time.Time `json:"at,omitzero"`
	Attempt      int       `json:"attempt"`
}

// Deferral says for which message a row waits, since when and until when.
type Deferral struct {
	Reason    string    `json:"reason"`
	MessageID string    `json:"message_id"`
	Since     time.Time `json:"since,omitzero"`
	Until     time.Time `json:"until,omitzero"`
}

// Record is a row.
type Record struct {
	Database        string        `json:"database,omitempty"`
	ID              int64         `json:"id"`
	MessageID       string        `json:"message_id"`
	Broker          string        `json:"broker"`
	Status          outbox.Status `json:"status"`
	State           outbox.State  `json:"state,omitempty"`
	Stream          string        `json:"stream"`
	Type            string        `json:"type"`
	Key             string        `json:"key,omitempty"`
	Shard           int           `json:"shard"`
	Priority        int           `json:"priority"`
	Deferred        bool          `json:"deferred,omitempty"`
	Deferral        *Deferral     `json:"deferral,omitempty"`
	ContentType     string        `json:"content_type,omitempty"`
	AggregateType   string        `json:"aggregate_type,omitempty"`
	AggregateID     string        `json:"aggregate_id,omitempty"`
	CorrelationID   string        `json:"correlation_id,omitempty"`
	CausationID     string        `json:"causation_id,omitempty"`
	TenantID        string        `json:"tenant_id,omitempty"`
	Attempts        int           `json:"attempts"`
	Crashes         int           `json:"crashes"`
	CreatedAt       time.Time     `json:"created_at"`
	AvailableAt     time.Time     `json:"available_at,omitzero"`
	ExpiresAt       time.Time     `json:"expires_at,omitzero"`
	LockedUntil     time.Time     `json:"locked_until,omitzero"`
	PublishedAt     time.Time     `json:"published_at,omitzero"`
	FinishedAt      time.Time     `json:"finished_at,omitzero"`
	LockedBy        string        `json:"locked_by,omitempty"`
	BrokerMessageID string        `json:"broker_message_id,omitempty"`
	PayloadBytes    int           `json:"payload_bytes"`
	LastError       *Error        `json:"last_error,omitempty"`

	// Set by Reveal. PayloadText replaces Payload, which is in base64, where the payload is text.
	Payload     []byte          `json:"payload,omitempty"`
	PayloadText *string         `json:"payload_text,omitempty"`
	Headers     json.RawMessage `json:"headers,omitempty"`
}

// NewRecord has neither payload nor headers.
func NewRecord(database string, r *admin.Record) Record {
	record := Record{
		Database: database, ID: r.ID, MessageID: r.MessageID, Broker: r.Broker, Status: r.Status, State: r.State, Stream: r.Stream, Type: r.Type, Key: r.OrderingKey,
		Shard: r.Shard, Priority: r.Priority, Deferred: r.Deferred, ContentType: r.ContentType, AggregateType: r.AggregateType,
		AggregateID: r.AggregateID, CorrelationID: r.CorrelationID, CausationID: r.CausationID, TenantID: r.TenantID,
		Attempts: r.Attempts, Crashes: r.Crashes, CreatedAt: r.CreatedAt.UTC(), AvailableAt: r.AvailableAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
		LockedUntil: r.LockedUntil.UTC(), PublishedAt: r.PublishedAt.UTC(), FinishedAt: r.FinishedAt.UTC(), LockedBy: r.LockedBy,
		BrokerMessageID: r.BrokerMessageID, PayloadBytes: r.PayloadBytes, LastError: (*Error)(r.LastError),
	}
	if d := r.Deferral; d != nil {
		record.Deferral = &Deferral{Reason: d.Reason, MessageID: d.MessageID, Since: d.Since.UTC(), Until: d.Until.UTC()}
	}
	return record
}

// Reveal adds payload and headers, which only operators may see.
func (w *Record) Reveal(r *admin.Record) {
	switch {
	case r.Payload == nil && r.PayloadBytes > 0: // too large to show
	case utf8.Valid(r.Payload):
		text := string(r.Payload)
		w.PayloadText = &text
	default:
		w.Payload = r.Payload
	}
	switch {
	case r.Headers == "":
	case json.Valid([]byte(r.Headers)):
		w.Headers = json.RawMessage(r.Headers)
	default: // as text, since this is what is wrong with the row
		w.Headers, _ = json.Marshal(r.Headers) //nolint:errchkjson // a string always encodes
	}
}

// KeyBlock is an ordering key that waits.
type KeyBlock struct {
	Database  string        `json:"database,omitempty"`
	Broker    string        `json:"broker"`
	Key       string        `json:"key"`
	Class     string        `json:"class"`
	MessageID string        `json:"message_id"`
	Status    outbox.Status `json:"status"`
	Reason    string        `json:"reason"`
	Since     time.Time     `json:"since,omitzero"`
	Until     time.Time     `json:"until,omitzero"`
	Followers int64         `json:"followers"`
	More      bool          `json:"more"`
	LastError *Error        `json:"last_error,omitempty"`
}

// NewKeyBlock converts k.
func NewKeyBlock(database string, k *admin.KeyBlock) KeyBlock {
	return KeyBlock{
		Database: database, Broker: k.Broker, Key: k.Key, Class: k.Class.String(), MessageID: k.MessageID, Status: k.Status, Reason: k.Reason,
		Since: k.Since.UTC(),
		Until: k.Until.UTC(), Followers: k.Followers.N, More: k.Followers.More, LastError: (*Error)(k.LastError),
	}
}

// KeyTotals are how many ordering keys wait and how many rows behind them, listed or not; of these,
// those that wait for an operator.
type KeyTotals struct {
	Database string   `json:"database,omitempty"`
	Waiting  KeyCount `json:"waiting"`
	Blocked  KeyCount `json:"blocked"`
}

// KeyCount is a number of ordering keys, and of the rows behind them; More where there may be more.
type KeyCount struct {
	Keys     int64 `json:"keys"`
	KeysMore bool  `json:"keys_more"`
	Rows     int64 `json:"rows"`
	RowsMore bool  `json:"rows_more"`
}

// NewKeyTotals converts the totals of a list.
func NewKeyTotals(database string, l *admin.KeyBlocks) KeyTotals {
	count := func(c admin.KeyCount) KeyCount { return KeyCount{c.Keys.N, c.Keys.More, c.Rows.N, c.Rows.More} }
	return KeyTotals{Database: database, Waiting: count(l.Waiting), Blocked: count(l.Blocked)}
}

// SilentAfter is the age of a heartbeat from which a process counts as silent. Heartbeats are 30 s
// apart; the rest is for clocks that differ.
const SilentAfter = 2 * time.Minute

// Instance is a process that runs a relay.
type Instance struct {
	Database  string       `json:"database,omitempty"`
	ID        string       `json:"id"`
	Name      string       `json:"name"`
	Host      string       `json:"host"`
	PID       int          `json:"pid"`
	Version   string       `json:"version"`
	StartedAt time.Time    `json:"started_at"`
	SeenAt    time.Time    `json:"seen_at"`
	Silent    bool         `json:"silent"`
	Work      []admin.Work `json:"work"`
	// Unavailable are the brokers and destinations to which it sends nothing for the moment.
	Unavailable []admin.Unavailable `json:"unavailable,omitempty"`
	Unreadable  string              `json:"unreadable,omitempty"` // what is wrong with a row that cannot be read
}

// NewInstance converts p.
func NewInstance(database string, p *admin.Instance, now time.Time) Instance {
	return Instance{
		Database: database, ID: p.ID.String(), Name: p.Name, Host: p.Host, PID: p.PID, Version: p.Version, StartedAt: p.StartedAt.UTC(), SeenAt: p.SeenAt.UTC(),
		Silent: now.Sub(p.SeenAt) > SilentAfter, Work: append([]admin.Work{}, p.Work...), Unavailable: p.Unavailable, Unreadable: p.Unreadable,
	}
}

// AuditEntry is an entry of the audit.
type AuditEntry struct {
	Database  string          `json:"database,omitempty"`
	ID        int64           `json:"id"`
	Actor     string          `json:"actor"`
	Via       string          `json:"via"`
	Action    string          `json:"action"`
	Broker    string          `json:"broker"`
	Filter    json.RawMessage `json:"filter"`
	Reason    string          `json:"reason"`
	Rows      int64           `json:"rows"`
	StartedAt time.Time       `json:"started_at"`
	EndedAt   time.Time       `json:"ended_at,omitzero"`
	Failure   string          `json:"failure,omitempty"`
}

// NewAuditEntry converts e.
func NewAuditEntry(database string, e *admin.AuditEntry) AuditEntry {
	filter := json.RawMessage(e.Filter)
	if !json.Valid(filter) {
		filter = json.RawMessage("{}")
	}
	return AuditEntry{
		Database: database, ID: e.ID, Actor: e.Actor, Via: e.Via, Action: e.Action, Broker: e.Broker, Filter: filter, Reason: e.Reason, Rows: e.Rows,
		StartedAt: e.StartedAt.UTC(), EndedAt: e.EndedAt.UTC(), Failure: e.Failure,
	}
}

// Database is the status of a database, with brokers by their names. B is [Broker], or has more.
type Database[B any] struct {
	Status string                  `json:"status"` // ok or error
	Error  string                  `json:"error,omitempty"`
	Counts map[outbox.Status]int64 `json:"counts,omitempty"`
	Capped bool                    `json:"capped,omitempty"`
	// Relays that run on the database, and those that fell silent: killed, or cut off from it.
	Relays       int          `json:"relays"`
	SilentRelays int          `json:"silent_relays"`
	Brokers      map[string]B `json:"brokers,omitempty"`
}

// NewDatabase has no brokers yet.
func NewDatabase[B any](counts map[outbox.Status]admin.Count) Database[B] {
	numbers, capped := split(counts)
	return Database[B]{Status: "ok", Counts: numbers, Capped: len(capped) > 0, Brokers: map[string]B{}}
}

// Broker is the status of a broker of one database. The rates are null where they are not known.
type Broker struct {
	Counts               map[outbox.Status]int64 `json:"counts"`
	Capped               []outbox.Status         `json:"capped"` // statuses whose count ended at the cap
	Deferred             int64                   `json:"deferred"`
	DeferredMore         bool                    `json:"deferred_more,omitempty"`
	BlockedKeys          int64                   `json:"blocked_keys"` // keys that wait for an operator
	BlockedKeysMore      bool                    `json:"blocked_keys_more,omitempty"`
	Held                 int64                   `json:"held"` // rows behind them
	HeldMore             bool                    `json:"held_more,omitempty"`
	Scheduled            int64                   `json:"scheduled"`
	ScheduledMore        bool                    `json:"scheduled_more,omitempty"`
	Unacknowledged       int64                   `json:"unacknowledged"` // abandoned rows
	UnacknowledgedMore   bool                    `json:"unacknowledged_more,omitempty"`
	OldestPendingSeconds float64                 `json:"oldest_pending_seconds"`
	LagSeconds           float64                 `json:"lag_seconds"`
	RetryRate            *float64                `json:"retry_rate"`
	PublishedPerSecond   *float64                `json:"published_per_second"`
	Paused               *Pause                  `json:"paused"`
	LastPublished        time.Time               `json:"last_published,omitzero"`
	LastError            *Error                  `json:"last_error,omitempty"`
	Unknown              bool                    `json:"unknown"`            // an unconfigured broker
	NotKept              bool                    `json:"not_kept,omitempty"` // its rows are removed as they are delivered
}

// Pause says why nothing is delivered to a broker.
type Pause struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// NewBroker has no rates yet. paused is nil for a broker that is not.
func NewBroker(b *admin.BrokerOverview, paused *admin.Pause, unknown bool) Broker {
	broker := Broker{
		Deferred: b.Deferred.N, DeferredMore: b.Deferred.More, BlockedKeys: b.BlockedKeys.N, BlockedKeysMore: b.BlockedKeys.More, Held: b.Held.N, HeldMore: b.Held.More,
		Scheduled: b.Scheduled.N, ScheduledMore: b.Scheduled.More, Unacknowledged: b.Unacknowledged.N, UnacknowledgedMore: b.Unacknowledged.More,
		OldestPendingSeconds: b.OldestPending.Round(time.Millisecond).Seconds(), LagSeconds: b.Lag.Round(time.Millisecond).Seconds(),
		LastPublished: b.LastPublished.UTC(), LastError: (*Error)(b.LastError), Unknown: unknown,
	}
	broker.Counts, broker.Capped = split(b.Counts)
	if paused != nil {
		broker.Paused = &Pause{Since: paused.Since.UTC(), By: paused.By, Reason: paused.Reason}
	}
	return broker
}

// split separates the numbers from the statuses whose number is a lower bound.
func split(counts map[outbox.Status]admin.Count) (numbers map[outbox.Status]int64, capped []outbox.Status) {
	numbers, capped = make(map[outbox.Status]int64, len(counts)), []outbox.Status{}
	for status, n := range counts {
		numbers[status] = n.N
		if n.More {
			capped = append(capped, status)
		}
	}
	slices.Sort(capped)
	return numbers, capped
}
