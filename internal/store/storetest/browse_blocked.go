package storetest

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var blockedTests = []test{
	{name: "Blocks", run: testKeyBlocks},
	{name: "FailedHeads", run: testBlockedHeads},
	{name: "OneOfEachKey", run: testBlockedOnce},
	{name: "Bounds", run: testBlockedBounds},
	{name: "BlockRemoved", run: testKeyBlockGone},
	{name: "MostFollowersFirst", run: testMostFollowersFirst},
	{name: "FollowersNameTheirBlock", run: testFollowersNameTheirBlock},
}

func (t *table) blocked(limit, maxCount int) []admin.KeyBlock {
	t.Helper()
	keys, err := t.Store.KeyBlocks(t.Context(), broker, limit, maxCount)
	require.NoError(t, err)
	return keys.Keys
}

// blockSince moves the time since when a key waits into the past.
func (t *table) blockSince(key string, ago time.Duration) {
	t.Helper()
	t.exec("UPDATE {t}_key_blocks SET since = "+t.sql.minus("since", ago)+" WHERE ordering_key = ?", key)
}

func testKeyBlocks(t *table) {
	assert.Empty(t, t.blocked(10, 10))
	k := t.keys(4)
	retried := t.add(k[0], k[0], k[0])
	t.failHead(retried[0])
	later := newRow(k[1])
	later.AvailableAt = time.Now().Add(lease)
	scheduled := t.insert(later)
	require.Equal(t, 3, t.deferRows(), "a scheduled row is out of the way")
	waits := t.add(k[2], k[2])
	t.abandonAndBlock(waits[0])
	require.Equal(t, 1, t.deferRows())
	late := t.add(k[0], k[3])
	t.blockSince(k[0], time.Hour)
	other := newRow(k[0])
	other.TargetBroker = "another"
	t.insert(other)

	keys := t.blocked(10, 10)
	require.Len(t, keys, 2)
	for i, want := range []struct {
		admin.KeyBlock
		block int64
		since time.Duration
		until time.Time
	}{
		{admin.KeyBlock{Key: k[2], Status: outbox.StatusAbandoned, Reason: "operator", Followers: admin.Count{N: 1}}, waits[0], 0, time.Time{}},
		{admin.KeyBlock{Key: k[0], Status: outbox.StatusFailed, Reason: "backoff", Followers: admin.Count{N: 3}}, retried[0], time.Hour, time.Now().Add(time.Minute)},
	} {
		got := keys[i]
		assert.WithinDuration(t, time.Now().Add(-want.since), got.Since, time.Minute, want.Key)
		if want.until.IsZero() {
			assert.Zero(t, got.Until, "an operator must act")
		} else {
			assert.WithinDuration(t, want.until, got.Until, 50*time.Second, want.Key)
		}
		assert.NotNil(t, got.LastError, want.Key)
		want.MessageID, want.Broker = t.messageID(want.block), broker
		got.Since, got.Until, got.LastError = time.Time{}, time.Time{}, nil
		assert.Equal(t, want.KeyBlock, got)
	}

	assert.True(t, t.release(k[2]))
	assert.Equal(t, 1, t.abandon(t.these(retried[0])))
	assert.Equal(t, 1, t.requeue(t.these(scheduled[0])))
	assert.ElementsMatch(t, append(append(append(retried[1:], scheduled...), waits[1]), late...), t.drain())
	assert.Empty(t, t.blocked(10, 10), "nothing waits any more")
}

// A key waits behind its failed row as soon as that has failed, before anything is deferred.
func testBlockedHeads(t *table) {
	k := t.keys(3)
	loose := t.addLoose(1)
	ids := t.add(k[0], k[0], k[1], k[0], k[2])
	at := time.Now().UTC().Truncate(time.Second)
	batch := t.claim()
	require.Len(t, batch.Messages, 6)
	s := outcome(batch, driver.Outcome{Status: outbox.StatusPending})
	for i, id := range taken(batch) {
		if id == loose[0] || id == ids[1] {
			s.Other[i] = driver.Outcome{
				ID: id, Status: outbox.StatusFailed, Delay: lease, Spent: true, LastError: `{"class":"retryable","message":"m","at":"` + at.Format(time.RFC3339) + `","attempt":1}`,
			}
		}
	}
	require.Zero(t, t.complete(s).Lost)
	keys := t.blocked(10, 10)
	require.Len(t, keys, 1, "rows without a key hold up nothing")
	got := keys[0]
	assert.WithinDuration(t, at, got.Since, time.Minute)
	assert.WithinDuration(t, at.Add(lease), got.Until, time.Minute)
	if assert.NotNil(t, got.LastError) {
		assert.Equal(t, "m", got.LastError.Message)
	}
	got.Since, got.Until, got.LastError = time.Time{}, time.Time{}, nil
	assert.Equal(t, admin.KeyBlock{
		Broker: broker, Key: k[0], MessageID: t.messageID(ids[1]), Status: outbox.StatusFailed, Reason: "backoff", Followers: admin.Count{N: 1},
	}, got, "the row before it does not wait for it")
	assert.Equal(t, 1, t.requeue(t.these(ids[1])))
	assert.Empty(t, t.blocked(10, 10), "it can be claimed again, though its error is still there")
}

