package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/eventid"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// A browsed row is what the suite knows of a row by itself, in the order of ids.
type browsed struct {
	id                int64
	broker            string
	status            outbox.Status
	eventType, key    string
	class             string // of last_error; empty = there is none
	created, finished time.Time
	deferred          bool
}

// matches says whether a request asks for the row.
func (b *browsed) matches(r admin.ListRequest) bool {
	exact, prefix := r.Filter.TypePattern()
	return b.broker == r.Broker && b.status == r.Status &&
		(exact == "" || b.eventType == exact) && len(b.eventType) >= len(prefix) && b.eventType[:len(prefix)] == prefix &&
		(r.Filter.Key == "" || b.key == r.Filter.Key) && (r.Filter.ErrorClass == "" || b.class == r.Filter.ErrorClass) &&
		(r.Filter.Since.IsZero() || !b.created.Before(r.Filter.Since)) && (r.Filter.Until.IsZero() || b.created.Before(r.Filter.Until))
}

// write writes rows as they are said to be, and fills in their ids.
func (t *table) write(rows []browsed) {
	t.Helper()
	inserted := make([]outbox.Row, len(rows))
	for i := range rows {
		inserted[i] = newRow(rows[i].key)
		inserted[i].TargetBroker, inserted[i].Type = rows[i].broker, rows[i].eventType
		inserted[i].Priority = i%3 - 1 // they stand in all shards
	}
	for i, id := range t.insert(inserted...) {
		rows[i].id = id
		t.dress(&rows[i])
	}
}

// dress makes a row what it is said to be.
func (t *table) dress(row *browsed) {
	t.Helper()
	set, args := "created_at = ?, status = '"+string(row.status)+"', deferred = "+t.sql.no, []any{t.sql.time(row.created)}
	if row.deferred {
		set = "created_at = ?, status = '" + string(row.status) + "', deferred = " + t.sql.yes
	}
	lastError := "NULL"
	if row.class != "" {
		lastError = `'{"class":"` + row.class + `"}'`
	}
	set += ", last_error = " + lastError
	for _, end := range []struct {
		column string
		is     bool
	}{{"finished_at", row.status.Terminal()}, {"published_at", row.status == outbox.StatusPublished}} {
		if end.is {
			set += ", " + end.column + " = ?"
			args = append(args, t.sql.time(row.finished))
		} else {
			set += ", " + end.column + " = NULL"
		}
	}
	if row.status == outbox.StatusProcessing {
		set += ", lock_token = " + t.sql.id("'"+uuid.NewString()+"'") + ", locked_until = created_at"
	}
	t.exec("UPDATE {t} SET "+set+" WHERE id = ?", append(args, row.id)...)
}

// someRows makes up rows of all kinds; many of them were finished at the same instant. Rows that
// have failed have an error.
func someRows(n int, random *rand.Rand) []browsed {
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	hourAgo := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	rows := make([]browsed, n)
	for i := range rows {
		row := browsed{
			broker: pick(broker, broker, broker, "another"), status: outbox.Statuses()[random.IntN(5)], eventType: pick("Ordering.Placed.v1", "Ordering.Paid.v1", "Shipped"),
			key: pick("", "k1", "k1", "k2"), class: pick("", "", "retryable", "permanent"), created: hourAgo.Add(time.Duration(i) * time.Second),
		}
		switch row.status {
		case outbox.StatusFailed:
			row.class = pick("retryable", "permanent")
			row.deferred = random.IntN(3) == 0
		case outbox.StatusPending:
			row.deferred = random.IntN(3) == 0
		case outbox.StatusPublished, outbox.StatusAbandoned:
			row.finished = hourAgo.Add(time.Duration(random.IntN(4)) * time.Minute)
		case outbox.StatusProcessing:
		}
		rows[i] = row
	}
	return rows
}

// pages follows a list to its end and returns all its rows. between is called after each page but
// the last.
func (t *table) pages(request admin.ListRequest, between func(page int)) []admin.Record {
	t.Helper()
	var all []admin.Record
	for page := range 10_000 {
		list, err := t.Store.List(t.Context(), request)
		require.NoError(t, err)
		require.LessOrEqual(t, len(list.Records), request.Limit)
		require.LessOrEqual(t, len(list.Records), list.Scanned, "what is returned was looked at")
		require.LessOrEqual(t, list.Scanned, request.Scan, "no more rows are looked at than was asked for")
		all = append(all, list.Records...)
		if list.Next == (admin.Position{}) {
			return all
		}
		require.Equal(t, request.Status.Terminal(), !list.Next.Time.IsZero(), "only lists of what is finished are ordered by time")
		require.Positive(t, list.Scanned, "a page with a next one comes nearer to the end")
		require.NotEqual(t, request.After, list.Next)
		if between != nil {
			between(page)
		}
		request.After = list.Next
	}
	require.Fail(t, "a list without end")
	return nil
}

