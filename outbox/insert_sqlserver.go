package outbox

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// On SQL Server a plan belongs to a text and to the declarations of its parameters, and the driver
// declares a text or bytes with the length of the value: every commit would compile a plan of its
// own and push others out of the cache. Types of a fixed length are the driver's own, and a writer
// on another database should not have to link it. So all rows travel as one text in JSON, which is
// always long enough to be declared as nvarchar(max). Payloads that are small together are in it as
// hex digits; others are one value of bytes, which is long enough to be declared as varbinary(max).
// That makes two statements, whatever the number of rows, and one declaration for each.
const (
	// maxSizedText is the most UTF-16 code units, and maxSizedBytes the most bytes, that are
	// declared with their length: what is longer is declared as (max).
	maxSizedText  = 4000
	maxSizedBytes = 8000
)

// jsonColumns are how OPENJSON reads a row: what a value must have to fit into its column. Ordinal
// orders the identities: without ORDER BY, SQL Server promises no order for them.
const jsonColumns = `ordinal int, message_id uniqueidentifier, target_broker nvarchar(128), stream nvarchar(512), type nvarchar(512), ordering_key nvarchar(512), ` +
	`priority int, content_type nvarchar(256), headers nvarchar(max), aggregate_type nvarchar(512), aggregate_id nvarchar(512), correlation_id nvarchar(512), ` +
	`causation_id nvarchar(512), tenant_id nvarchar(512), available_at datetime2(6), expires_at datetime2(6), payload varchar(max), payload_at bigint, payload_bytes bigint`

// jsonRow is a row on its way to SQL Server. What is left out is NULL.
type jsonRow struct {
	Ordinal       int    `json:"ordinal"`
	MessageID     string `json:"message_id"`
	TargetBroker  string `json:"target_broker"`
	Stream        string `json:"stream"`
	Type          string `json:"type"`
	OrderingKey   string `json:"ordering_key,omitempty"`
	Priority      int    `json:"priority"`
	ContentType   string `json:"content_type"`
	Headers       string `json:"headers,omitempty"`
	AggregateType string `json:"aggregate_type,omitempty"`
	AggregateID   string `json:"aggregate_id,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
	CausationID   string `json:"causation_id,omitempty"`
	TenantID      string `json:"tenant_id,omitempty"`
	AvailableAt   string `json:"available_at,omitempty"`
	ExpiresAt     string `json:"expires_at,omitempty"`
	Payload       string `json:"payload"`
	PayloadAt     int    `json:"payload_at"` // in the bytes, from 1
	PayloadBytes  int    `json:"payload_bytes"`
}

// jsonArgs are rows as the parameters of one statement: the text, and the payloads where they are
// apart.
func jsonArgs(rows []Row) ([]any, error) {
	total := 0
	for i := range rows {
		total += len(rows[i].Payload)
	}
	apart := total > maxSizedBytes
	var payloads []byte
	if apart {
		payloads = make([]byte, 0, total)
	}
	items := make([]jsonRow, len(rows))
	for i := range rows {
		r := &rows[i]
		items[i] = jsonRow{
			Ordinal: i, MessageID: r.MessageID.String(), TargetBroker: r.TargetBroker, Stream: r.Stream, Type: r.Type, OrderingKey: r.OrderingKey,
			Priority: r.Priority, ContentType: r.contentType(), Headers: r.Headers, AggregateType: r.AggregateType, AggregateID: r.AggregateID,
			CorrelationID: r.CorrelationID, CausationID: r.CausationID, TenantID: r.TenantID, AvailableAt: jsonTime(r.AvailableAt), ExpiresAt: jsonTime(r.ExpiresAt),
		}
		if apart {
			items[i].PayloadAt, items[i].PayloadBytes = len(payloads)+1, len(r.Payload)
			payloads = append(payloads, r.Payload...)
		} else {
			items[i].Payload = hex.EncodeToString(r.Payload)
		}
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(items); err != nil {
		return nil, fmt.Errorf("outbox: encode %d rows: %w", len(rows), err)
	}
	if short := maxSizedText + 1 - utf8.RuneCountInString(text.String()); short > 0 {
		text.WriteString(strings.Repeat(" ", short))
	}
	if apart {
		return []any{text.String(), payloads}, nil
	}
	return []any{text.String()}, nil
}

// jsonTime is a time as datetime2(6) reads it in any language of the session; "" = none.
func jsonTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Truncate(time.Microsecond).Format("2006-01-02T15:04:05.000000")
}

// jsonInsertSQL inserts the rows of a text, all of them or those that are not there yet.
func (i *Inserter) jsonInsertSQL(apart, missing bool) string {
	payload := "CONVERT(varbinary(max), r.payload, 2)"
	if apart {
		payload = "SUBSTRING(@p2, r.payload_at, r.payload_bytes)"
	}
	columns := insertColumns[:len(insertColumns)-1]
	var text strings.Builder
	fmt.Fprintf(&text, "INSERT INTO %s (%s, payload) SELECT r.%s, %s FROM OPENJSON(@p1) WITH (%s) AS r",
		i.table, strings.Join(columns, ", "), strings.Join(columns, ", r."), payload, jsonColumns)
	if missing {
		// No MERGE, which is known for races. HOLDLOCK keeps the gap closed between the test and the
		// insert.
		fmt.Fprintf(&text, " WHERE NOT EXISTS (SELECT 1 FROM %s AS o WITH (UPDLOCK, HOLDLOCK)"+
			" WHERE o.message_id = r.message_id AND o.target_broker = r.target_broker COLLATE Latin1_General_100_BIN2)", i.table)
	}
	text.WriteString(" ORDER BY r.ordinal")
	return text.String()
}
