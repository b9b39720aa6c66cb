package sqlserver

import (
	sqldriver "database/sql/driver"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/sqladmin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// foundRows are rows of broker b.
func foundRows(ids ...int64) reply {
	s := set{columns: []string{"fanout_found", "message_id", "target_broker"}}
	for _, id := range ids {
		s.rows = append(s.rows, []sqldriver.Value{id, messageID, "b"})
	}
	return reply{sets: []set{s}}
}

// pickedRows are what an operator acts on: failed rows of broker b in backoff, with the key k.
func pickedRows(status outbox.Status, ids ...int64) reply {
	s := set{columns: []string{"fanout_picked", "message_id", "target_broker", "ordering_key", "shard", "status", "waits", "deferred"}}
	for _, id := range ids {
		s.rows = append(s.rows, []sqldriver.Value{id, "", "b", "k", int64(1), string(status), status == outbox.StatusFailed, false})
	}
	return reply{sets: []set{s}}
}

// entries are key blocks of broker b: of the key k, waiting for a time, or for an operator.
func entries(operator bool, ids ...int64) reply {
	s := set{columns: []string{"fanout_entry", "message_id", "target_broker", "ordering_key", "shard", "operator", "back"}}
	for _, id := range ids {
		s.rows = append(s.rows, []sqldriver.Value{id, "", "b", "k", int64(1), operator, false})
	}
	return reply{sets: []set{s}}
}

func operated(n int64) reply { return reply{sets: []set{count("fanout_operated", n)}} }

func TestRequeue(t *testing.T) {
	t.Parallel()
	found := foundRows(4, 7)
	found.sets[0].rows[1][2] = "a"
	picked := func() reply {
		r := pickedRows(outbox.StatusFailed, 4, 7)
		r.sets[0].rows[1][2] = "a"
		return r
	}
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{err: serverError(601)}, found, picked(), entries(false, 5), reply{err: serverError(1205)}, picked(), entries(false, 4), operated(2)))
	id := "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b"
	filter := admin.Filter{
		Statuses: []outbox.Status{outbox.StatusFailed}, Type: "Ordering.*", Key: "k", MessageIDs: []string{strings.ToUpper(id)}, ErrorClass: "permanent",
		Since: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("elsewhere", 3600)),
	}
	n, err := store.Requeue(t.Context(), filter, 10)
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	once := []string{store.Text("pick"), store.Text("blocks_of"), store.Text("requeue")}
	assert.Equal(t, slices.Concat([]string{store.Text("find"), store.Text("find")}, once, once), server.texts(), "what is decided is decided anew; less than asked for: there is no more")
	text := func(s string) mssql.NVarCharMax { return mssql.NVarCharMax(s) }
	assert.Equal(t, map[string]any{
		"limit": int64(10), "broker": text(""), "statuses": text(`["failed"]`), "type": text(""), "type_prefix": text("Ordering."), "key_prefix": text(""), "unacknowledged": false, "key": text("k"), "aggregate": text(""), "correlation": text(""), "correlated": text(""), "tenant": text(""),
		"message_ids": text(`["` + id + `"]`), "class": text("permanent"), "since": text("2026-01-02T02:04:05.000006"), "until": text(""), "waiting": true,
		"refused": text(""),
	}, server.requests[1].args)
	assert.Equal(t, map[string]any{
		"lock_brokers": text(`["a","b"]`),
		"rows":         text(`[{"id":4,"shard":1,"status":"failed","waits":1,"behind":0,"operator":0,"back":0,"to":0},{"id":7,"shard":1,"status":"failed","waits":1,"behind":0,"operator":0,"back":0,"to":0}]`),
		"known":        text(`[{"id":4,"shard":1,"waits":0,"behind":0,"operator":0,"back":0,"to":0}]`), "forgotten": text(`[]`),
		"moves":       text(`[{"id":4,"shard":1,"waits":0,"behind":0,"operator":0,"back":0,"to":4}]`),
		"ttl_seconds": int32(0), "ttl_micros": int32(0),
	}, server.requests[7].args)
}

