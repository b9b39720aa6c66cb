package storetest

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

var handOffTests = []test{
	{name: "Verify", run: testVerify},
	{name: "VerifyWhatHasGone", run: testVerifyGone},
	{name: "VerifyBehindAnEarlierRow", run: testVerifyBehind},
	{name: "VerifyBehindABlock", run: testVerifyBlock},
	{name: "VerifyBehindABacklog", run: testVerifyBacklog},
	{name: "VerifyUnordered", run: testVerifyUnordered},
	{name: "VerifyPaused", run: testVerifyPaused},
	{name: "VerifyWithoutTable", run: testVerifyWithoutTable, bare: true},
	{name: "OrderUnderFire", run: testHandOffOrder},
}

// handOff inserts rows as claimed, all under one token.
func (t *table) handOff(token uuid.UUID, rows ...outbox.Row) (ids []int64) {
	t.Helper()
	ids = t.insert(rows...)
	for _, id := range ids {
		t.exec("UPDATE {t} SET status = 'processing', locked_by = 'handoff', lock_token = ?, locked_until = "+t.sql.minus("created_at", -lease)+" WHERE id = ?", token.String(), id)
	}
	return ids
}

// verify asks about rows; change adapts the question.
func (t *table) verify(token uuid.UUID, rows []outbox.Row, change ...func(*driver.Verification)) []driver.HandedRow {
	t.Helper()
	v := &driver.Verification{Broker: broker, Shard: t.shard, Token: token, Backlog: 10}
	for i := range rows {
		v.MessageIDs = append(v.MessageIDs, rows[i].MessageID)
	}
	for _, f := range change {
		f(v)
	}
	found, err := t.Store.Verify(t.Context(), v)
	require.NoError(t, err)
	slices.SortFunc(found, func(a, b driver.HandedRow) int { return int(a.ID - b.ID) })
	return found
}

