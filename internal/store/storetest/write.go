package storetest

import (
	"bytes"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/limits"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

var writeTests = []test{
	{name: "DefaultsOfPlainSQL", run: testDefaults},
	{name: "OneRowPerMessageAndBroker", run: testUnique},
	{name: "ChecksRefuseHalfMadeUpdates", run: testChecks},
	{name: "TextsAndBytesAreExact", run: testExact},
	{name: "InsertMissing", run: testInsertMissing},
	{name: "Discarded", run: testDiscarded},
	{name: "Written", run: testWritten},
	{name: "Bounds", run: testBounds},
	{name: "MessageIDs", run: testMessageIDs},
	{name: "EmptyKey", run: testEmptyKey},
}

// A row needs five columns; all else has a default.
func testDefaults(t *table) {
	id := uuid.New()
	t.exec("INSERT INTO {t} (message_id, target_broker, stream, type, payload) VALUES (" + t.sql.id("'"+id.String()+"'") + ", '" + broker +
		"', 'ordering::order', 'Ordering.OrderPlaced.v1', " + t.sql.bytes(`{"a":1}`) + ")")
	row := t.ids("SELECT id FROM {t}")[0]
	assert.Equal(t, state{Status: "pending"}, t.state(row))
	assert.Equal(t, int64(1), t.number("SELECT count(*) FROM {t} WHERE ordering_key IS NULL AND headers IS NULL AND tenant_id IS NULL"+
		" AND correlation_id IS NULL AND causation_id IS NULL AND aggregate_type IS NULL AND aggregate_id IS NULL"+
		" AND available_at IS NULL AND expires_at IS NULL AND deferred = deferred AND priority = 0 AND content_type = 'application/json'"))

	t.shard = t.shardOf(row)
	assert.GreaterOrEqual(t, t.shard, 0)
	assert.Less(t, t.shard, t.Store.Shards())
	batch := t.claim()
	require.Len(t, batch.Messages, 1)
	m := batch.Messages[0]
	assert.WithinDuration(t, time.Now(), m.CreatedAt, time.Minute)
	m.CreatedAt = time.Time{}
	assert.Equal(t, driver.Message{
		ID: row, MessageID: id.String(), Stream: "ordering::order", Type: "Ordering.OrderPlaced.v1",
		ContentType: "application/json", Payload: []byte(`{"a":1}`),
	}, m)
}

func testUnique(t *table) {
	row := newRow("key")
	t.insert(row)
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	require.NoError(t, err)
	require.Error(t, inserter.Insert(t.Context(), t.DB, []outbox.Row{row}), "the same message for the same broker")
	row.TargetBroker = "another"
	require.NoError(t, inserter.Insert(t.Context(), t.DB, []outbox.Row{row}))
	assert.Equal(t, int64(2), t.number("SELECT count(*) FROM {t}"))
}

// finished_at goes with the status, so that no update by hand can hide a row from the claim or
// bring back a finished one.
func testChecks(t *table) {
	id := t.add("key")[0]
	for _, change := range []string{
		"status = 'published'", "status = 'abandoned'", "status = 'done'", "status = NULL", "status = ''", "status = 'PENDING'",
		"finished_at = created_at", "status = 'failed', finished_at = created_at",
		"published_at = created_at", "status = 'published', finished_at = created_at",
		"status = 'abandoned', finished_at = created_at, published_at = created_at",
		"status = 'processing'", "status = 'processing', locked_until = created_at",
		"target_broker = NULL", "payload = NULL", "stream = NULL", "type = NULL", "message_id = NULL",
	} {
		assert.Error(t, t.try("UPDATE {t} SET "+change+" WHERE id = ?", id), change)
	}
	t.exec("UPDATE {t} SET status = 'abandoned', finished_at = created_at WHERE id = ?", id)
	assert.Error(t, t.try("UPDATE {t} SET status = 'pending' WHERE id = ?", id))
	t.exec("UPDATE {t} SET status = 'pending', finished_at = NULL WHERE id = ?", id)
}

// A relay never looks into a payload, and hands on texts as they were written.
func testExact(t *table) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	unicode := "schlüssel ключ 鍵 🔑 '\"\\%_{}$1?@p1 \u2028"
	rows := []outbox.Row{newRow(unicode), newRow(unicode), newRow(unicode)}
	rows[0].Payload = all
	rows[1].Payload = []byte{}
	rows[2].Payload = bytes.Repeat(all, 4096)
	rows[0].Stream, rows[0].Type = unicode, unicode
	rows[0].CorrelationID, rows[0].ContentType, rows[0].Headers = unicode, "application/cloudevents+json; charset=utf-8", `{"a":"`+strings.Repeat("ü", 5000)+`"}`
	rows[1].Priority = 100
	ids := t.insert(rows...)
	t.shard = t.shardOf(ids[0])

	batch := t.claim(func(c *driver.Claim) { c.Worker = unicode })
	require.Equal(t, ids, taken(batch))
	for i, m := range batch.Messages {
		assert.Equal(t, rows[i].MessageID.String(), m.MessageID)
		assert.True(t, bytes.Equal(rows[i].Payload, m.Payload), "payload %d", i)
		assert.Equal(t, unicode, m.OrderingKey)
		assert.Equal(t, rows[i].Priority, m.Priority)
		assert.Equal(t, rows[i].Stream, m.Stream)
		assert.Equal(t, rows[i].Type, m.Type)
		assert.Equal(t, rows[i].CorrelationID, m.CorrelationID)
		assert.Equal(t, rows[i].Headers, m.Headers)
	}
	assert.Equal(t, rows[0].ContentType, batch.Messages[0].ContentType)
	assert.Equal(t, unicode, t.state(ids[0]).Worker)
}

