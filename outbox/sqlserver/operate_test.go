package sqlserver

import (
	sqldriver "database/sql/driver"
	"slices"
	"strings"
	"testing"
	"time"

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

// entries are key blocks of broker b: of the key k, waiting for a time.
func entries(ids ...int64) reply {
	s := set{columns: []string{"fanout_entry", "message_id", "target_broker", "ordering_key", "shard", "operator", "back"}}
	for _, id := range ids {
		s.rows = append(s.rows, []sqldriver.Value{id, "", "b", "k", int64(1), false, false})
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
		reply{err: serverError(601)}, found, picked(), entries(5), reply{err: serverError(1205)}, picked(), entries(4), operated(2)))
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
		foundRows(ids...), pickedRows(outbox.StatusPublished, ids[:998]...), entries(), operated(998),
		foundRows(2001, 2002), pickedRows(outbox.StatusPublished, 2001), entries(), operated(1),
		foundRows(2003), pickedRows(outbox.StatusPublished, 2003), entries(), operated(1)))
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

// Where others change what was read, again and again, fewer rows are taken at a time.
func TestOperateBesideChanges(t *testing.T) {
	t.Parallel()
	changed := reply{err: serverError(errChanged)}
	var replies []reply
	for range 3 {
		replies = append(replies, pickedRows(outbox.StatusFailed, 4, 5, 6), entries(), changed)
	}
	replies = slices.Concat([]reply{foundRows(4, 5, 6)}, replies, []reply{foundRows(4), pickedRows(outbox.StatusFailed, 4), entries(), operated(1)},
		[]reply{foundRows(5, 6), pickedRows(outbox.StatusFailed, 5, 6), entries(), operated(2)})
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