// A large request is done in pieces, and what was lost to other transactions in between is made up
// for.
func TestOperateInPieces(t *testing.T) {
	t.Parallel()
	ids := make([]int64, sqladmin.OperateRows)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	store, server := newFake(t, "outbox_messages", inTurn(
		foundRows(ids...), pickedRows(outbox.StatusPublished, ids[:998]...), entries(false), operated(998),
		foundRows(2001, 2002), pickedRows(outbox.StatusPublished, 2001), entries(false), operated(1),
		foundRows(2003), pickedRows(outbox.StatusPublished, 2003), entries(false), operated(1)))
	n, err := store.Replay(t.Context(), admin.Filter{}, sqladmin.OperateRows)
	require.NoError(t, err)
	assert.Equal(t, 1000, n)
	var limits []int64
	for _, r := range server.requests {
		if limit, ok := r.args["limit"]; ok {
			limits = append(limits, limit.(int64))
			assert.Equal(t, false, r.args["waiting"])
			assert.Equal(t, mssql.NVarCharMax(`["published"]`), r.args["statuses"])
		}
	}
	assert.Equal(t, []int64{1000, 2, 1}, limits)
}

func TestAbandon(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn(foundRows(4), pickedRows(outbox.StatusFailed, 4), entries(false, 4), operated(1)))
	n, err := store.Abandon(t.Context(), admin.Filter{Broker: "b"}, "not <wanted>", 5)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, store.Text("abandon"), server.requests[3].text)
	head := string(server.requests[3].args["error"].(mssql.NVarCharMax))
	assert.True(t, strings.HasSuffix(head, `,"at":`), head)
	var last outbox.LastError
	require.NoError(t, json.Unmarshal([]byte(head+`"2026-01-02T03:04:05.000006Z","attempt":7}`), &last), "with what the server adds")
	assert.Equal(t, outbox.LastError{Acknowledged: true, Class: admin.ClassOperator, Message: "not <wanted>", At: created, Attempt: 7}, last)
}

func TestMatches(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn(reply{sets: []set{count("fanout_matches", 3)}}, reply{}))
	n, err := store.Matches(t.Context(), admin.Filter{}, 5)
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	assert.Equal(t, store.Text("matches"), server.requests[0].text)
	assert.Equal(t, mssql.NVarCharMax("[]"), server.requests[0].args["message_ids"], "any")
	_, err = store.Matches(t.Context(), admin.Filter{}, 5)
	require.ErrorIs(t, err, errIncomplete)
}

func TestOperateFails(t *testing.T) {
	t.Parallel()
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{err: serverError(208)}, foundRows(1), pickedRows(outbox.StatusPublished, 1), entries(false), reply{err: serverError(547)},
		foundRows(1), reply{},
		foundRows(1), pickedRows(outbox.StatusPublished, 1), entries(false), operated(0)))
	_, err := store.Requeue(t.Context(), admin.Filter{}, 0)
	require.EqualError(t, err, "sqlserver: requeue: the limit is 0: it must be at least 1")
	assert.Empty(t, server.requests)
	_, err = store.Requeue(t.Context(), admin.Filter{}, 1)
	require.ErrorIs(t, err, outbox.ErrSchema)
	_, err = store.Replay(t.Context(), admin.Filter{}, 1)
	require.ErrorContains(t, err, "sqlserver: replay rows in outbox_messages: ")
	_, err = store.Replay(t.Context(), admin.Filter{}, 1)
	require.ErrorIs(t, err, errIncomplete)
}