func recordIDs(records []admin.Record) []int64 {
	ids := make([]int64, len(records))
	for i := range records {
		ids[i] = records[i].ID
	}
	return ids
}

var messageTests = []test{
	{name: "AllOfIt", run: testMessage},
	{name: "WrongID", run: testMessageWrong},
	{name: "NoMoreThanCanBeShown", run: testShown},
	{name: "Event", run: testEvent},
}

// Message returns what was written, for each broker, with all that became of it.
func testMessage(t *table) {
	now := time.Now().Truncate(time.Millisecond).UTC()
	row := outbox.Row{
		MessageID: uuid.New(), TargetBroker: broker, Stream: "s", Type: "t", OrderingKey: t.keys(1)[0], Priority: 7, Payload: []byte("\x00\xffpayload"),
		ContentType: "text/plain", Headers: `{"a":"b"}`, AggregateType: "order", AggregateID: "4711", CorrelationID: "co", CausationID: "ca", TenantID: "te",
		ExpiresAt: now.Add(lease),
	}
	other := row
	other.TargetBroker, other.Payload, other.AvailableAt = "another", []byte{}, now.Add(lease)
	ids := t.insert(row, other, newRow(""))
	batch := t.claim(limit(1))
	require.Equal(t, ids[:1], taken(batch))

	records, err := t.Store.Message(t.Context(), row.MessageID.String())
	require.NoError(t, err)
	require.Equal(t, []int64{ids[1], ids[0]}, recordIDs(records), "sorted by broker")
	for i := range records {
		assert.WithinDuration(t, now, records[i].CreatedAt, time.Minute)
		records[i].CreatedAt = time.Time{}
	}
	same := admin.Record{
		MessageID: row.MessageID.String(), Broker: "another", Status: outbox.StatusPending, Stream: "s", Type: "t", OrderingKey: row.OrderingKey, Shard: t.shard, Priority: 7,
		ContentType: "text/plain", Headers: `{"a":"b"}`, AggregateType: "order", AggregateID: "4711", CorrelationID: "co", CausationID: "ca", TenantID: "te",
	}
	want := same
	want.ID, want.State, want.AvailableAt, want.ExpiresAt = ids[1], outbox.StateScheduled, now.Add(lease), now.Add(lease)
	assert.True(t, want.AvailableAt.Equal(records[0].AvailableAt))
	records[0].AvailableAt, records[0].ExpiresAt = records[0].AvailableAt.UTC(), records[0].ExpiresAt.UTC()
	assert.Empty(t, records[0].Payload)
	records[0].Payload = nil
	assert.Equal(t, want, records[0])

	want = same
	want.ID, want.Broker, want.Status, want.Payload, want.PayloadBytes, want.LockedBy = ids[0], broker, outbox.StatusProcessing, row.Payload, len(row.Payload), "worker"
	want.State, want.ExpiresAt = outbox.StateClaimed, now.Add(lease)
	assert.WithinDuration(t, now.Add(lease), records[1].LockedUntil, time.Minute)
	records[1].LockedUntil, records[1].ExpiresAt = time.Time{}, records[1].ExpiresAt.UTC()
	assert.Equal(t, want, records[1])

	require.Zero(t, t.complete(retryLater(batch, ids[0])).Lost)
	t.exec(`UPDATE {t} SET locked_until = NULL, last_error = '{"class":"retryable","message":"no","at":"2026-01-02T03:04:05.5Z","attempt":3}', crashes = 2 WHERE id = ?`, ids[0])
	failed := t.message(row.MessageID)
	assert.Equal(t, outbox.StatusFailed, failed.Status)
	assert.Equal(t, []int{1, 2}, []int{failed.Attempts, failed.Crashes})
	if assert.NotNil(t, failed.LastError) {
		assert.True(t, failed.LastError.At.Equal(time.Date(2026, 1, 2, 3, 4, 5, 500_000_000, time.UTC)), failed.LastError.At)
		failed.LastError.At = time.Time{}
		assert.Equal(t, outbox.LastError{Class: "retryable", Message: "no", Attempt: 3}, *failed.LastError)
	}
	t.exec("UPDATE {t} SET last_error = 'written by hand' WHERE id = ?", ids[0])
	assert.Nil(t, t.message(row.MessageID).LastError)

	batch = t.claim(limit(1))
	require.Equal(t, ids[:1], taken(batch))
	s := published(batch)
	s.Published[0].BrokerMessageID = "theirs"
	require.Zero(t, t.complete(s).Lost)
	done := t.message(row.MessageID)
	assert.Equal(t, outbox.StatusPublished, done.Status)
	assert.Equal(t, "theirs", done.BrokerMessageID)
	assert.WithinDuration(t, now, done.PublishedAt, time.Minute)
	assert.Equal(t, done.PublishedAt, done.FinishedAt)
}

