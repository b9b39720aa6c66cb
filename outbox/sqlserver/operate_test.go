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

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/driver"
	"github.com/gorm-fanout/fanout/outbox/internal/sqladmin"
)

// foundRows are rows of broker b.
func foundRows(ids ...int64) reply {
	s := set{columns: []string{"fanout_found", "message_id", "target_broker"}}
	for _, id := range ids {
		s.rows = append(s.rows, []sqldriver.Value{id, messageID, "b"})
	}
	return reply{sets: []set{s}}
}

func operated(n int64) reply { return reply{sets: []set{count("fanout_operated", n)}} }

func TestRequeue(t *testing.T) {
	t.Parallel()
	found := foundRows(4, 7)
	found.sets[0].rows[1][2] = "a"
	store, server := newFake(t, "outbox_messages", inTurn(reply{err: serverError(601)}, found, reply{err: serverError(1205)}, operated(2)))
	id := "0197f0a2-7d1c-7c3b-a3a5-1c2d3e4f5a6b"
	filter := admin.Filter{
		Statuses: []outbox.Status{outbox.StatusFailed}, Type: "Ordering.*", Key: "k", MessageIDs: []string{strings.ToUpper(id)}, ErrorClass: "permanent",
		Since: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("elsewhere", 3600)),
	}
	n, err := store.Requeue(t.Context(), filter, 10)
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	assert.Equal(t, []string{store.Text("find"), store.Text("find"), store.Text("requeue"), store.Text("requeue")}, server.texts(), "less than asked for: there is no more")
	text := func(s string) mssql.NVarCharMax { return mssql.NVarCharMax(s) }
	assert.Equal(t, map[string]any{
		"limit": int64(10), "broker": text(""), "statuses": text(`["failed"]`), "type": text(""), "type_prefix": text("Ordering."), "key": text("k"),
		"message_ids": text(`["` + id + `"]`), "class": text("permanent"), "since": text("2026-01-02T02:04:05.000006"), "until": text(""), "waiting": true,
		"refused": text(""),
	}, server.requests[1].args)

	assert.Equal(t, map[string]any{"lock_brokers": text(`["a","b"]`), "ids": text("[4,7]"), "statuses": text(`["failed"]`), "waiting": true, "ttl_seconds": int32(0), "ttl_micros": int32(0)}, server.requests[3].args)
}

// A large request is done in pieces, and what was lost to other transactions in between is made up
// for.
func TestOperateInPieces(t *testing.T) {
	t.Parallel()
	ids := make([]int64, sqladmin.OperateRows)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	store, server := newFake(t, "outbox_messages", inTurn(foundRows(ids...), operated(998), foundRows(2001, 2002), operated(1), foundRows(2003), operated(1)))
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
	store, server := newFake(t, "outbox_messages", inTurn(foundRows(4), operated(1)))
	n, err := store.Abandon(t.Context(), admin.Filter{Broker: "b"}, "not <wanted>", 5)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, store.Text("abandon"), server.requests[1].text)
	head := string(server.requests[1].args["error"].(mssql.NVarCharMax))
	assert.True(t, strings.HasSuffix(head, `,"at":`), head)
	var last outbox.LastError
	require.NoError(t, json.Unmarshal([]byte(head+`"2026-01-02T03:04:05.000006Z","attempt":7}`), &last), "with what the server adds")
	assert.Equal(t, outbox.LastError{Class: admin.ClassOperator, Message: "not <wanted>", At: created, Attempt: 7}, last)
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
	store, server := newFake(t, "outbox_messages", inTurn(reply{err: serverError(208)}, foundRows(1), reply{err: serverError(547)}, foundRows(1), reply{}))
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

func TestUnblockKey(t *testing.T) {
	t.Parallel()
	released := func(n int64) reply { return reply{sets: []set{count("fanout_released", n)}} }
	store, server := newFake(t, "outbox_messages", inTurn(reply{err: serverError(errLockNotGranted)}, released(1), released(0), reply{err: errors.New("boom")}))
	ok, err := store.UnblockKey(t.Context(), "b", "k ")
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, mssql.NVarCharMax("k "), server.requests[1].args["key"])
	assert.Equal(t, "b", server.requests[1].args["broker"])
	ok, err = store.UnblockKey(t.Context(), "b", "k")
	require.NoError(t, err)
	assert.False(t, ok)
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
	inOrder(t, store.Text("requeue"), "BEGIN TRANSACTION", "INSERT INTO outbox_messages_shards", "SET version = l.version + 1", "INSERT INTO @picked", "DELETE w", "block_id         = m.id", "status       = N'pending'", "COMMIT TRANSACTION")
	inOrder(t, store.Text("abandon"), "BEGIN TRANSACTION", "INSERT INTO outbox_messages_shards", "SET version = l.version + 1", "INSERT INTO @picked", "DELETE w", "wake_at = NULL", "status       = N'abandoned'", "COMMIT TRANSACTION")
	inOrder(t, store.Text("unblock_key"), "BEGIN TRANSACTION", "SET version = l.version + 1", "UPDATE w", "COMMIT TRANSACTION")
	assert.NotContains(t, store.Text("unblock_key"), "@picked")
	for _, name := range []string{"requeue", "abandon", "unblock_key"} {
		assert.Equal(t, 1, strings.Count(store.Text(name), "SET version = l.version + 1"), name)
	}
}

func TestInstances(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	row := []sqldriver.Value{id.String(), "relay", "host", int64(7), "v1", created, created, `[{"worker":"w","rows":3}]`, false}
	list := func(row []sqldriver.Value) reply {
		return reply{sets: []set{{columns: []string{"fanout_instance", "name", "host", "pid", "version", "started_at", "seen_at", "work", "old"}, rows: [][]sqldriver.Value{row}}}}
	}
	seen, left := reply{sets: []set{count("fanout_seen", 1)}}, reply{sets: []set{count("fanout_left", 1)}}
	garbled := slices.Concat(row[:7], []sqldriver.Value{"{", false})
	store, server := newFake(t, "outbox_messages", inTurn(
		reply{err: serverError(2627)}, seen, reply{err: serverError(208)}, left, reply{}, reply{err: serverError(1205)}, list(row), list(garbled), reply{err: serverError(208)},
	))
	instance := driver.Instance{ID: id, Name: "re\x00lay", Host: "host", PID: 7, Version: "v1"}
	require.NoError(t, store.Heartbeat(t.Context(), instance), "two at once")
	assert.Equal(t, map[string]any{
		"instance_id": id.String(), "name": mssql.NVarCharMax("re\uFFFDlay"), "host": mssql.NVarCharMax("host"), "pid": 7,
		"version": mssql.NVarCharMax("v1"), "work": mssql.NVarCharMax("[]"),
	}, server.requests[1].args)
	require.ErrorIs(t, store.Heartbeat(t.Context(), instance), outbox.ErrSchema)
	require.NoError(t, store.Leave(t.Context(), id))
	require.ErrorIs(t, store.Leave(t.Context(), id), errIncomplete)

	got, err := store.Instances(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []driver.Instance{{
		ID: id, Name: "relay", Host: "host", PID: 7, Version: "v1", StartedAt: created, SeenAt: created, Work: []driver.Work{{Worker: "w", Rows: 3}},
	}}, got)
	got, err = store.Instances(t.Context())
	require.NoError(t, err)
	require.Len(t, got, 1, "a row that cannot be read costs itself only")
	assert.NotEmpty(t, got[0].Unreadable)
	_, err = store.Instances(t.Context())
	require.ErrorIs(t, err, outbox.ErrSchema)
}
