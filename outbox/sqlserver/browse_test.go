package sqlserver

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

const (
	messageID   = "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b"
	otherID     = "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6c"
	lastFailure = `{"class":"permanent","message":"no","at":"2026-01-02T03:04:05.000006Z","attempt":2}`
)

var failed = outbox.LastError{Class: "permanent", Message: "no", At: created, Attempt: 2}

func TestOverview(t *testing.T) {
	t.Parallel()
	names := reply{sets: []set{{columns: []string{"fanout_broker"}, rows: [][]sqldriver.Value{{"a"}, {"b"}}}}}
	behind := reply{sets: []set{{columns: []string{"fanout_behind", "lag"}, rows: [][]sqldriver.Value{{"a", int64(7)}, {"just come", int64(9)}}}}}
	columns := []string{
		"fanout_pending", "more_pending", "processing", "more_processing", "failed", "more_failed", "published", "abandoned", "deferred", "age", "last_published", "last_error", "scheduled", "unacknowledged",
	}
	a := reply{sets: []set{foreign, {columns: columns, rows: [][]sqldriver.Value{{int64(12), true, int64(0), false, int64(3), true, int64(0), int64(0), int64(11), int64(1_500_000), created, lastFailure, int64(1), int64(3)}}}}}
	b := reply{sets: []set{{columns: columns, rows: [][]sqldriver.Value{{int64(0), false, int64(0), false, int64(0), false, int64(10), int64(0), int64(10), int64(0), nil, "by hand", int64(0), int64(0)}}}, foreign}}
	entries := reply{sets: []set{{columns: []string{"fanout_entry", "ordering_key", "block_id", "operator"}, rows: [][]sqldriver.Value{
		{int64(2), "blocked", int64(4), true}, {int64(1), "scheduled", int64(3), false}, {int64(2), "", int64(5), false},
	}}}}
	deferredRows := func(n int64) reply {
		return reply{sets: []set{{columns: []string{"fanout_place", "followers"}, rows: [][]sqldriver.Value{{int64(0), n}}}}}
	}
	broken := a
	broken.err = serverError(601)
	none := reply{sets: []set{{columns: entries.sets[0].columns}}}
	store, server := newFake(t, "outbox_messages", inTurn(names, broken, names, a, entries, deferredRows(11), heads([]sqldriver.Value{"blocked", int64(6), false}), deferredRows(2), b, none, behind, reply{err: serverError(208)}))
	got, err := store.Overview(t.Context(), 10)
	require.NoError(t, err)
	assert.Equal(t, []admin.BrokerOverview{{
		Broker: "a", Deferred: admin.Count{N: 10, More: true}, OldestPending: 1500 * time.Millisecond, Lag: 7 * time.Microsecond, LastPublished: created,
		BlockedKeys: admin.Count{N: 1}, Held: admin.Count{N: 10, More: true}, Scheduled: admin.Count{N: 5}, Unacknowledged: admin.Count{N: 3},
		LastError: &failed, Counts: map[outbox.Status]admin.Count{
			outbox.StatusPending: {N: 10, More: true}, outbox.StatusFailed: {N: 3, More: true},
			outbox.StatusProcessing: {}, outbox.StatusPublished: {}, outbox.StatusAbandoned: {},
		},
	}, {
		Broker: "b", Deferred: admin.Count{N: 10}, Counts: map[outbox.Status]admin.Count{
			outbox.StatusPending: {}, outbox.StatusFailed: {}, outbox.StatusProcessing: {}, outbox.StatusPublished: {N: 10}, outbox.StatusAbandoned: {},
		},
	}}, got, "once, although it was read twice")
	text := store.Text
	assert.Equal(t, []string{text("brokers"), text("overview"), text("brokers"), text("overview"), text("entries"), text("deferred_followers"), text("key_heads"), text("deferred_followers"), text("overview"), text("entries"), text("backlog")}, server.texts())
	assert.Equal(t, map[string]any{"broker": "a", "limit": int64(10)}, server.requests[3].args)
	_, err = store.Overview(t.Context(), 10)
	require.ErrorIs(t, err, outbox.ErrSchema)
	for _, limit := range []int{0, math.MaxInt} {
		_, err = store.Overview(t.Context(), limit)
		require.ErrorContains(t, err, "sqlserver: overview: the limit is ")
	}
}

