package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

var claimTests = []test{
	{name: "LimitIsNeverExceeded", run: testLimit},
	{name: "MarksTheRow", run: testClaimMarks},
	{name: "FreshToken", run: testFreshToken},
	{name: "OtherBrokersAndShardsUntouched", run: testOtherBrokers},
	{name: "Expired", run: testExpired},
	{name: "LockedRowsArePassedOver", run: testLockedRows},
	{name: "Busy", run: testBusy},
	{name: "NoRequest", run: testNoRequest},
	{name: "CancelledContext", run: testCancelled},
}

func testLimit(t *table) {
	for name, change := range map[string]func(*driver.Claim){"ordered": limit(3), "unordered": func(c *driver.Claim) { limit(3)(c); c.Unordered = true }} {
		key := t.keys(1)[0]
		ids := append(t.add(key, key), t.addLoose(3)...)
		var got []int64
		for _, want := range []int{3, 2, 0} {
			batch := t.claim(change)
			assert.Len(t, batch.Messages, want, name)
			got = append(got, taken(batch)...)
			if want > 0 {
				assert.Equal(t, batch.Messages[0].ID, batch.Lease.FirstID)
				assert.Equal(t, batch.Messages[want-1].ID, batch.Lease.LastID)
			}
			t.publish(batch)
		}
		assert.Equal(t, ids, got, name)
	}
}

func testClaimMarks(t *table) {
	for _, isUnordered := range []bool{false, true} {
		id := t.add(t.keys(1)...)[0]
		batch := t.claim(func(c *driver.Claim) { c.Unordered, c.Worker = isUnordered, "host/1/w" })
		require.Equal(t, []int64{id}, taken(batch))
		s := t.state(id)
		assert.InDelta(t, lease.Seconds(), s.LockedFor.Seconds(), 60, "by the database's clock")
		s.LockedFor = 0
		assert.Equal(t, state{Status: "processing", Token: batch.Lease.Token.String(), Worker: "host/1/w"}, s)
		assert.Equal(t, driver.Lease{
			Broker: broker, Shard: t.shard, Token: batch.Lease.Token, FirstID: id, LastID: id, Duration: lease,
		}, batch.Lease)
		t.publish(batch)
	}
}

func testFreshToken(t *table) {
	t.add(t.keys(5)...)
	tokens := map[uuid.UUID]bool{}
	for range 5 {
		batch := t.claim(limit(1))
		require.Len(t, batch.Messages, 1)
		assert.NotEqual(t, uuid.Nil, batch.Lease.Token)
		assert.False(t, tokens[batch.Lease.Token], "a token is used once")
		tokens[batch.Lease.Token] = true
	}
}

func testOtherBrokers(t *table) {
	key := t.keys(1)[0]
	mine := t.add(key)
	row := newRow(key)
	row.TargetBroker = broker + "2"
	other := t.insert(row)[0]
	longer := newRow(key)
	longer.TargetBroker = "Broker" // names differ by case, too
	upper := t.insert(longer)[0]
	elsewhere := int64(0)
	if t.Store.Shards() > 1 {
		for elsewhere == 0 {
			if id := t.add("elsewhere-" + uuid.NewString())[0]; t.shardOf(id) != t.shard {
				elsewhere = id
			} else {
				t.exec("DELETE FROM {t} WHERE id = ?", id)
			}
		}
	}
	for _, change := range []func(*driver.Claim){limit(10), unordered} {
		batch := t.claim(change)
		require.Equal(t, mine, taken(batch))
		require.Zero(t, t.complete(outcome(batch, driver.Outcome{Status: outbox.StatusPending})).Lost)
		for _, id := range []int64{other, upper, elsewhere} {
			if id > 0 {
				assert.Equal(t, state{Status: "pending"}, t.state(id))
			}
		}
	}
	if elsewhere > 0 {
		t.shard = t.shardOf(elsewhere)
		assert.Equal(t, []int64{elsewhere}, taken(t.claim()))
	}
}

// The TTL is judged by the database's clock at the claim; what to do about it is the processor's
// business.
func testExpired(t *table) {
	keys := t.keys(4)
	rows := []outbox.Row{newRow(keys[0]), newRow(keys[1]), newRow(keys[2]), newRow(keys[3])}
	rows[0].ExpiresAt = time.Now().Add(time.Hour)
	rows[1].ExpiresAt = time.Now().Add(time.Hour)
	rows[3].ExpiresAt = time.Now().AddDate(1000, 0, 0)
	ids := t.insert(rows...)
	t.age(ids[1], "expires_at", 2*time.Hour)
	batch := t.claim()
	require.Equal(t, ids, taken(batch))
	left := batch.Messages[0].ExpiresIn
	assert.True(t, left > 50*time.Minute && left < 70*time.Minute, "%s", left)
	assert.Negative(t, batch.Messages[1].ExpiresIn)
	assert.Zero(t, batch.Messages[2].ExpiresIn, "without a TTL")
	assert.Zero(t, batch.Messages[3].ExpiresIn, "in a thousand years")
}

// Without order, rows that another transaction is changing at this moment are no reason to wait.
func testLockedRows(t *table) {
	if t.OneWriter {
		t.Skip("writers take turns on this database")
	}
	ids := t.add(t.keys(3)...)
	tx, err := t.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), t.render("UPDATE {t} SET priority = 1 WHERE id = ?"), ids[1])
	require.NoError(t, err)
	assert.Equal(t, []int64{ids[0], ids[2]}, taken(t.claim(unordered)))
	require.NoError(t, tx.Rollback())
	assert.Equal(t, ids[1:2], taken(t.claim(unordered)))
}

func testBusy(t *table) {
	if t.HoldShard == nil {
		t.Skip("a claim on this database waits for its turn")
	}
	id := t.add(t.keys(1)...)[0]
	release := t.HoldShard(t.T, broker, t.shard)
	batch := t.claim()
	assert.True(t, batch.Busy)
	assert.Empty(t, batch.Messages)
	assert.Equal(t, []int64{id}, taken(t.claim(unordered)), "without order there is no lock")
	t.expire(id)
	release()
	batch = t.claim()
	assert.False(t, batch.Busy)
	assert.Equal(t, []int64{id}, taken(batch))
}

func testNoRequest(t *table) {
	result, err := t.Store.Exchange(t.Context(), nil, nil)
	require.NoError(t, err)
	assert.Equal(t, driver.Exchanged{}, result)

	result, err = t.Store.Exchange(t.Context(), &driver.Completion{}, nil)
	require.NoError(t, err)
	assert.Equal(t, driver.Exchanged{Completed: &driver.Completed{}}, result, "an empty completion succeeds")
}

// A context that has ended leaves no lock and no transaction behind.
func testCancelled(t *table) {
	id := t.add(t.keys(1)...)[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := t.Store.Exchange(ctx, nil, t.request())
	require.Error(t, err)
	_, err = t.Store.Renew(ctx, driver.Lease{Broker: broker, Shard: t.shard, Token: uuid.New(), Duration: lease})
	require.Error(t, err)
	_, err = t.Store.Ready(ctx, broker, 0)
	require.Error(t, err)
	assert.Equal(t, []int64{id}, taken(t.claim()))
}

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