// InsertMissing is what a retried transaction uses: what is there already stays as it is.
func testInsertMissing(t *table) {
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	require.NoError(t, err)
	rows := []outbox.Row{newRow("a"), newRow("b"), newRow("c")}
	require.NoError(t, inserter.InsertMissing(t.Context(), t.DB, rows[1:2]))
	rows[1].Payload = []byte("changed")
	require.NoError(t, inserter.InsertMissing(t.Context(), t.DB, rows))
	require.NoError(t, inserter.InsertMissing(t.Context(), t.DB, rows))
	assert.Equal(t, int64(3), t.number("SELECT count(*) FROM {t}"))
	assert.Zero(t, t.number("SELECT count(*) FROM {t} WHERE payload = "+t.sql.bytes("changed")))
	assert.Equal(t, int64(1), t.number("SELECT count(*) FROM {t} AS a JOIN {t} AS c ON a.id < c.id WHERE a.ordering_key = 'a' AND c.ordering_key = 'c'"))
}

// An INSERT that stores fewer rows than it was given, without an error, is one: else a transaction would
// commit without its messages. Rows that were there are no reason for it.
func testDiscarded(t *table) {
	if len(t.sql.discard) == 0 {
		t.Skip("no trigger discards a row here without an error, or this suite has none that does")
	}
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	require.NoError(t, err)
	for _, text := range t.sql.discard {
		t.exec(text)
	}
	rows := []outbox.Row{newRow("a"), newRow("lost"), newRow("b"), newRow("lost")}
	err = inserter.Insert(t.Context(), t.DB, rows)
	require.ErrorIs(t, err, outbox.ErrDiscarded)
	assert.ErrorContains(t, err, "insert 4 rows")
	assert.ErrorContains(t, err, "2 were stored")
	assert.ErrorContains(t, err, "trigger", "what to look for")

	require.NoError(t, inserter.InsertMissing(t.Context(), t.DB, []outbox.Row{rows[0], rows[2]}), "they are there")
	another := newRow("c")
	require.NoError(t, inserter.InsertMissing(t.Context(), t.DB, []outbox.Row{rows[0], another}))
	elsewhere := another
	elsewhere.TargetBroker = "elsewhere"
	require.NoError(t, inserter.InsertMissing(t.Context(), t.DB, []outbox.Row{another, elsewhere}))
	err = inserter.InsertMissing(t.Context(), t.DB, rows)
	require.ErrorIs(t, err, outbox.ErrDiscarded)
	assert.ErrorContains(t, err, "2 were stored")
	lost := another
	lost.TargetBroker, lost.OrderingKey = "third", "lost"
	require.ErrorIs(t, inserter.InsertMissing(t.Context(), t.DB, []outbox.Row{another, lost}), outbox.ErrDiscarded, "the message is there, for another broker")
	require.NoError(t, inserter.InsertMissing(t.Context(), t.DB, nil))
}

// Written tells which messages are there, whatever has become of them, and each once.
func testWritten(t *table) {
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	require.NoError(t, err)
	there, twice := newRow("a"), newRow("b")
	again := twice
	again.TargetBroker = "another"
	t.insert(there, twice)
	require.NoError(t, inserter.Insert(t.Context(), t.DB, []outbox.Row{again}))
	ids := []uuid.UUID{there.MessageID, twice.MessageID}
	asked := append([]uuid.UUID{uuid.New()}, ids...)
	for len(asked) < 250 { // more than one statement asks for
		asked = append(asked, uuid.New())
	}
	found, err := inserter.Written(t.Context(), t.DB, asked)
	require.NoError(t, err)
	assert.ElementsMatch(t, ids, found)
	found, err = inserter.Written(t.Context(), t.DB, nil)
	require.NoError(t, err)
	assert.Empty(t, found)
}