// recordRow is a row as browse_columns.sql reads it, after what the batch has of its own.
func recordRow(id int64, own ...sqldriver.Value) []sqldriver.Value {
	return append(own,
		id, messageID, "b", "failed", "s", "T.v1", "k", int64(2), int64(-3), true, "application/json",
		"Order", "7", "c", nil, "t", int64(4), int64(1), created,
		nil, created.Add(time.Hour), created.Add(time.Minute), nil, nil, nil, "17-0", lastFailure, int64(2),
	)
}

func recordOf(id int64) admin.Record {
	return admin.Record{
		ID: id, MessageID: messageID, Broker: "b", Status: outbox.StatusFailed, Stream: "s", Type: "T.v1", OrderingKey: "k", Shard: 2, Priority: -3,
		Deferred: true, ContentType: "application/json", AggregateType: "Order", AggregateID: "7", CorrelationID: "c", TenantID: "t",
		Attempts: 4, Crashes: 1, CreatedAt: created, ExpiresAt: created.Add(time.Hour), LockedUntil: created.Add(time.Minute),
		BrokerMessageID: "17-0", LastError: &failed, PayloadBytes: 2,
	}
}

// recordColumns are those of a row, of which the id stands first.
var recordColumns = []string{
	"id", "message_id", "target_broker", "status", "stream", "type", "ordering_key", "shard", "priority", "deferred", "content_type", "aggregate_type", "aggregate_id",
	"correlation_id", "causation_id", "tenant_id", "attempts", "crashes", "created_at", "available_at", "expires_at", "locked_until", "published_at", "finished_at",
	"locked_by", "broker_message_id", "last_error", "payload_bytes",
}

// states answers what is to be known of rows: how their times compare with now, whether a schedule
// lies ahead and the broker is paused; what stands about them among the key blocks, and about their keys.
func states(rows ...[]sqldriver.Value) reply {
	return reply{sets: []set{{columns: []string{
		"fanout_state", "time", "scheduled", "paused", "own_wake", "own_reason", "own_until", "own_since", "wake", "reason", "block_id", "message_id", "until_at", "since", "done", "earlier_deferred",
	}, rows: rows}}}
}

// heads answers which rows of some keys stand at the head of a shard, and whether they are claimed.
func heads(rows ...[]sqldriver.Value) reply {
	return reply{sets: []set{{columns: []string{"fanout_head", "id", "claimed"}, rows: rows}}}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	rows := set{columns: slices.Concat([]string{"fanout_row"}, recordColumns[1:], []string{"payload", "headers"})}
	rows.rows = [][]sqldriver.Value{append(recordRow(5), []byte("{}"), `{"a":"b"}`)}
	rows.rows[0][len(recordColumns)-2] = "by hand"
	behind := states([]sqldriver.Value{int64(5), int64(1), false, false, int64(1), "scheduled", created, created, int64(1), "backoff", int64(4), otherID, created.Add(time.Hour), created, false, false})
	store, server := newFake(t, "outbox_messages", inTurn(reply{sets: []set{rows}, err: serverError(1222)}, reply{sets: []set{rows}}, behind, heads(), reply{sets: []set{{columns: rows.columns}}}, reply{err: errors.New("boom")}))
	got, err := store.Message(t.Context(), strings.ToUpper(messageID))
	require.NoError(t, err)
	want := recordOf(5)
	want.Payload, want.Headers, want.LastError = []byte("{}"), `{"a":"b"}`, nil
	want.Deferral, want.State = &admin.Deferral{Reason: "backoff", MessageID: otherID, Since: created, Until: created.Add(time.Hour)}, outbox.StateBehind
	assert.Equal(t, []admin.Record{want}, got)
	assert.Equal(t, map[string]any{"message_id": messageID, "shown": admin.MaxShownBytes, "limit": admin.MaxShownRows}, server.requests[1].args)
	assert.Equal(t, store.Text("states"), server.requests[2].text)
	assert.Equal(t, map[string]any{"ids": mssql.NVarCharMax("[5]")}, server.requests[2].args)
	assert.Equal(t, store.Text("key_heads"), server.requests[3].text)
	assert.Equal(t, map[string]any{"broker": "b", "shard": int64(2), "keys": mssql.NVarCharMax(`["k"]`)}, server.requests[3].args)
	got, err = store.Message(t.Context(), messageID)
	require.NoError(t, err)
	assert.Empty(t, got)
	_, err = store.Message(t.Context(), messageID)
	require.EqualError(t, err, "sqlserver: read message "+messageID+" in outbox_messages: boom")
	_, err = store.Message(t.Context(), "7")
	require.EqualError(t, err, `sqlserver: message: message id "7" is no UUID`)
}