// Where others change what was read, again and again, fewer rows are taken at a time.
func TestOperateBesideChanges(t *testing.T) {
	t.Parallel()
	changed := reply{err: serverError(errChanged)}
	var replies []reply
	for range 3 {
		replies = append(replies, pickedRows(outbox.StatusFailed, 4, 5, 6), entries(false), changed)
	}
	replies = slices.Concat([]reply{foundRows(4, 5, 6)}, replies, []reply{foundRows(4), pickedRows(outbox.StatusFailed, 4), entries(false), operated(1)},
		[]reply{foundRows(5, 6), pickedRows(outbox.StatusFailed, 5, 6), entries(false), operated(2)})
	store, server := newFake(t, "outbox_messages", inTurn(replies...))
	n, err := store.Requeue(t.Context(), admin.Filter{}, 3)
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	var limits []any
	for _, r := range server.requests {
		if limit, ok := r.args["limit"]; ok {
			limits = append(limits, limit)
		}
	}
	assert.Equal(t, []any{int64(3), int64(1), int64(2)}, limits)
}

// What an act is not for is not read about: the batch compares the blocks of the rows that it changes.
func TestOperateLeavesOutWhatItIsNotFor(t *testing.T) {
	t.Parallel()
	picked := pickedRows(outbox.StatusFailed, 4, 7)
	picked.sets[0].rows[1][5], picked.sets[0].rows[1][6] = "pending", false // another operator has brought it back
	store, server := newFake(t, "outbox_messages", inTurn(foundRows(4, 7), picked, entries(false), operated(1)))
	n, err := store.Requeue(t.Context(), admin.Filter{}, 10)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, mssql.NVarCharMax("[4]"), server.requests[2].args["ids"])
}

// A block that is back in the way of claims is not written, and compared: it may wait again by then.
func TestOperateComparesBlocksThatAreBack(t *testing.T) {
	t.Parallel()
	back := entries(false, 4)
	back.sets[0].rows[0][6] = true
	store, server := newFake(t, "outbox_messages", inTurn(foundRows(4), pickedRows(outbox.StatusFailed, 4), back, operated(1)))
	_, err := store.Abandon(t.Context(), admin.Filter{}, "r", 10)
	require.NoError(t, err)
	assert.Equal(t, mssql.NVarCharMax("[]"), server.requests[3].args["moves"])
	assert.Contains(t, server.requests[3].args["known"], `"back":1`)
	assert.Contains(t, store.Text("abandon"), "operator, back FROM @seen EXCEPT")
}

func TestUnblockKey(t *testing.T) {
	t.Parallel()
	moved := reply{sets: []set{count("fanout_moved", 1)}}
	store, server := newFake(t, "outbox_messages", inTurn(entries(true, 3), reply{err: serverError(errChanged)}, entries(true, 4), moved, entries(false, 4), reply{err: errors.New("boom")}))
	ok, err := store.UnblockKey(t.Context(), "b", "k ")
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, map[string]any{"broker": "b", "key": mssql.NVarCharMax("k ")}, server.requests[2].args)
	assert.Equal(t, map[string]any{
		"lock_brokers": mssql.NVarCharMax(`["b"]`), "moves": mssql.NVarCharMax(`[{"id":4,"shard":1,"waits":0,"behind":0,"operator":1,"back":0,"to":4}]`),
	}, server.requests[3].args)
	ok, err = store.UnblockKey(t.Context(), "b", "k")
	require.NoError(t, err)
	assert.False(t, ok, "it waits for a time")
	_, err = store.UnblockKey(t.Context(), "b", "k")
	require.EqualError(t, err, `sqlserver: unblock key "k" of broker "b" in outbox_messages: boom`)
	_, err = store.UnblockKey(t.Context(), "b", "")
	require.ErrorContains(t, err, "ordering key")
}

func TestBlockedKeys(t *testing.T) {
	t.Parallel()
	keys := set{columns: []string{"fanout_blocked_key", "ordering_key", "block_message_id", "since"}, rows: [][]sqldriver.Value{{"b", "k", "id", created}}}
	store, server := newFake(t, "outbox_messages", inTurn(reply{sets: []set{keys}, err: serverError(601)}, reply{sets: []set{keys}}, reply{err: serverError(208)}))
	got, err := store.BlockedKeys(t.Context(), "b", 3)
	require.NoError(t, err)
	assert.Equal(t, []admin.BlockedKey{{Broker: "b", Key: "k", MessageID: "id", Since: created}}, got)
	assert.Equal(t, map[string]any{"broker": "b", "limit": int64(3)}, server.requests[1].args)
	_, err = store.BlockedKeys(t.Context(), "", 1)
	require.ErrorIs(t, err, outbox.ErrSchema)
	_, err = store.BlockedKeys(t.Context(), "", 0)
	require.ErrorContains(t, err, "the limit is 0")
}