// message is the row of a message for the test's broker.
func (t *table) message(id uuid.UUID) admin.Record {
	t.Helper()
	records, err := t.Store.Message(t.Context(), id.String())
	require.NoError(t, err)
	require.Len(t, records, 2)
	require.Equal(t, broker, records[1].Broker)
	return records[1]
}

func testMessageWrong(t *table) {
	t.add("key")
	records, err := t.Store.Message(t.Context(), uuid.NewString())
	require.NoError(t, err)
	assert.Empty(t, records)
	for _, id := range []string{"", "42", "' OR 1=1 --", "\x00"} {
		_, err = t.Store.Message(t.Context(), id)
		require.ErrorContains(t, err, "UUID", "%q", id)
	}
}

// The rows of an event are found by each of its ids, and no others.
func testEvent(t *table) {
	event, other := newRow(""), newRow("")
	copy(other.MessageID[:9], event.MessageID[:9]) // of the same microsecond
	second, third, far := newRow(""), newRow(""), newRow("")
	second.Type, third.Type, far.Type = "Ordering.OrderPlaced.v2", "Ordering.OrderPlaced.v3", "Ordering.OrderPlaced.v2"
	second.MessageID, third.MessageID, far.MessageID = eventid.Derive(event.MessageID, second.Type), eventid.Derive(event.MessageID, third.Type), eventid.Derive(other.MessageID, far.Type)
	also := event
	also.TargetBroker, also.Payload = "another", []byte(`"also"`)
	t.insert(event, other, second, third, far, also)
	ids := func(of outbox.Row) (found []string) {
		records, err := t.Store.Event(t.Context(), strings.ToUpper(of.MessageID.String()))
		require.NoError(t, err)
		for i := range records {
			require.NotEmpty(t, records[i].Payload)
			require.NotEmpty(t, records[i].State)
			found = append(found, records[i].Broker+" "+records[i].Type)
		}
		return found
	}
	const first, v2, v3 = broker + " Ordering.OrderPlaced.v1", broker + " Ordering.OrderPlaced.v2", broker + " Ordering.OrderPlaced.v3"
	own := []string{"another Ordering.OrderPlaced.v1", first}
	if t.Store.Dialect() == outbox.SQLServer { // whose order of ids is another one
		assert.Equal(t, own, ids(event))
		assert.Equal(t, []string{v2}, ids(second))
		return
	}
	all := append(slices.Clone(own), v2, v3)
	assert.Equal(t, own, ids(event)[:2])
	assert.Equal(t, v2, ids(second)[0], "what was asked for comes first")
	for _, of := range []outbox.Row{event, second, third} {
		assert.ElementsMatch(t, all, ids(of))
	}
	assert.Equal(t, []string{first, v2}, ids(other))
	t.exec("DELETE FROM {t} WHERE type = ?", event.Type)
	assert.ElementsMatch(t, []string{v2, v3}, ids(event), "by the event's id")
	assert.Equal(t, []string{v3}, ids(third), "by another one alone it is not known which event it is")
	records, err := t.Store.Message(t.Context(), event.MessageID.String())
	require.NoError(t, err)
	assert.Empty(t, records)
}

// What an operator looks at costs the process that shows it no more than is bounded, whatever
// stands in the rows of one message.
func testShown(t *table) {
	rows := make([]outbox.Row, admin.MaxShownRows+20)
	for i := range rows {
		rows[i] = newRow("")
		rows[i].MessageID, rows[i].TargetBroker = rows[0].MessageID, fmt.Sprintf("broker-%03d", i)
	}
	rows[0].Payload, rows[1].Payload, rows[2].Payload = make([]byte, admin.MaxShownBytes), make([]byte, admin.MaxShownBytes+1), []byte{}
	t.insert(rows...)
	records, err := t.Store.Message(t.Context(), rows[0].MessageID.String())
	require.NoError(t, err)
	require.Len(t, records, admin.MaxShownRows)
	for i := range records {
		assert.Equal(t, rows[i].TargetBroker, records[i].Broker)
		assert.Equal(t, len(rows[i].Payload), records[i].PayloadBytes)
		if i != 1 {
			assert.Len(t, records[i].Payload, len(rows[i].Payload), i)
		}
	}
	assert.Nil(t, records[1].Payload)
}