// listed answers with rows: those at places match, the last of so many that are read comes in any
// case, and may be gone.
func listed(status outbox.Status, read int64, places ...int64) reply {
	records := set{columns: slices.Concat([]string{"fanout_place", "matches", "position"}, recordColumns)}
	var at sqldriver.Value
	if status.Terminal() {
		at = created
	}
	for place := int64(1); place <= read; place++ {
		row := recordRow(1000-place, place, slices.Contains(places, place), at)
		row[6] = string(status)
		if status.Terminal() {
			row[len(row)-5] = created
		}
		if !slices.Contains(places, place) {
			if place < min(5, read) {
				continue
			}
			for i := range row[4:] {
				row[4+i] = nil // another transaction is writing it
			}
		}
		records.rows = append(records.rows, row)
	}
	return reply{sets: []set{records}}
}

func TestListEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		status  outbox.Status
		read    int64
		places  []int64
		next    admin.Position
		scanned int
	}{
		{"nothing", outbox.StatusFailed, 0, nil, admin.Position{}, 0},
		{"nothing matches, and there is no more", outbox.StatusFailed, 5, nil, admin.Position{}, 5},
		{"nothing matches so far", outbox.StatusFailed, 6, nil, admin.Position{ID: 995}, 5},
		{"nothing matches so far, and rows are finished", outbox.StatusPublished, 6, nil, admin.Position{ID: 995, Time: created}, 5},
		{"a part of a page, and more to read", outbox.StatusFailed, 6, []int64{2}, admin.Position{ID: 995}, 5},
		{"a part of a page", outbox.StatusFailed, 5, []int64{2}, admin.Position{}, 5},
		{"a full page, and more", outbox.StatusFailed, 4, []int64{1, 2}, admin.Position{ID: 998}, 2},
		{"a full page, and more are finished", outbox.StatusAbandoned, 4, []int64{1, 2}, admin.Position{ID: 998, Time: created}, 2},
		{"a full page, and perhaps more", outbox.StatusFailed, 6, []int64{1, 5}, admin.Position{ID: 995}, 5},
		{"a full page, and no more", outbox.StatusFailed, 4, []int64{1, 4}, admin.Position{}, 4},
	} {
		store, _ := newFake(t, "outbox_messages", inTurn(listed(c.status, c.read, c.places...), states()))
		got, err := store.List(t.Context(), admin.ListRequest{Broker: "b", Status: c.status, Limit: 2, Scan: 5})
		require.NoError(t, err, c.name)
		assert.Equal(t, c.next, got.Next, c.name)
		assert.Equal(t, c.scanned, got.Scanned, c.name)
		assert.Len(t, got.Records, len(c.places), c.name)
	}
}

