package main

import (
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// The JSON of this command is that of the HTTP interface, with the database's name in each object where several may answer.

// wireError is an error of a row.
type wireError struct {
	Class   string     `json:"class"`
	Message string     `json:"message"`
	At      *time.Time `json:"at,omitempty"`
	Attempt int        `json:"attempt,omitempty"`
}

func toError(last *outbox.LastError) *wireError {
	if last == nil {
		return nil
	}
	return &wireError{Class: last.Class, Message: last.Message, At: toTime(last.At), Attempt: last.Attempt}
}

// toTime leaves out what is not there.
func toTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}

// wireRecord is one row.
type wireRecord struct {
	Database        string            `json:"database"`
	ID              int64             `json:"id"`
	MessageID       string            `json:"message_id"`
	Broker          string            `json:"broker"`
	Status          outbox.Status     `json:"status"`
	Stream          string            `json:"stream"`
	Type            string            `json:"type"`
	Key             string            `json:"key,omitempty"`
	Shard           int               `json:"shard"`
	Priority        int               `json:"priority,omitempty"`
	Deferred        bool              `json:"deferred,omitempty"`
	Deferral        *monitor.Deferral `json:"deferral,omitempty"`
	ContentType     string            `json:"content_type,omitempty"`
	AggregateType   string            `json:"aggregate_type,omitempty"`
	AggregateID     string            `json:"aggregate_id,omitempty"`
	CorrelationID   string            `json:"correlation_id,omitempty"`
	CausationID     string            `json:"causation_id,omitempty"`
	TenantID        string            `json:"tenant_id,omitempty"`
	Attempts        int               `json:"attempts"`
	Crashes         int               `json:"crashes,omitempty"`
	CreatedAt       *time.Time        `json:"created_at,omitempty"`
	AvailableAt     *time.Time        `json:"available_at,omitempty"`
	ExpiresAt       *time.Time        `json:"expires_at,omitempty"`
	LockedUntil     *time.Time        `json:"locked_until,omitempty"`
	PublishedAt     *time.Time        `json:"published_at,omitempty"`
	FinishedAt      *time.Time        `json:"finished_at,omitempty"`
	LockedBy        string            `json:"locked_by,omitempty"`
	BrokerMessageID string            `json:"broker_message_id,omitempty"`
	PayloadBytes    int               `json:"payload_bytes"`
	LastError       *wireError        `json:"last_error,omitempty"`
	Payload         []byte            `json:"payload,omitempty"`
	PayloadText     string            `json:"payload_text,omitempty"`
	Headers         json.RawMessage   `json:"headers,omitempty"`
}

// toRecord leaves out the payload and the headers, which may hold what is nobody's business.
func toRecord(database string, r *admin.Record) wireRecord {
	return wireRecord{
		Database: database, ID: r.ID, MessageID: r.MessageID, Broker: r.Broker, Status: r.Status, Stream: r.Stream, Type: r.Type, Key: r.OrderingKey,
		Shard: r.Shard, Priority: r.Priority, Deferred: r.Deferred, Deferral: monitor.NewDeferral(r.Deferral), ContentType: r.ContentType,
		AggregateType: r.AggregateType, AggregateID: r.AggregateID, CorrelationID: r.CorrelationID, CausationID: r.CausationID, TenantID: r.TenantID,
		Attempts: r.Attempts, Crashes: r.Crashes, CreatedAt: toTime(r.CreatedAt), AvailableAt: toTime(r.AvailableAt),
		ExpiresAt: toTime(r.ExpiresAt), LockedUntil: toTime(r.LockedUntil),
		PublishedAt: toTime(r.PublishedAt), FinishedAt: toTime(r.FinishedAt), LockedBy: r.LockedBy, BrokerMessageID: r.BrokerMessageID,
		PayloadBytes: r.PayloadBytes, LastError: toError(r.LastError),
	}
}

// reveal adds payload and headers.
func (w *wireRecord) reveal(r *admin.Record) {
	if utf8.Valid(r.Payload) {
		w.PayloadText = string(r.Payload)
	} else {
		w.Payload = r.Payload
	}
	if json.Valid([]byte(r.Headers)) {
		w.Headers = json.RawMessage(r.Headers)
	}
}
