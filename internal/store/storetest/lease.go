package storetest

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
)

var leaseTests = []test{
	{name: "RenewExtends", run: testRenew},
	{name: "RenewOfAPart", run: testRenewPart},
	{name: "RenewAfterTakeover", run: testRenewLost},
	{name: "NothingIsClaimedEarly", run: testNotEarly},
}

var readyTests = []test{
	{name: "NamesTheShards", run: testReady},
	{name: "OfOneBroker", run: testReadyBroker},
}

func (t *table) renew(l driver.Lease) int {
	t.Helper()
	kept, err := t.Store.Renew(t.Context(), l)
	require.NoError(t, err)
	return kept
}

func testRenew(t *table) {
	ids := t.add(t.keys(2)...)
	batch := t.claim(func(c *driver.Claim) { c.Lease = time.Minute })
	batch.Lease.Duration = lease
	assert.Equal(t, 2, t.renew(batch.Lease))
	for _, id := range ids {
		assert.InDelta(t, lease.Seconds(), t.state(id).LockedFor.Seconds(), 60, "from now on")
	}
	t.age(ids[0], "locked_until", 2*time.Minute)
	assert.Empty(t, t.claim().Messages)
	t.publish(batch)
	assert.Zero(t, t.renew(batch.Lease), "nothing is left to renew")
	assert.Zero(t, t.state(ids[0]).LockedFor)
}

func testRenewPart(t *table) {
	ids := t.add(t.keys(3)...)
	batch := t.claim()
	require.Zero(t, t.complete(&driver.Completion{Lease: batch.Lease, Published: []driver.Delivered{{ID: ids[1]}}}).Lost)
	assert.Equal(t, 2, t.renew(batch.Lease))
	wrong := batch.Lease
	wrong.Token = uuid.New()
	assert.Zero(t, t.renew(wrong))
}

func testRenewLost(t *table) {
	ids := t.add(t.keys(2)...)
	batch := t.claim()
	t.expire(ids[0])
	owner := t.claimBy(t.another())
	require.Equal(t, ids[:1], taken(owner))
	before := t.state(ids[0])
	assert.Equal(t, 1, t.renew(batch.Lease), "the row that was taken over counts no more")
	after := t.state(ids[0])
	assert.InDelta(t, before.LockedFor.Seconds(), after.LockedFor.Seconds(), 30)
	assert.Equal(t, owner.Lease.Token.String(), after.Token)
	t.expire(ids[1])
	require.Equal(t, ids[1:], taken(t.claim()))
	assert.Zero(t, t.renew(batch.Lease))
}

// A lease, a backoff and a schedule last until their end by the database's clock: no other process
// has the row in their last tenths of a second, and every process can when they are over.
func testNotEarly(t *table) {
	key := t.keys(1)[0]
	for what, times := range map[string]struct {
		column string
		begin  func() int64 // makes a row that waits, and returns its id
	}{
		"lease": {"locked_until", func() int64 {
			id := t.add(key)[0]
			require.Equal(t, []int64{id}, taken(t.claim()))
			return id
		}},
		"backoff": {"locked_until", func() int64 {
			id := t.add(key)[0]
			require.Zero(t, t.complete(retryLater(t.claim(), id)).Lost)
			return id
		}},
		"schedule": {"available_at", func() int64 {
			row := newRow(key)
			row.AvailableAt = time.Now().Add(lease)
			return t.insert(row)[0]
		}},
	} {
		admits := map[string]bool{"claim that brings rows back": true, "poll": true}
		for way, look := range map[string]func() int{
			"claim":                       func() int { return len(t.claim().Messages) },
			"claim with a larger window":  func() int { return len(t.claim(limit(1), window(50)).Messages) },
			"claim of another process":    func() int { return len(t.claimBy(t.another()).Messages) },
			"claim that brings rows back": func() int { return len(t.claim(wake).Messages) },
			"claim without order":         func() int { return len(t.claim(unordered).Messages) },
			"poll":                        func() int { return len(t.ready()) },
		} {
			if times.column == "available_at" && !admits[way] {
				continue
			}
			assert.Zero(t, t.early(times.column, times.begin, look), "%s, before the end of a %s", way, what)
			id := times.begin()
			t.endsIn(id, times.column, -time.Millisecond)
			assert.Equal(t, 1, look(), "%s, after the end of a %s", way, what)
			t.exec("DELETE FROM {t}")
		}
	}
}

// early returns what look finds shortly before the time of a row has come. Where the machine takes
// longer for that than there is time left, it says nothing, and is done again with more.
func (t *table) early(column string, begin func() int64, look func() int) int {
	t.Helper()
	for left := 100 * time.Millisecond; ; left = min(2*left, 900*time.Millisecond) {
		id := begin()
		began := time.Now()
		t.endsIn(id, column, left)
		found := look()
		inTime := time.Since(began) < left
		t.exec("DELETE FROM {t}")
		if inTime {
			return found
		}
	}
}

// endsIn moves a time of a row to that far from now, by the database's clock.
func (t *table) endsIn(id int64, column string, left time.Duration) {
	t.Helper()
	t.age(id, column, micros(t.number("SELECT "+t.sql.fromNow(column)+" FROM {t} WHERE id = ?", id))-left)
}

func (t *table) ready() []int {
	t.Helper()
	ready, err := t.Store.Ready(t.Context(), broker, 0)
	require.NoError(t, err)
	assert.False(t, ready.Paused)
	return ready.Shards
}

func testReady(t *table) {
	assert.Empty(t, t.ready())
	key := t.keys(1)[0]
	id := t.add(key)[0]
	mine := []int{t.shard}
	assert.Equal(t, mine, t.ready())
	require.Len(t, t.claim().Messages, 1)
	assert.Empty(t, t.ready(), "leased")
	t.expire(id)
	assert.Equal(t, mine, t.ready(), "a lease that ran out")
	batch := t.claim()
	require.Zero(t, t.complete(retryLater(batch, id)).Lost)
	assert.Empty(t, t.ready(), "backing off")
	t.age(id, "locked_until", time.Hour)
	assert.Equal(t, mine, t.ready())
	t.publish(t.claim())
	assert.Empty(t, t.ready(), "finished")

	later := newRow(key)
	later.AvailableAt = time.Now().Add(time.Hour)
	id = t.insert(later)[0]
	assert.Empty(t, t.ready(), "not yet")
	t.age(id, "available_at", 2*time.Hour)
	assert.Equal(t, mine, t.ready())

	seen := map[int]bool{}
	for len(seen) < t.Store.Shards() {
		seen[t.shardOf(t.add("key-" + uuid.NewString())[0])] = true
	}
	all := make([]int, t.Store.Shards())
	for shard := range all {
		all[shard] = shard
	}
	assert.Equal(t, all, t.ready())

	// What the caller leaves out may be missing, and nothing else is.
	for shard := range all {
		others := slices.DeleteFunc(slices.Clone(all), func(other int) bool { return other == shard })
		ready, err := t.Store.Ready(t.Context(), broker, wakeup.SetOf(shard))
		require.NoError(t, err)
		assert.Subset(t, ready.Shards, others)
		ready, err = t.Store.Ready(t.Context(), broker, wakeup.SetOf(others...))
		require.NoError(t, err)
		assert.Contains(t, ready.Shards, shard)
	}
}

func testReadyBroker(t *table) {
	row := newRow("key")
	row.TargetBroker = "another"
	t.insert(row)
	assert.Empty(t, t.ready())
	ready, err := t.Store.Ready(t.Context(), "another", 0)
	require.NoError(t, err)
	assert.Len(t, ready.Shards, 1)
}
