package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var abandonedTests = []test{
	{name: "Acknowledge", run: testAcknowledge},
	{name: "Discard", run: testDiscard},
	{name: "UnblockMany", run: testUnblockMany},
	{name: "Standing", run: testStanding},
}

// acknowledge marks rows as seen.
func (t *table) acknowledge(filter admin.Filter, limit int) int {
	t.Helper()
	n, err := t.Store.Acknowledge(t.Context(), filter, limit)
	require.NoError(t, err)
	return n
}

// What an operator has seen stays abandoned, with its error and its blocked key, and only what comes
// later is new.
func testAcknowledge(t *table) {
	k := t.keys(4)
	heads := t.add(k[0], k[1], k[2])
	behind := t.add(k[0])
	for i, lastError := range []any{`{"class":"permanent","message":"says \"no\"","at":"2026-01-02T03:04:05Z","attempt":3}`, nil, `by "hand"`} {
		t.exec("UPDATE {t} SET status = 'abandoned', finished_at = created_at, last_error = ? WHERE id = ?", lastError, heads[i])
	}
	t.exec(`INSERT INTO {t}_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, reason, since)
		SELECT target_broker, shard, ordering_key, id, message_id, 'operator', created_at FROM {t} WHERE id = ?`, heads[0])
	t.exec("UPDATE {t}_key_blocks SET wake_at = ?", t.sql.never)
	require.Equal(t, admin.Count{N: 3}, t.overview(10)[0].Unacknowledged)
	unseen := admin.Filter{Broker: broker, Unacknowledged: true}
	assert.Equal(t, 4, t.matches(unseen, 10), "three of them, and the open one")

	assert.Equal(t, 1, t.acknowledge(admin.Filter{Broker: broker, ErrorClass: "permanent"}, 10))
	assert.Equal(t, 2, t.acknowledge(admin.Filter{Broker: broker}, 2), "no more than the limit, and none twice")
	assert.Zero(t, t.acknowledge(admin.Filter{Broker: broker}, 10))
	got := t.overview(10)[0]
	assert.Equal(t, admin.Count{}, got.Unacknowledged)
	assert.Equal(t, admin.Count{N: 3}, got.Counts[outbox.StatusAbandoned])
	assert.Equal(t, 1, t.matches(unseen, 10))
	for i, want := range []outbox.LastError{
		{Acknowledged: true, Class: "permanent", Message: `says "no"`, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Attempt: 3},
		{Acknowledged: true},
		{Acknowledged: true, Message: `by "hand"`},
	} {
		records, err := t.Store.Message(t.Context(), t.messageID(heads[i]))
		require.NoError(t, err)
		require.Len(t, records, 1)
		assert.Equal(t, outbox.StatusAbandoned, records[0].Status)
		if assert.NotNil(t, records[0].LastError, i) {
			assert.Equal(t, want, *records[0].LastError)
		}
	}
	assert.Equal(t, outbox.StateBlocked, t.stateOf(behind[0]), "its key goes on waiting")
	assert.Equal(t, 1, t.matches(admin.Filter{Broker: broker, ErrorClass: "permanent"}, 10), "the error is as it was")

	late := t.add(k[3])
	t.exec(`UPDATE {t} SET status = 'abandoned', finished_at = created_at, last_error = '{"class":"permanent"}' WHERE id = ?`, late[0])
	assert.Equal(t, admin.Count{N: 1}, t.overview(10)[0].Unacknowledged, "the next one is new")
	assert.Equal(t, 1, t.abandon(t.these(behind[0])))
	assert.Equal(t, admin.Count{N: 1}, t.overview(10)[0].Unacknowledged, "what an operator has abandoned, an operator knows of")
	_, err := t.Store.Acknowledge(t.Context(), admin.Filter{Statuses: []outbox.Status{outbox.StatusFailed}}, 1)
	require.ErrorContains(t, err, "acknowledge: ")
}

func (t *table) matches(filter admin.Filter, limit int) int {
	t.Helper()
	n, err := t.Store.Matches(t.Context(), filter, limit)
	require.NoError(t, err)
	return n
}

