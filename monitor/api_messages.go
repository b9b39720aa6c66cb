package monitor

import (
	"encoding/json"
	"math"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

// Deferral tells for which message a row waits, in the form of the HTTP interface, which the command's JSON shares.
type Deferral struct {
	Reason    string     `json:"reason"`
	MessageID string     `json:"message_id"`
	Until     *time.Time `json:"until,omitempty"`
}

// NewDeferral returns nil where there is none.
func NewDeferral(d *admin.Deferral) *Deferral {
	if d == nil {
		return nil
	}
	return &Deferral{Reason: d.Reason, MessageID: d.MessageID, Until: some(d.Until)}
}

// messageAnswer is one row. What is empty is left out.
type messageAnswer struct {
	ID              int64             `json:"id"`
	MessageID       string            `json:"message_id"`
	Broker          string            `json:"broker"`
	Status          outbox.Status     `json:"status"`
	Stream          string            `json:"stream"`
	Type            string            `json:"type"`
	Key             string            `json:"key,omitempty"`
	Shard           int               `json:"shard"`
	Priority        int               `json:"priority"`
	Deferred        bool              `json:"deferred,omitempty"`
	Deferral        *Deferral         `json:"deferral,omitempty"`
	ContentType     string            `json:"content_type,omitempty"`
	AggregateType   string            `json:"aggregate_type,omitempty"`
	AggregateID     string            `json:"aggregate_id,omitempty"`
	CorrelationID   string            `json:"correlation_id,omitempty"`
	CausationID     string            `json:"causation_id,omitempty"`
	TenantID        string            `json:"tenant_id,omitempty"`
	Attempts        int               `json:"attempts"`
	Crashes         int               `json:"crashes"`
	CreatedAt       time.Time         `json:"created_at"`
	AvailableAt     *time.Time        `json:"available_at,omitempty"`
	ExpiresAt       *time.Time        `json:"expires_at,omitempty"`
	LockedUntil     *time.Time        `json:"locked_until,omitempty"`
	PublishedAt     *time.Time        `json:"published_at,omitempty"`
	FinishedAt      *time.Time        `json:"finished_at,omitempty"`
	LockedBy        string            `json:"locked_by,omitempty"`
	BrokerMessageID string            `json:"broker_message_id,omitempty"`
	PayloadBytes    int               `json:"payload_bytes"`
	LastError       *outbox.LastError `json:"last_error,omitempty"`

	// With ?payload=1 alone. Payload is in base64; PayloadText is there in its place where it is text.
	Payload     []byte          `json:"payload,omitempty"`
	PayloadText *string         `json:"payload_text,omitempty"`
	Headers     json.RawMessage `json:"headers,omitempty"`
}

func newMessageAnswer(r *admin.Record) messageAnswer {
	return messageAnswer{
		ID: r.ID, MessageID: r.MessageID, Broker: r.Broker, Status: r.Status, Stream: r.Stream, Type: r.Type, Key: r.OrderingKey,
		Shard: r.Shard, Priority: r.Priority, Deferred: r.Deferred, Deferral: NewDeferral(r.Deferral), ContentType: r.ContentType, AggregateType: r.AggregateType,
		AggregateID: r.AggregateID, CorrelationID: r.CorrelationID, CausationID: r.CausationID, TenantID: r.TenantID,
		Attempts: r.Attempts, Crashes: r.Crashes, CreatedAt: r.CreatedAt.UTC(), AvailableAt: some(r.AvailableAt), ExpiresAt: some(r.ExpiresAt),
		LockedUntil: some(r.LockedUntil), PublishedAt: some(r.PublishedAt), FinishedAt: some(r.FinishedAt), LockedBy: r.LockedBy,
		BrokerMessageID: r.BrokerMessageID, PayloadBytes: r.PayloadBytes, LastError: r.LastError,
	}
}

// reveal adds what only an operator may see.
func (m *messageAnswer) reveal(r *admin.Record) {
	if utf8.Valid(r.Payload) {
		text := string(r.Payload)
		m.PayloadText = &text
	} else {
		m.Payload = r.Payload
	}
	switch {
	case r.Headers == "":
	case json.Valid([]byte(r.Headers)):
		m.Headers = json.RawMessage(r.Headers)
	default: // as it is, for that is what is wrong with the row
		m.Headers, _ = json.Marshal(r.Headers) //nolint:errchkjson // a text always encodes
	}
}

type messagesAnswer struct {
	Messages []messageAnswer `json:"messages"`
	Next     string          `json:"next"`
	Scanned  int             `json:"scanned"`
}

func (h *Handler) getMessages(w http.ResponseWriter, q *request) error {
	query, err := q.messagesQuery()
	if err != nil {
		return err
	}
	page, err := h.console.Messages(q.Context(), q.values["db"], query)
	if err != nil {
		return err
	}
	result := messagesAnswer{Messages: make([]messageAnswer, len(page.Records)), Next: page.Next, Scanned: page.Scanned}
	for i := range page.Records {
		result.Messages[i] = newMessageAnswer(&page.Records[i])
	}
	return answer(w, result)
}

type rowsAnswer struct {
	MessageID string          `json:"message_id"`
	Rows      []messageAnswer `json:"rows"`
}

func (h *Handler) getMessage(w http.ResponseWriter, q *request) error {
	payload, err := q.number("payload", 0, 0, 1)
	if err != nil {
		return err
	}
	if payload == 1 && q.identity.Role != RoleOperator {
		return problemf(http.StatusForbidden, "payloads and headers are for operators: ask without \"payload\"")
	}
	var records []admin.Record
	if payload == 1 {
		records, err = h.console.Reveal(q.Context(), Actor{Name: q.identity.Name, Via: "http"}, q.values["db"], q.values["id"])
	} else {
		records, err = h.console.Message(q.Context(), q.values["db"], q.values["id"])
	}
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return problemf(http.StatusNotFound, "there is no message %s in database %s: it may have been purged", q.values["id"], q.values["db"])
	}
	result := rowsAnswer{MessageID: records[0].MessageID, Rows: make([]messageAnswer, len(records))}
	for i := range records {
		result.Rows[i] = newMessageAnswer(&records[i])
		if payload == 1 {
			result.Rows[i].reveal(&records[i])
		}
	}
	return answer(w, result)
}