func TestListAsks(t *testing.T) {
	t.Parallel()
	first := listed(outbox.StatusFailed, 1, 1)
	first.err = serverError(1205)
	behind := states(
		[]sqldriver.Value{int64(999), int64(0), false, false, int64(0), nil, nil, nil, int64(4), "operator", int64(998), otherID, nil, created, false, false},
		[]sqldriver.Value{int64(7), int64(0), false, false, int64(1), "backoff", created, created, int64(0), nil, nil, nil, nil, nil, false, false},
	)
	again := behind
	again.err = serverError(601)
	list := listed(outbox.StatusFailed, 1, 1)
	store, server := newFake(t, "outbox_messages", inTurn(first, list, again, list, behind, heads(), listed(outbox.StatusPublished, 0), reply{err: serverError(208)}))
	got, err := store.List(t.Context(), admin.ListRequest{Broker: "b", Status: outbox.StatusFailed, Filter: admin.Filter{Type: "Ordering.*", Key: "k "}, Limit: 2, Scan: 5})
	require.NoError(t, err)
	deferred := recordOf(999)
	deferred.Deferral, deferred.State = &admin.Deferral{Reason: "operator", MessageID: otherID, Since: created}, outbox.StateBlocked
	assert.Equal(t, admin.List{Records: []admin.Record{deferred}, Scanned: 1}, got, "once, although it was read three times")
	failing, why := store.Text("list_failed"), store.Text("states")
	assert.Equal(t, []string{failing, failing, why, failing, why, store.Text("key_heads")}, server.texts())
	assert.Equal(t, map[string]any{"ids": mssql.NVarCharMax("[999]")}, server.requests[4].args)
	text := func(s string) mssql.NVarCharMax { return mssql.NVarCharMax(s) }
	want := map[string]any{
		"broker": "b", "status": "failed", "type": text(""), "type_prefix": text("Ordering."), "key": text("k "), "aggregate": text(""), "correlation": text(""), "correlated": text(""), "tenant": text(""), "class": text(""), "since": text(""),
		"until": text(""), "after_id": int64(math.MaxInt64), "limit": int64(2), "scan": int64(5),
	}
	assert.Equal(t, want, server.requests[1].args)

	request := admin.ListRequest{
		Broker: "b", Status: outbox.StatusPublished, Filter: admin.Filter{Type: "T.v1", ErrorClass: "permanent", Since: created, Until: created.Add(time.Second)},
		After: admin.Position{Time: created, ID: 7}, Limit: 2, Scan: 1000,
	}
	_, err = store.List(t.Context(), request)
	require.NoError(t, err)
	want = map[string]any{
		"broker": "b", "status": "published", "type": text("T.v1"), "type_prefix": text(""), "key": text(""), "aggregate": text(""), "correlation": text(""), "correlated": text(""), "tenant": text(""), "class": text("permanent"),
		"since": text("2026-01-02T03:04:05.000006"), "until": text("2026-01-02T03:04:06.000006"), "after": text("2026-01-02T03:04:05.000006"),
		"after_id": int64(7), "limit": int64(2), "scan": int64(1000),
	}
	assert.Equal(t, want, server.requests[6].args)
	_, err = store.List(t.Context(), request)
	require.ErrorIs(t, err, outbox.ErrSchema)
	for message, wrong := range map[string]admin.ListRequest{
		"the limit is 0":       {Broker: "b", Status: outbox.StatusFailed, Scan: 5},
		"there is no status":   {Broker: "b", Limit: 1, Scan: 5},
		"name the broker":      {Status: outbox.StatusFailed, Limit: 1, Scan: 5},
		"use at least as many": {Broker: "b", Status: outbox.StatusFailed, Limit: 2, Scan: 1},
		"and at most":          {Broker: "b", Status: outbox.StatusFailed, Limit: 2, Scan: math.MaxInt},
	} {
		_, err := store.List(t.Context(), wrong)
		require.ErrorContains(t, err, message)
	}
	assert.Len(t, server.requests, 8, "what is refused is not asked")
}

