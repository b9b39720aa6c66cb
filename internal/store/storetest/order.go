package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

var orderTests = []test{
	{name: "HeldByBackoff", run: testHeldByBackoff},
	{name: "CommittedLate", run: testCommittedLate},
	{name: "WindowFullOfHeldRows", run: testWindow},
	{name: "KeysDifferByCase", run: testKeysByCase},
}

// retryLater fails the given rows of a batch and publishes the others.
func retryLater(b driver.Batch, failed ...int64) *driver.Completion {
	s := &driver.Completion{Lease: b.Lease}
next:
	for i := range b.Messages {
		for _, id := range failed {
			if b.Messages[i].ID == id {
				s.Other = append(s.Other, driver.Outcome{ID: id, Status: outbox.StatusFailed, Delay: time.Minute, Spent: true, LastError: `{"class":"retryable"}`})
				continue next
			}
		}
		s.Published = append(s.Published, driver.Delivered{ID: b.Messages[i].ID})
	}
	return s
}

func testHeldByBackoff(t *table) {
	k := t.keys(2)
	ids := t.add(k[0], k[1])
	require.Zero(t, t.complete(retryLater(t.claim(), ids[0])).Lost)
	more := t.add(k[0], k[1], k[0])
	assert.Equal(t, []int64{more[1]}, taken(t.claim()), "only the key of the failed head waits")
	t.age(ids[0], "locked_until", 2*time.Minute)
	assert.Equal(t, []int64{ids[0], more[0], more[2]}, taken(t.claim()))
}

// A transaction that commits late makes rows visible whose ids are below those of rows that are out
// already.
func testCommittedLate(t *table) {
	if t.OneWriter {
		t.Skip("writers take turns on this database: ids become visible in order")
	}
	k := t.keys(2)
	early := newRow(k[0])
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	require.NoError(t, err)
	tx, err := t.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, inserter.Insert(t.Context(), tx, []outbox.Row{early}))
	late := t.add2(k[1])
	batch := t.claim()
	require.Equal(t, late, taken(batch))
	t.publish(batch)
	require.NoError(t, tx.Commit())
	batch = t.claim()
	require.Len(t, batch.Messages, 1)
	assert.Equal(t, early.MessageID.String(), batch.Messages[0].MessageID)
	assert.Less(t, batch.Messages[0].ID, late[0])
}

// add2 is add while another transaction has rows in flight.
func (t *table) add2(key string) []int64 {
	t.Helper()
	row := newRow(key)
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	require.NoError(t, err)
	require.NoError(t, inserter.Insert(t.Context(), t.DB, []outbox.Row{row}))
	if t.Store.Dialect() == outbox.SQLServer { // readers that use locks would wait for the row in flight
		return t.ids("SELECT id FROM {t} WITH (READPAST) WHERE ordering_key = ? AND target_broker = ?", key, broker)
	}
	return t.ids("SELECT id FROM {t} WHERE ordering_key = ? AND target_broker = ?", key, broker)
}

// The window says how far a claim looks. Filled by rows that must wait it takes nothing, and says
// so.
func testWindow(t *table) {
	k := t.keys(2)
	head := t.add(k[0])
	require.Zero(t, t.complete(retryLater(t.claim(), head...)).Lost)
	t.add(k[0], k[0], k[0])
	behind := t.add(k[1])
	batch := t.claim(limit(2), window(4))
	assert.Empty(t, batch.Messages)
	assert.Equal(t, 4, batch.Seen)
	batch = t.claim(limit(2), window(5))
	assert.Equal(t, behind, taken(batch))
	assert.Equal(t, 5, batch.Seen)
	batch = t.claim(limit(2), window(100))
	assert.Empty(t, batch.Messages)
	assert.Equal(t, 5, batch.Seen)

	t.exec("UPDATE {t} SET locked_until = " + t.sql.minus("created_at", -time.Hour) + " WHERE status = 'pending'")
	batch = t.claim(limit(2), window(3))
	assert.Empty(t, batch.Messages)
	assert.Equal(t, 3, batch.Seen, "also where nothing at all is ready")
}

func testKeysByCase(t *table) {
	var keys []string
	var heads []int64
	for n := 0; ; n++ { // look for three keys of one shard
		keys = []string{fmt.Sprintf("key%d", n), fmt.Sprintf("KEY%d", n), fmt.Sprintf("key%d ", n)}
		heads = t.add(keys...)
		t.shard = t.shardOf(heads[0])
		if t.shardOf(heads[1]) == t.shard && t.shardOf(heads[2]) == t.shard {
			break
		}
		t.exec("DELETE FROM {t}")
	}
	require.Zero(t, t.complete(retryLater(t.claim(), heads[0])).Lost)
	followers := t.add(keys...)
	assert.Equal(t, followers[1:], taken(t.claim()), "keys are compared exactly")
}