// An operator counts a change of the shards, which locks them, then takes the rows, and moves
// blocks before rows come back.
func TestOperateTexts(t *testing.T) {
	t.Parallel()
	store, err := New(nil, "")
	require.NoError(t, err)
	inOrder(t, store.Text("requeue"), "BEGIN TRANSACTION", "INSERT INTO outbox_messages_shards", "SET version = l.version + 1", "INSERT INTO @listed", "FROM @seen EXCEPT", "DELETE w", "block_id         = v.to_id", "status       = N'pending'", "COMMIT TRANSACTION")
	inOrder(t, store.Text("abandon"), "BEGIN TRANSACTION", "INSERT INTO outbox_messages_shards", "SET version = l.version + 1", "INSERT INTO @listed", "FROM @seen EXCEPT", "DELETE w", "wake_at          = NULL", "status       = N'abandoned'", "COMMIT TRANSACTION")
	inOrder(t, store.Text("move_blocks"), "BEGIN TRANSACTION", "SET version = l.version + 1", "UPDATE w", "COMMIT TRANSACTION")
	for _, name := range []string{"requeue", "abandon", "move_blocks"} {
		assert.Equal(t, 1, strings.Count(store.Text(name), "SET version = l.version + 1"), name)
	}
}

func TestInstances(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	row := []sqldriver.Value{id.String(), "relay", "host", int64(7), "v1", created, created, `{"batches":[{"worker":"w","rows":3}]}`, false, time.Now()}
	list := func(row []sqldriver.Value) reply {
		return reply{sets: []set{{columns: []string{"fanout_instance", "name", "host", "pid", "version", "started_at", "seen_at", "work", "old", "now"}, rows: [][]sqldriver.Value{row}}}}
	}
	seen, left := reply{sets: []set{count("fanout_seen", 1)}}, reply{sets: []set{count("fanout_left", 1)}}
	garbled := slices.Concat(row[:7], []sqldriver.Value{"{", false, time.Now()})
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{err: serverError(2627)}, seen, reply{err: serverError(208)}, left, reply{}, reply{err: serverError(1205)}, list(row), list(garbled), reply{err: serverError(208)},
	))
	instance := admin.Instance{ID: id, Name: "re\x00lay", Host: "host", PID: 7, Version: "v1"}
	require.NoError(t, store.Heartbeat(t.Context(), instance), "two at once")
	assert.Equal(t, map[string]any{
		"instance_id": id.String(), "name": mssql.NVarCharMax("re\uFFFDlay"), "host": mssql.NVarCharMax("host"), "pid": 7,
		"version": mssql.NVarCharMax("v1"), "work": mssql.NVarCharMax("{}"),
	}, server.requests[1].args)
	require.ErrorIs(t, store.Heartbeat(t.Context(), instance), outbox.ErrSchema)
	require.NoError(t, store.Leave(t.Context(), id))
	require.ErrorIs(t, store.Leave(t.Context(), id), errIncomplete)

	got, err := store.Instances(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []admin.Instance{{
		ID: id, Name: "relay", Host: "host", PID: 7, Version: "v1", StartedAt: created, SeenAt: created, Work: []admin.Work{{Worker: "w", Rows: 3}},
	}}, got)
	got, err = store.Instances(t.Context())
	require.NoError(t, err)
	require.Len(t, got, 1, "a row that cannot be read costs itself only")
	assert.NotEmpty(t, got[0].Unreadable)
	_, err = store.Instances(t.Context())
	require.ErrorIs(t, err, outbox.ErrSchema)
}