type groupsAnswer struct {
	Groups  []groupAnswer `json:"groups"`
	Scanned int           `json:"scanned"`
	More    bool          `json:"more"`
}

type groupAnswer struct {
	Fingerprint string                `json:"fingerprint"`
	Broker      string                `json:"broker"`
	Class       string                `json:"class"`
	Message     string                `json:"message"`
	Count       int                   `json:"count"`
	ByStatus    map[outbox.Status]int `json:"by_status"`
	Types       map[string]int        `json:"types"`
	FirstAt     *time.Time            `json:"first_at,omitempty"`
	LastAt      *time.Time            `json:"last_at,omitempty"`
	Sample      []string              `json:"sample"`
	Keys        int                   `json:"keys"`
}

func (h *Handler) getFailures(w http.ResponseWriter, q *request) error {
	found, err := h.console.Failures(q.Context(), q.values["db"], q.text("broker"))
	if err != nil {
		return err
	}
	result := groupsAnswer{Groups: make([]groupAnswer, len(found.Groups)), Scanned: found.Scanned, More: found.More}
	for i := range found.Groups {
		g := &found.Groups[i]
		result.Groups[i] = groupAnswer{
			Fingerprint: g.Fingerprint, Broker: g.Broker, Class: g.Class, Message: g.Message, Count: g.Count, ByStatus: g.ByStatus, Types: g.Types,
			FirstAt: some(g.FirstAt), LastAt: some(g.LastAt), Sample: g.Sample, Keys: g.Keys,
		}
	}
	return answer(w, result)
}

type blockedAnswer struct {
	Keys []blockedKey `json:"keys"`
}