// testBounds: whoever writes rows, no text is longer than package envelope says, and one of just
// that length is taken as it is.
func testBounds(t *table) {
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	require.NoError(t, err)
	for _, c := range []struct {
		column string
		most   int // bytes
		text   func(*outbox.Row) *string
	}{
		{"target_broker", limits.MaxBrokerNameBytes, func(r *outbox.Row) *string { return &r.TargetBroker }},
		{"stream", limits.MaxStreamBytes, func(r *outbox.Row) *string { return &r.Stream }},
		{"type", limits.MaxTypeBytes, func(r *outbox.Row) *string { return &r.Type }},
		{"ordering_key", envelope.MaxOrderingKeyBytes, func(r *outbox.Row) *string { return &r.OrderingKey }},
		{"content_type", limits.MaxContentTypeBytes, func(r *outbox.Row) *string { return &r.ContentType }},
		{"aggregate_type", limits.MaxAggregateBytes, func(r *outbox.Row) *string { return &r.AggregateType }},
		{"aggregate_id", limits.MaxAggregateBytes, func(r *outbox.Row) *string { return &r.AggregateID }},
		{"correlation_id", limits.MaxContextBytes, func(r *outbox.Row) *string { return &r.CorrelationID }},
		{"causation_id", limits.MaxContextBytes, func(r *outbox.Row) *string { return &r.CausationID }},
		{"tenant_id", limits.MaxContextBytes, func(r *outbox.Row) *string { return &r.TenantID }},
		{"headers", limits.MaxHeadersBytes, func(r *outbox.Row) *string { return &r.Headers }},
	} {
		var longest outbox.Row
		for _, text := range []string{strings.Repeat("x", c.most), strings.Repeat("ü", c.most/2), strings.Repeat("🔑", c.most/4)} {
			longest = newRow("key")
			*c.text(&longest) = text
			id := t.insert(longest)[0]
			assert.Equal(t, int64(1), t.number("SELECT count(*) FROM {t} WHERE id = ? AND "+c.column+" = ?", id, text), c.column)
		}
		for _, text := range []string{strings.Repeat("x", c.most) + "x", strings.Repeat("🔑", c.most/4) + "x", strings.Repeat("x", c.most+8_000)} {
			row := newRow("key")
			*c.text(&row) = text
			for _, insert := range []func() error{
				func() error { return inserter.Insert(t.Context(), t.DB, []outbox.Row{newRow("key"), row}) },
				func() error { return inserter.InsertMissing(t.Context(), t.DB, []outbox.Row{newRow("key"), row}) },
			} {
				err := insert()
				var malformed *outbox.MalformedError
				require.ErrorAs(t, err, &malformed, c.column)
				assert.Equal(t, c.column, malformed.Column)
				assert.Less(t, len(err.Error()), 700, "the text itself is not repeated")
			}
			if t.Store.Dialect() == outbox.SQLServer && len(text) == c.most+1 && !strings.HasPrefix(text, "x") {
				continue // its columns count in UTF-16
			}
			assert.Error(t, t.try("UPDATE {t} SET "+c.column+" = ? WHERE message_id = "+t.sql.id("?"), text, longest.MessageID.String()), "%s of %d bytes", c.column, len(text))
		}
	}
	assert.Equal(t, int64(3*11), t.number("SELECT count(*) FROM {t}"), "where one row is refused, none is written")
}

// testMessageIDs: every database holds UUIDs only, whichever program writes the row, so that no
// claim and no list meets another text.
func testMessageIDs(t *table) {
	id := t.add("key")[0]
	for _, text := range []string{
		"", "1", "order-1", strings.Repeat("x", 36), strings.Repeat("-", 36), "01a1fd9d-d6b8-7eca-9afc-e5aa4aba856", "01a1fd9d-d6b8-7eca-9afc-e5aa4aba856g",
		"01a1fd9dd-6b8-7eca-9afc-e5aa4aba856a", "01a1fd9d-d6b8-7eca-9afc-e5aa-aba856a",
	} {
		assert.Error(t, t.try("UPDATE {t} SET message_id = ? WHERE id = ?", text, id), text)
	}
	assert.NoError(t, t.try("UPDATE {t} SET message_id = "+t.sql.id("?")+" WHERE id = ?", "01a1fd9d-D6B8-7eca-9afc-e5aa4aba856a", id))
}

// testEmptyKey: an empty key is none for writers in Go, and refused in plain SQL; keys of blanks
// are keys.
func testEmptyKey(t *table) {
	ids := t.add("", " ", "  ")
	assert.Equal(t, ids[:1], t.ids("SELECT id FROM {t} WHERE ordering_key IS NULL"))
	for _, change := range []string{"UPDATE {t} SET ordering_key = '' WHERE id = ?", "UPDATE {t} SET ordering_key = '', priority = 50 WHERE id = ?"} {
		assert.Error(t, t.try(change, ids[0]))
		assert.Error(t, t.try(change, ids[1]))
	}
	assert.Error(t, t.try("INSERT INTO {t} (message_id, target_broker, stream, type, ordering_key, payload) VALUES ("+t.sql.id("'"+uuid.NewString()+"'")+", '"+broker+
		"', 's', 'T', '', "+t.sql.bytes("{}")+")"))
	assert.Equal(t, int64(3), t.number("SELECT count(*) FROM {t}"))
	t.exec("UPDATE {t} SET ordering_key = NULL WHERE id = ?", ids[1])
}