// clear lists the ids of the rows that may be published, after it has made sure that all are there.
func (t *table) clear(token uuid.UUID, rows []outbox.Row, change ...func(*driver.Verification)) []int64 {
	t.Helper()
	found := t.verify(token, rows, change...)
	require.Len(t, found, len(rows))
	ids := []int64{}
	for _, f := range found {
		if f.Clear {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

// testVerify: rows of two keys, one of them twice, and one without, with nothing in their way.
func testVerify(t *table) {
	keys := t.keys(2)
	rows := []outbox.Row{newRow(keys[0]), newRow(keys[0]), newRow(keys[1])}
	rows[2].ExpiresAt = time.Now().Add(-time.Hour)
	token := uuid.New()
	ids := t.handOff(token, rows...)
	other := newRow(keys[0]) // of another broker
	other.TargetBroker = "other"
	t.insert(other)
	later := t.add(keys[0])
	found := t.verify(token, rows)
	require.Len(t, found, 3)
	for i, f := range found {
		assert.Equal(t, ids[i], f.ID)
		assert.Equal(t, rows[i].MessageID, f.MessageID)
		assert.Equal(t, t.shard, f.Shard)
		assert.WithinDuration(t, time.Now(), f.CreatedAt, time.Minute)
		assert.Equal(t, i == 2, f.Expired)
		assert.True(t, f.Clear)
		assert.Zero(t, f.Attempts+f.Crashes)
	}
	assert.Empty(t, t.claim().Messages, "the key of the later row %d is claimed", later[0])
	completion := &driver.Completion{Lease: driver.Lease{Broker: broker, Shard: t.shard, Token: token, FirstID: ids[0], LastID: ids[2]}}
	completion.Published = []driver.Delivered{{ID: ids[0]}, {ID: ids[2]}}
	completion.Other = []driver.Outcome{{ID: ids[1], Status: outbox.StatusPending}}
	require.Zero(t, t.complete(completion).Lost)
	assert.Equal(t, []int64{ids[1], later[0]}, taken(t.claim()))
}

// testVerifyGone: what was rolled back, was finished, is in other hands, or waits again is not
// ours.
func testVerifyGone(t *table) {
	keys := t.keys(4)
	token := uuid.New()
	rows := make([]outbox.Row, 4)
	for i := range rows {
		rows[i] = newRow(keys[i])
	}
	ids := t.handOff(token, rows...)
	assert.Equal(t, ids, t.clear(token, rows))
	t.exec("UPDATE {t} SET lock_token = ? WHERE id = ?", uuid.NewString(), ids[0])
	t.exec("UPDATE {t} SET status = 'pending', lock_token = NULL, locked_until = NULL WHERE id = ?", ids[1])
	t.exec("UPDATE {t} SET status = 'abandoned', finished_at = created_at WHERE id = ?", ids[2])
	t.exec("DELETE FROM {t} WHERE id = ?", ids[3])
	assert.Empty(t, t.verify(token, rows))
	assert.Empty(t, t.verify(token, []outbox.Row{newRow(keys[0])}), "was never there")

	late := []outbox.Row{newRow("late"), newRow("late")}
	ids = t.handOff(token, late...)
	t.shard = t.shardOf(ids[0])
	t.expire(ids[0])
	assert.Empty(t, t.clear(token, late), "ours still, but not for long, and so is what follows")
	assert.Empty(t, t.clear(token, late, func(v *driver.Verification) { v.Shard = (t.shard + 1) % max(2, t.Store.Shards()) }), "another shard")
}

// testVerifyBehind: an open row of the key that stands before goes first, whoever has it and
// whatever its priority.
func testVerifyBehind(t *table) {
	key := t.keys(1)[0]
	token := uuid.New()
	earlier := newRow(key)
	id := t.insert(earlier)[0]
	row := []outbox.Row{newRow(key)}
	mine := t.handOff(token, row...)
	later := newRow(key)
	t.insert(later)
	for _, change := range []string{
		"status = status", "status = 'failed', locked_until = created_at", "priority = -5", "priority = 5",
		"available_at = " + t.sql.minus("created_at", -lease), "status = 'processing', lock_token = message_id, locked_until = " + t.sql.minus("created_at", -lease),
	} {
		t.exec("UPDATE {t} SET "+change+" WHERE id = ?", id)
		assert.Empty(t, t.clear(token, row), change)
	}
	t.exec("UPDATE {t} SET lock_token = ? WHERE id = ?", token.String(), id)
	assert.Empty(t, t.clear(token, row), "ours, but not asked about: it may come later")
	t.exec("UPDATE {t} SET priority = 0 WHERE id = ?", id)
	assert.Equal(t, []int64{id, mine[0]}, t.clear(token, []outbox.Row{row[0], earlier}), "ours, and sent before")
	t.exec("UPDATE {t} SET status = 'published', finished_at = created_at, published_at = created_at WHERE id = ?", id)
	assert.Equal(t, mine, t.clear(token, row))
	t.exec("UPDATE {t} SET status = 'pending', finished_at = NULL, published_at = NULL WHERE id = ?", id)
	assert.Empty(t, t.clear(token, row), "brought back")
	t.exec("UPDATE {t} SET target_broker = 'other' WHERE id = ?", id)
	assert.Equal(t, mine, t.clear(token, row))
}

// testVerifyBlock: what is deferred is not in the shard, but its block tells of it.
func testVerifyBlock(t *table) {
	keys := t.keys(2)
	first := t.add(keys[0])[0]
	t.exec("UPDATE {t} SET available_at = "+t.sql.minus("created_at", -lease)+" WHERE id = ?", first)
	deferred, err := t.Store.Defer(t.Context(), t.request())
	require.NoError(t, err)
	require.Positive(t, deferred)
	token := uuid.New()
	rows := []outbox.Row{newRow(keys[0]), newRow(keys[1])}
	ids := t.handOff(token, rows...)
	assert.Equal(t, ids[1:], t.clear(token, rows))
}

// testVerifyBacklog: it is not worth looking through what is more than a few rows.
func testVerifyBacklog(t *table) {
	keys := t.keys(3)
	t.add(slices.Repeat(keys[:1], 10)...)
	token := uuid.New()
	first := []outbox.Row{newRow(keys[1])}
	ids := t.handOff(token, first...)
	assert.Equal(t, ids, t.clear(token, first))
	t.add(keys[0])
	assert.Equal(t, ids, t.clear(token, first), "only what stands before")
	second := []outbox.Row{newRow(keys[2])}
	ids = append(ids, t.handOff(token, second...)...)
	assert.Empty(t, t.clear(token, second))
	assert.Empty(t, t.clear(token, append(first, second...)))
	assert.Equal(t, ids, t.clear(token, append(first, second...), func(v *driver.Verification) { v.Backlog = 11 }))
}

func testVerifyUnordered(t *table) {
	key := t.keys(1)[0]
	t.add(slices.Repeat([]string{key}, 20)...)
	token := uuid.New()
	rows := []outbox.Row{newRow(key)}
	ids := t.handOff(token, rows...)
	assert.Empty(t, t.clear(token, rows))
	assert.Equal(t, ids, t.clear(token, rows, func(v *driver.Verification) { v.Unordered = true }))
	t.shard = 0
	loose := []outbox.Row{newRow("")}
	ids = t.handOff(token, loose...)
	t.shard = t.shardOf(ids[0])
	assert.Equal(t, ids, t.clear(token, loose), "without a key there is nothing to wait for")
}

func testVerifyPaused(t *table) {
	rows := []outbox.Row{newRow(t.keys(1)[0])}
	token := uuid.New()
	ids := t.handOff(token, rows...)
	t.pause(driver.Pause{Broker: "other"})
	assert.Equal(t, ids, t.clear(token, rows))
	t.pause(driver.Pause{Broker: broker})
	assert.Empty(t, t.clear(token, rows))
	assert.Empty(t, t.clear(token, rows, func(v *driver.Verification) { v.Unordered = true }))
	t.resume(broker)
	assert.Equal(t, ids, t.clear(token, rows))
}

func testVerifyWithoutTable(t *table) {
	_, err := t.Store.Verify(t.Context(), &driver.Verification{Broker: broker, MessageIDs: []uuid.UUID{uuid.New()}})
	require.ErrorIs(t, err, outbox.ErrSchema)
}