// A key with a block, and with failed rows, is one key: it waits for the first of them.
func testBlockedOnce(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[0], k[0])
	t.failHead(ids[0])
	require.Equal(t, 3, t.deferRows())
	more := t.add(k[0], k[1], k[1], k[1])
	for _, id := range []int64{ids[1], more[0], more[2], more[3]} {
		t.exec(`UPDATE {t} SET status = 'failed', last_error = '{"class":"x"}', locked_until = `+t.sql.minus("created_at", -lease)+" WHERE id = ?", id)
	}
	keys := t.blocked(10, 10)
	require.Len(t, keys, 2)
	found := map[string]admin.KeyBlock{keys[0].Key: keys[0], keys[1].Key: keys[1]}
	assert.Equal(t, t.messageID(ids[0]), found[k[0]].MessageID)
	assert.Equal(t, admin.Count{N: 3}, found[k[0]].Followers)
	assert.Equal(t, t.messageID(more[2]), found[k[1]].MessageID)
	assert.Equal(t, admin.Count{N: 1}, found[k[1]].Followers)
}

// Neither keys nor followers are counted beyond what was asked for, and what needs an operator is
// not crowded out.
func testBlockedBounds(t *table) {
	k := t.keys(6)
	for i, key := range k[:5] {
		ids := t.add(key, key, key, key)
		t.failHead(ids[0])
		require.Equal(t, 4, t.deferRows())
		t.blockSince(key, time.Duration(10-i)*time.Hour)
	}
	waits := t.add(k[5], k[5])
	t.abandonAndBlock(waits[0])
	require.Equal(t, 1, t.deferRows())
	keys := t.blocked(3, 2)
	require.Len(t, keys, 3)
	assert.Equal(t, []string{k[5], k[0], k[1]}, []string{keys[0].Key, keys[1].Key, keys[2].Key}, "who waits for an operator, then the oldest")
	assert.Equal(t, []admin.Count{{N: 1}, {N: 2, More: true}, {N: 2, More: true}}, []admin.Count{keys[0].Followers, keys[1].Followers, keys[2].Followers})
	keys = t.blocked(1, 1)
	require.Len(t, keys, 1)
	assert.Equal(t, k[5], keys[0].Key)
	assert.Len(t, t.blocked(100, 1), 6)
}

// The row that deferred a key can be gone, after a purge: the key waits all the same.
func testKeyBlockGone(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k)
	t.abandonAndBlock(ids[0])
	id := t.messageID(ids[0])
	t.exec("DELETE FROM {t} WHERE id = ?", ids[0])
	keys := t.blocked(10, 10)
	require.Len(t, keys, 1)
	assert.Equal(t, k, keys[0].Key)
	assert.Equal(t, id, keys[0].MessageID)
	assert.Equal(t, "operator", keys[0].Reason)
	assert.Zero(t, keys[0].Until)
	assert.Nil(t, keys[0].LastError)
	assert.Equal(t, admin.Count{N: 1}, keys[0].Followers)
}

// Of 301 blocked keys the one that holds the most rows comes first, whatever its age, and the totals are
// those of all, not of what is listed.
func testMostFollowersFirst(t *table) {
	k := t.keys(301)
	t.add(k...)
	t.exec(`UPDATE {t} SET status = 'abandoned', finished_at = created_at, last_error = '{"class":"permanent"}'`)
	t.exec(`INSERT INTO {t}_key_blocks (target_broker, shard, ordering_key, block_id, block_message_id, reason, since)
		SELECT target_broker, shard, ordering_key, id, message_id, 'operator', created_at FROM {t}`)
	t.exec("UPDATE {t}_key_blocks SET wake_at = ?", t.sql.never)
	const most, few = 300, 100
	behind := make([]string, 0, 50)
	for range 40 {
		behind = append(behind, k[most])
	}
	t.add(append(behind, k[few], k[few], k[7])...)
	for range 10 {
		t.deferRows()
	}
	t.add(k[most]) // which is not deferred
	list, err := t.Store.KeyBlocks(t.Context(), broker, 200, 1000)
	require.NoError(t, err)
	require.Len(t, list.Keys, 200)
	assert.Equal(t, []string{k[most], k[few], k[7]}, []string{list.Keys[0].Key, list.Keys[1].Key, list.Keys[2].Key})
	assert.Equal(t, []int64{41, 2, 1, 0}, []int64{list.Keys[0].Followers.N, list.Keys[1].Followers.N, list.Keys[2].Followers.N, list.Keys[3].Followers.N})
	require.NotNil(t, list.Keys[0].LastError)
	assert.Equal(t, "permanent", list.Keys[0].LastError.Class)
	all := admin.KeyCount{Keys: admin.Count{N: 301}, Rows: admin.Count{N: 44}}
	assert.Equal(t, all, list.Waiting)
	assert.Equal(t, all, list.Blocked)
}

// A row behind an abandoned one says for which message it waits and since when, deferred or not.
func testFollowersNameTheirBlock(t *table) {
	k := t.keys(1)[0]
	ids := t.add(k, k)
	t.abandonAndBlock(ids[0])
	t.blockSince(k, 24*time.Minute)
	check := func(why string) {
		t.Helper()
		records, err := t.Store.Message(t.Context(), t.messageID(ids[1]))
		require.NoError(t, err)
		require.Len(t, records, 1)
		assert.Equal(t, outbox.StateBlocked, records[0].State, why)
		if d := records[0].Deferral; assert.NotNil(t, d, why) {
			assert.Equal(t, t.messageID(ids[0]), d.MessageID, why)
			assert.Equal(t, "operator", d.Reason, why)
			assert.Zero(t, d.Until, why)
			assert.WithinDuration(t, time.Now().Add(-24*time.Minute), d.Since, 5*time.Minute, why)
		}
	}
	check("not deferred")
	require.Equal(t, 1, t.deferRows())
	check("deferred")
}