func TestKeyBlocks(t *testing.T) {
	t.Parallel()
	columns := []string{"fanout_block", "block_id", "message_id", "status", "reason", "since", "until_at", "failed", "last_error", "shard"}
	blocks := reply{sets: []set{{columns: columns, rows: [][]sqldriver.Value{
		{"k", int64(1), messageID, "abandoned", "operator", created.Add(time.Hour), nil, false, lastFailure, int64(1)},
		{"m", int64(3), messageID, "pending", "scheduled", created.Add(time.Minute), created.Add(time.Hour), false, nil, int64(2)},
	}}}}
	failing := reply{sets: []set{{columns: columns, rows: [][]sqldriver.Value{
		{"m", int64(4), messageID, "failed", "backoff", created, created.Add(time.Hour), true, nil, int64(2)},                         // it has a block
		{"m", int64(2), messageID, "failed", "backoff", created.Add(-time.Hour), created.Add(time.Hour), true, lastFailure, int64(6)}, // in its class it has none
	}}}}
	deferredRows := reply{sets: []set{{columns: []string{"fanout_place", "followers"}, rows: [][]sqldriver.Value{{int64(0), int64(1)}, {int64(1), int64(2)}, {int64(2), int64(5)}}}}}
	head := heads([]sqldriver.Value{"k", int64(8), false})
	counts := reply{sets: []set{{columns: []string{"fanout_place", "followers", "more"}, rows: [][]sqldriver.Value{
		{int64(0), int64(5), false}, {int64(1), int64(4), false}, {int64(2), int64(2), true},
	}}}}
	errorsOf := reply{sets: []set{{columns: []string{"fanout_row", "last_error"}, rows: [][]sqldriver.Value{{int64(1), lastFailure}, {int64(2), lastFailure}}}}}
	broken := failing
	broken.err = serverError(601)
	store, server := newFake(t, "outbox_messages", inTurn(blocks, broken, blocks, failing, deferredRows, head, heads(), heads(), counts, errorsOf, reply{err: serverError(208)}))
	got, err := store.KeyBlocks(t.Context(), "b", 3, 4)
	require.NoError(t, err)
	assert.Equal(t, []admin.KeyBlock{
		{Broker: "b", Key: "k", MessageID: messageID, Status: outbox.StatusAbandoned, Reason: "operator", Since: created.Add(time.Hour), Followers: admin.Count{N: 4, More: true}, LastError: &failed},
		{Broker: "b", Key: "m", MessageID: messageID, Status: outbox.StatusPending, Reason: "scheduled", Since: created.Add(time.Minute), Until: created.Add(time.Hour), Followers: admin.Count{N: 4}},
		{Broker: "b", Key: "m", Class: outbox.ClassBackfill, MessageID: messageID, Status: outbox.StatusFailed, Reason: "backoff", Since: created, Until: created.Add(time.Hour), Followers: admin.Count{N: 2, More: true}, LastError: &failed},
	}, got.Keys)
	assert.Equal(t, admin.KeyCount{Keys: admin.Count{N: 3}, Rows: admin.Count{N: 10, More: true}}, got.Waiting)
	assert.Equal(t, admin.KeyCount{Keys: admin.Count{N: 1}, Rows: admin.Count{N: 4, More: true}}, got.Blocked)
	assert.Equal(t, map[string]any{"broker": "b", "limit": int64(10_000)}, server.requests[2].args)
	assert.Equal(t, server.requests[2].args, server.requests[3].args)
	assert.Equal(t, map[string]any{
		"broker": "b", "blockers": mssql.NVarCharMax(`[{"id":1,"key":"k","shard":1},{"id":2,"key":"m","shard":6},{"id":3,"key":"m","shard":2}]`), "max_count": int64(4),
	}, server.requests[4].args)
	assert.Equal(t, map[string]any{"broker": "b", "shard": int64(1), "keys": mssql.NVarCharMax(`["k"]`)}, server.requests[5].args)
	assert.Equal(t, store.Text("followers"), server.requests[8].text)
	assert.Equal(t, map[string]any{"ids": mssql.NVarCharMax("[1,3,2]")}, server.requests[9].args)
	_, err = store.KeyBlocks(t.Context(), "b", 3, 4)
	require.ErrorIs(t, err, outbox.ErrSchema)
	for _, wrong := range []func() (admin.KeyBlocks, error){
		func() (admin.KeyBlocks, error) { return store.KeyBlocks(t.Context(), "", 1, 1) },
		func() (admin.KeyBlocks, error) { return store.KeyBlocks(t.Context(), "b", 0, 1) },
		func() (admin.KeyBlocks, error) { return store.KeyBlocks(t.Context(), "b", 1, 0) },
	} {
		_, err := wrong()
		require.ErrorContains(t, err, "sqlserver: blocked keys: ")
	}
	assert.Len(t, server.requests, 11)
}