// Rows that are discarded are gone, their keys go on, and what is not abandoned stays.
func testDiscard(t *table) {
	k := t.keys(3)
	poison := t.add(k[0], k[1])
	for _, id := range poison {
		t.abandonAndBlock(id)
	}
	behind := t.add(k[0], k[1], k[2])
	t.deferRows()
	assert.Equal(t, 2, t.matches(admin.Filter{Broker: broker, Blocking: true}, 10))
	n, err := t.Store.Discard(t.Context(), admin.Filter{Broker: broker, Type: "*"}, 1)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	n, err = t.Store.Discard(t.Context(), admin.Filter{Broker: broker}, many)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Empty(t, t.blockedKeys())
	assert.Equal(t, int64(3), t.number("SELECT count(*) FROM {t}"))
	assert.ElementsMatch(t, behind, t.drain())
	t.clean()
	_, err = t.Store.Discard(t.Context(), admin.Filter{Statuses: []outbox.Status{outbox.StatusPending}}, 1)
	require.ErrorContains(t, err, "discard: ")
}

// One call lets many keys go on, as far as the rows for which they wait match, and these stay.
func testUnblockMany(t *table) {
	const n = 25
	var keys, poison []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("poison-%d", i))
	}
	poison = append(poison, keys...)
	poison = append(poison, "kept")
	heads := t.add(poison...)
	t.exec(`UPDATE {t} SET status = 'abandoned', finished_at = created_at, last_error = '{"class":"permanent"}'`)
	t.exec(`INSERT INTO {t}_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, reason, since)
		SELECT target_broker, shard, ordering_key, id, message_id, 'operator', created_at FROM {t}`)
	t.exec("UPDATE {t}_key_blocks SET wake_at = ?", t.sql.never)
	t.add("other")
	behind := t.add(keys...)
	t.add("kept")
	unblock := func(filter admin.Filter, limit int) int {
		t.Helper()
		n, err := t.Store.Unblock(t.Context(), filter, limit)
		require.NoError(t, err)
		return n
	}
	assert.Zero(t, unblock(admin.Filter{Broker: "another"}, many))
	assert.Equal(t, 1, unblock(admin.Filter{Broker: broker, Key: "poison-1"}, many), "a key, and none that begins like it")
	assert.Equal(t, 1, unblock(t.these(heads[0]), many), "by the message")
	assert.Equal(t, n-2, t.matches(admin.Filter{KeyPrefix: "poison-", Blocking: true}, many))
	assert.Equal(t, 3, unblock(admin.Filter{KeyPrefix: "poison-"}, 3), "no more than the limit")
	assert.Equal(t, n-5, unblock(admin.Filter{Broker: broker, KeyPrefix: "poison-", ErrorClass: "permanent"}, many))
	assert.Zero(t, unblock(admin.Filter{Broker: broker, KeyPrefix: "poison-"}, many))
	blocked := t.blockedKeys()
	require.Len(t, blocked, 1)
	assert.Equal(t, "kept", blocked[0].Key)
	assert.Equal(t, int64(n+1), t.number("SELECT count(*) FROM {t} WHERE status = 'abandoned'"), "the rows stay abandoned")
	for _, id := range behind {
		assert.Equal(t, outbox.StateDue, t.stateOf(id))
	}
	_, err := t.Store.Unblock(t.Context(), admin.Filter{Statuses: []outbox.Status{outbox.StatusPending}}, 1)
	require.ErrorContains(t, err, "unblock: ")
}

// What waits for a person, or by intention, is distinguished from what merely waits.
func testStanding(t *table) {
	assert.Zero(t, t.overviewOf())
	k := t.keys(3)
	t.abandonAndBlock(t.add(k[0])[0])
	t.add(k[0], k[0], k[0])
	later, alone := newRow(k[1]), newRow("")
	later.AvailableAt, alone.AvailableAt = time.Now().Add(lease), time.Now().Add(lease)
	t.insert(later, alone)
	t.add(k[1], k[2])
	want := standing{Blocked: admin.Count{N: 1}, Held: admin.Count{N: 3}, Scheduled: admin.Count{N: 2}, Unacknowledged: admin.Count{N: 1}}
	assert.Equal(t, want, t.overviewOf())
	overview, err := t.Store.Overview(t.Context(), 1)
	require.NoError(t, err)
	assert.Equal(t, admin.Count{N: 1, More: true}, overview[0].Held)
	assert.Equal(t, admin.Count{N: 1, More: true}, overview[0].Scheduled)
	assert.True(t, t.release(k[0]))
	assert.Equal(t, standing{Scheduled: want.Scheduled, Unacknowledged: want.Unacknowledged}, t.overviewOf())
}

type standing struct{ Blocked, Held, Scheduled, Unacknowledged admin.Count }

func (t *table) overviewOf() (s standing) {
	t.Helper()
	overview, err := t.Store.Overview(t.Context(), 100)
	require.NoError(t, err)
	for i := range overview {
		s = standing{overview[i].BlockedKeys, overview[i].Held, overview[i].Scheduled, overview[i].Unacknowledged}
	}
	return s
}