type blockedKey struct {
	Broker    string            `json:"broker"`
	Key       string            `json:"key"`
	MessageID string            `json:"message_id"`
	Status    outbox.Status     `json:"status"`
	Reason    string            `json:"reason"`
	Since     *time.Time        `json:"since,omitempty"`
	Until     *time.Time        `json:"until,omitempty"`
	Followers int64             `json:"followers"`
	More      bool              `json:"more"`
	LastError *outbox.LastError `json:"last_error,omitempty"`
}

func (h *Handler) getBlocked(w http.ResponseWriter, q *request) error {
	found, err := h.console.Blocked(q.Context(), q.values["db"], q.text("broker"))
	if err != nil {
		return err
	}
	result := blockedAnswer{Keys: make([]blockedKey, len(found))}
	for i := range found {
		k := &found[i]
		result.Keys[i] = blockedKey{
			Broker: k.Broker, Key: k.Key, MessageID: k.MessageID, Status: k.Status, Reason: k.Reason, Since: some(k.Since), Until: some(k.Until),
			Followers: k.Followers.N, More: k.Followers.More, LastError: k.LastError,
		}
	}
	return answer(w, result)
}

type workersAnswer struct {
	Instances []instanceAnswer `json:"instances"`
}

type instanceAnswer struct {
	ID        string        `json:"id"`
	Name      string        `json:"name"`
	Host      string        `json:"host"`
	PID       int           `json:"pid"`
	Version   string        `json:"version"`
	StartedAt time.Time     `json:"started_at"`
	SeenAt    time.Time     `json:"seen_at"`
	Silent    bool          `json:"silent"`
	Work      []driver.Work `json:"work"`
	// Unreadable is there for a row that cannot be read, with what is wrong.
	Unreadable string `json:"unreadable,omitempty"`
}

// silentAfter is when a process that should be heard of every 30 seconds counts as silent. It bears with clocks that differ somewhat.
const silentAfter = 2 * time.Minute

func (h *Handler) getWorkers(w http.ResponseWriter, q *request) error {
	found, err := h.console.Workers(q.Context(), q.values["db"])
	if err != nil {
		return err
	}
	result := workersAnswer{Instances: make([]instanceAnswer, len(found))}
	for i := range found {
		in := &found[i]
		result.Instances[i] = instanceAnswer{
			ID: in.ID.String(), Name: in.Name, Host: in.Host, PID: in.PID, Version: in.Version, StartedAt: in.StartedAt.UTC(), SeenAt: in.SeenAt.UTC(),
			Silent: h.now().Sub(in.SeenAt) > silentAfter, Work: append([]driver.Work{}, in.Work...), Unreadable: in.Unreadable,
		}
	}
	return answer(w, result)
}

type auditAnswer struct {
	Entries []entryAnswer `json:"entries"`
}

type entryAnswer struct {
	ID        int64           `json:"id"`
	Actor     string          `json:"actor"`
	Via       string          `json:"via"`
	Action    string          `json:"action"`
	Broker    string          `json:"broker"`
	Filter    json.RawMessage `json:"filter"`
	Reason    string          `json:"reason"`
	Rows      int64           `json:"rows"`
	StartedAt time.Time       `json:"started_at"`
	EndedAt   *time.Time      `json:"ended_at,omitempty"`
	Failure   string          `json:"failure,omitempty"`
}

func (h *Handler) getAudit(w http.ResponseWriter, q *request) error {
	before, err := q.number("before", 0, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	limit, err := q.number("limit", DefaultPage, 1, MaxPage)
	if err != nil {
		return err
	}
	entries, err := h.console.Audit(q.Context(), q.values["db"], before, int(limit))
	if err != nil {
		return err
	}
	result := auditAnswer{Entries: make([]entryAnswer, len(entries))}
	for i := range entries {
		e := &entries[i]
		filter := json.RawMessage(e.Filter)
		if !json.Valid(filter) {
			filter = json.RawMessage("{}")
		}
		result.Entries[i] = entryAnswer{
			ID: e.ID, Actor: e.Actor, Via: e.Via, Action: e.Action, Broker: e.Broker, Filter: filter, Reason: e.Reason, Rows: e.Rows,
			StartedAt: e.StartedAt.UTC(), EndedAt: some(e.EndedAt), Failure: e.Failure,
		}
	}
	return answer(w, result)
}