// What people ask ends in time, and the error says that it was that.
func TestBrowseInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, server := newFake(t, "outbox_messages", inTurn(reply{err: context.DeadlineExceeded}))
		answer := server.answer
		server.answer = func(r request) reply { time.Sleep(2 * browseTime); return answer(r) }
		_, err := store.Message(t.Context(), messageID)
		require.ErrorIs(t, err, errBrowseTime)
		require.ErrorContains(t, err, "the database did not answer within 5s")
		require.NoError(t, store.db.Close())
	})
}

// A list touches an index by its name, backwards and within bounds, and then single rows. What
// people read takes no lock that outlasts the read, and texts of rows are not read dirty: error
// 7886 would be the answer where one is being changed.
func TestBrowseTexts(t *testing.T) {
	t.Parallel()
	store, err := New(nil, "outbox_messages")
	require.NoError(t, err)
	hinted := regexp.MustCompile(`(?:FROM|JOIN) outbox_messages(?:_key_blocks|_audit)?(?: AS \w+)? WITH \(((?:[^()]|\(\w+\))*)\)`)
	passing := "READCOMMITTEDLOCK, READPAST, ROWLOCK"
	index := func(name, rest string) string { return "INDEX(outbox_messages_" + name + "), FORCESEEK, " + rest }
	tested, finished, open := "FORCESEEK, "+passing, index("finished", passing), index("open", passing)
	texts := []string{}
	for name, want := range map[string][]string{
		"list_published":     {finished, finished, tested},
		"list_abandoned":     {finished, finished, tested},
		"list_failed":        {index("failing", passing), tested},
		"list_processing":    {open, tested},
		"list_pending":       {open, index("deferred", passing), tested},
		"states":             {tested, index("deferred_key", "NOLOCK"), tested, index("blocks_key", passing), "FORCESEEK, NOLOCK"},
		"key_heads":          {open},
		"message":            {index("once", "ROWLOCK")},
		"key_blocks":         {index("blocks_wake", "NOLOCK"), "FORCESEEK, NOLOCK"},
		"entries":            {index("blocks_wake", "NOLOCK"), index("blocks_wake", "NOLOCK")},
		"stranded":           {index("open", passing), index("deferred", passing), tested},
		"errors_of":          {tested},
		"deferred_followers": {index("deferred_key", "NOLOCK")},
		"failed_keys":        {index("failing", passing), tested},
		"followers":          {index("deferred_key", "NOLOCK"), index("open", "NOLOCK")},
		"brokers":            {"INDEX(outbox_messages_open), NOLOCK", "INDEX(outbox_messages_deferred_key), NOLOCK", "INDEX(outbox_messages_finished), NOLOCK"},
		"overview": {
			index("open", "NOLOCK"), index("deferred_key", "NOLOCK"), "FORCESEEK, NOLOCK", index("failing", "NOLOCK"), "FORCESEEK, NOLOCK", index("open", "NOLOCK"),
			index("finished", "NOLOCK"), index("finished", "NOLOCK"), index("finished", "NOLOCK"), index("failing", passing), finished, finished,
		},
		"beside": {index("open", "NOLOCK"), "FORCESEEK, NOLOCK", index("deferred", "NOLOCK"), "FORCESEEK, NOLOCK"},
		"audit":  {tested},
	} {
		text := store.Text(name)
		texts = append(texts, text)
		var found []string
		for _, match := range hinted.FindAllStringSubmatch(text, -1) {
			found = append(found, match[1])
		}
		assert.Equal(t, want, found, name)
		assert.NotContains(t, text, "UPDLOCK")
		assert.Equal(t, len(want), strings.Count(text, " outbox_messages ")+strings.Count(text, " outbox_messages_key_blocks ")+strings.Count(text, " outbox_messages_audit "), name)
		if name != "message" {
			assert.NotRegexp(t, `m\.(payload|headers)\b[^)]`, text, "payloads are read for one message only")
		}
		if strings.HasPrefix(name, "list_") {
			assert.Equal(t, 1, strings.Count(text, "m.last_error\n"))
			inOrder(t, text, "SELECT TOP (@scan + 1)", "SELECT TOP (@limit + 2)", "s.place >= @scan", "ORDER BY s.place")
		}
	}
	inOrder(t, store.Text("key_blocks"), "SELECT TOP (@limit)", "g.wake_at IS NOT NULL", "ORDER BY CASE WHEN w.wake_at = '9999-12-31'")
	inOrder(t, store.Text("followers"), "AS deferred_part", "AS behind")
	assert.Equal(t, 7, strings.Count(strings.Join(texts, ""), "(10), (11)) AS shards"))
	assert.Equal(t, 12, outbox.Classes*outbox.Shards)
	assert.Equal(t, 2, strings.Count(store.Text("followers"), ".shard = f.shard AND"))
	assert.Contains(t, store.Text("message"), "AS payload_bytes")
}

func TestAudit(t *testing.T) {
	t.Parallel()
	entries := set{
		columns: []string{"fanout_entry", "actor", "via", "action", "broker", "filter", "reason", "row_count", "started_at", "ended_at", "failure"},
		rows: [][]sqldriver.Value{
			{int64(9), "ada", "cli", "requeue", "b", "{}", "why", int64(0), created, nil, ""},
			{int64(8), "bob", "http", "purge", "", "", "", int64(5), created, created.Add(time.Second), "boom"},
		},
	}
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{err: serverError(1205)}, reply{sets: []set{count("fanout_begun", 1<<40)}}, reply{}, reply{err: serverError(208)},
		reply{sets: []set{count("fanout_ended", 1)}}, reply{sets: []set{count("fanout_ended", 0)}}, reply{},
		reply{sets: []set{entries}, err: serverError(1205)}, reply{sets: []set{entries}}, reply{err: serverError(208)},
	))
	entry := admin.AuditEntry{Actor: "a\x00da", Via: "cli", Action: "requeue", Broker: "b", Filter: "{}", Reason: "why"}
	id, err := store.BeginAudit(t.Context(), entry)
	require.NoError(t, err)
	assert.Equal(t, int64(1<<40), id)
	text := func(s string) mssql.NVarCharMax { return mssql.NVarCharMax(s) }
	assert.Equal(t, map[string]any{
		"actor": text("a\uFFFDda"), "via": text("cli"), "action": text("requeue"), "broker": text("b"), "filter": text("{}"), "reason": text("why"),
	}, server.requests[1].args)
	_, err = store.BeginAudit(t.Context(), entry)
	require.ErrorIs(t, err, errIncomplete)
	_, err = store.BeginAudit(t.Context(), entry)
	require.ErrorIs(t, err, outbox.ErrSchema)

	require.NoError(t, store.EndAudit(t.Context(), id, 7, "boom"))
	assert.Equal(t, map[string]any{"id": id, "rows": int64(7), "failure": text("boom")}, server.requests[4].args)
	require.NoError(t, store.EndAudit(t.Context(), 3, 7, ""), "an entry that has gone is no error, as in the other databases")
	require.ErrorIs(t, store.EndAudit(t.Context(), 3, 7, ""), errIncomplete)

	got, err := store.Audit(t.Context(), 0, 2)
	require.NoError(t, err)
	assert.Equal(t, []admin.AuditEntry{
		{ID: 9, Actor: "ada", Via: "cli", Action: "requeue", Broker: "b", Filter: "{}", Reason: "why", StartedAt: created},
		{ID: 8, Actor: "bob", Via: "http", Action: "purge", Rows: 5, StartedAt: created, EndedAt: created.Add(time.Second), Failure: "boom"},
	}, got)
	assert.Equal(t, map[string]any{"before": int64(math.MaxInt64), "limit": int64(2)}, server.requests[8].args, "from the newest")
	_, err = store.Audit(t.Context(), 8, 1)
	require.ErrorIs(t, err, outbox.ErrSchema)
	assert.Equal(t, int64(8), server.requests[9].args["before"])
	_, err = store.Audit(t.Context(), 8, 0)
	require.ErrorContains(t, err, "the limit is 0")
}
