package storetest

import (
	"bytes"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/driver"
)

var bytesTests = []test{
	{name: "ExactlyTheBytes", run: testExactBytes},
	{name: "OneRowInAnyCase", run: testOneRow},
	{name: "ALargeFirstRowComesAlone", run: testLargeFirst},
	{name: "TheLimitOfRowsStands", run: testBytesAndLimit},
	{name: "KeysKeepPrefixes", run: testBytesPrefixes},
	{name: "NeighboursBehindALargeRow", run: testBytesNeighbours},
	{name: "HeldRowsWeighNothing", run: testBytesHeld},
	{name: "CrashIsolation", run: testBytesCrashIsolation},
	{name: "OutOfLine", run: testBytesOutOfLine},
}

// addSizes writes a row for each size, with the keys in turn, and returns their ids.
func (t *table) addSizes(keys []string, sizes ...int) []int64 {
	t.Helper()
	rows := make([]outbox.Row, len(sizes))
	for i, size := range sizes {
		rows[i] = newRow(keys[i%len(keys)])
		rows[i].Payload = bytes.Repeat([]byte{'x'}, size)
	}
	return t.insert(rows...)
}

func maxBytes(n int) func(*driver.Claim) { return func(c *driver.Claim) { c.Bytes = n } }

// inBothModes runs a test with order on and off; order is a change for claims.
func (t *table) inBothModes(f func(name string, order func(*driver.Claim))) {
	f("ordered", func(*driver.Claim) {})
	t.exec("DELETE FROM {t}")
	f("unordered", unordered)
}

// To the byte: what fits is taken, and no row beyond.
func testExactBytes(t *table) {
	keys := t.keys(2)
	t.inBothModes(func(name string, order func(*driver.Claim)) {
		ids := t.addSizes(keys, 10, 20, 30, 40)
		for _, c := range []struct{ bytes, rows int }{{0, 4}, {101, 4}, {100, 4}, {99, 3}, {60, 3}, {59, 2}, {31, 2}, {30, 2}, {29, 1}} {
			batch := t.claim(maxBytes(c.bytes), order)
			assert.Equal(t, ids[:c.rows], taken(batch), "%s, %d bytes", name, c.bytes)
			assert.Equal(t, c.rows < 4, batch.Cut, "%s, %d bytes", name, c.bytes)
			assert.Equal(t, 4, batch.Seen, "%s, %d bytes", name, c.bytes)
			for _, id := range ids[c.rows:] {
				assert.Equal(t, state{Status: "pending"}, t.state(id), "%s, %d bytes", name, c.bytes)
			}
			require.Zero(t, t.complete(outcome(batch, driver.Outcome{Status: outbox.StatusPending})).Lost)
		}
	})
}

// A row larger than the bytes is claimed all the same, by itself, and so is the next one.
func testOneRow(t *table) {
	keys := t.keys(1)
	t.inBothModes(func(name string, order func(*driver.Claim)) {
		ids := t.addSizes(keys, 10, 20, 30)
		for i, id := range ids {
			batch := t.claim(maxBytes(1), order)
			assert.Equal(t, []int64{id}, taken(batch), name)
			assert.Equal(t, i < 2, batch.Cut, name)
			assert.Equal(t, id, batch.Lease.FirstID)
			assert.Equal(t, id, batch.Lease.LastID)
			t.publish(batch)
		}
	})
}

// Rows that weigh nothing before a large one do not make the large one the first.
func testLargeFirst(t *table) {
	keys := t.keys(1)
	t.inBothModes(func(name string, order func(*driver.Claim)) {
		ids := t.addSizes(keys, 0, 50, 0, 50)
		assert.Equal(t, ids[:1], taken(t.claim(maxBytes(49), order)), name)
		t.exec("DELETE FROM {t} WHERE id = ?", ids[0])
		assert.Equal(t, ids[1:2], taken(t.claim(maxBytes(49), order)), "%s: nothing behind a row that is too large", name)
	})
}

// Rows count by their number, too; a batch that is full of rows was not cut.
func testBytesAndLimit(t *table) {
	keys := t.keys(3)
	t.inBothModes(func(name string, order func(*driver.Claim)) {
		ids := t.addSizes(keys, 10, 10, 10, 10)
		batch := t.claim(limit(2), window(4), maxBytes(20), order)
		assert.Equal(t, ids[:2], taken(batch), name)
		assert.False(t, batch.Cut, "%s: all that the limit allows", name)
		t.publish(batch)
		batch = t.claim(limit(2), window(4), maxBytes(19), order)
		assert.Equal(t, ids[2:3], taken(batch), name)
		assert.True(t, batch.Cut, name)
	})
}

// Claim after claim, each key goes out without a gap and in order, whatever the sizes are.
func testBytesPrefixes(t *table) {
	keys := t.keys(3)
	ids := t.addSizes(keys, 5, 90, 5, 5, 5, 70, 40, 5, 5, 30, 1, 5, 5, 5, 80)
	var got []int64
	for range ids {
		batch := t.claim(maxBytes(50))
		if len(batch.Messages) == 0 {
			break
		}
		size := 0
		for i := range batch.Messages {
			size += len(batch.Messages[i].Payload)
		}
		assert.True(t, size <= 50 || len(batch.Messages) == 1, "%d rows with %d bytes", len(batch.Messages), size)
		got = append(got, taken(batch)...)
		t.publish(batch)
	}
	assert.Equal(t, ids, got)
}

// While a key is in other hands, the rows of the others are cut as a prefix of what remains: a
// small row does not overtake the large one before it, not even one of another key.
func testBytesNeighbours(t *table) {
	keys := t.keys(3)
	held := t.addSizes(keys[:1], 10)
	require.Equal(t, held, taken(t.claim()))
	ids := t.addSizes(keys, 1000, 20, 60, 1000, 5, 5)
	batch := t.claim(maxBytes(50))
	assert.Equal(t, ids[1:2], taken(batch))
	assert.True(t, batch.Cut)
	t.publish(batch)
	batch = t.claim(maxBytes(70))
	assert.Equal(t, []int64{ids[2], ids[4], ids[5]}, taken(batch))
	assert.False(t, batch.Cut, "what is held has no part in it")
}

// What cannot be claimed does not use up the bytes.
func testBytesHeld(t *table) {
	keys := t.keys(2)
	row := newRow(keys[0])
	row.Payload = bytes.Repeat([]byte{'x'}, 1000)
	first := t.insert(row)[0]
	batch := t.claim()
	require.Equal(t, []int64{first}, taken(batch))
	ids := t.addSizes(keys[1:], 10, 10)
	for _, order := range []func(*driver.Claim){func(*driver.Claim) {}, unordered} {
		batch := t.claim(maxBytes(20), order)
		assert.Equal(t, ids, taken(batch))
		assert.False(t, batch.Cut)
		require.Zero(t, t.complete(outcome(batch, driver.Outcome{Status: outbox.StatusPending})).Lost)
	}
}

// A row that may have killed its process is claimed apart from others, and fewer rows at a time, as
// without bytes; and a row that comes alone because of its size alone is as alone as any other.
func testBytesCrashIsolation(t *table) {
	keys := t.keys(4)
	t.inBothModes(func(name string, order func(*driver.Claim)) {
		ids := t.addSizes(keys, 10, 10, 10, 10)
		require.Equal(t, ids, taken(t.claim(order)), name)
		t.expire(ids...)
		fresh := t.addSizes(keys, 1)
		batch := t.claim(limit(8), maxBytes(25), order)
		assert.Equal(t, ids[:2], taken(batch), "%s: those of a crash alone, and no more bytes", name)
		assert.True(t, batch.Cut, name)
		for i := range batch.Messages {
			assert.Equal(t, 1, batch.Messages[i].Crashes, name)
		}
		t.publish(batch)
		batch = t.claim(limit(2), maxBytes(25), order)
		assert.Equal(t, ids[2:3], taken(batch), "%s: half the limit", name)
		assert.False(t, batch.Cut, "%s: no more was chosen", name)
		t.publish(batch)
		batch = t.claim(limit(8), maxBytes(5), order)
		assert.Equal(t, ids[3:], taken(batch), name)
		t.expire(ids[3])
		attempts := t.state(ids[3]).Attempts
		batch = t.claim(limit(8), maxBytes(5), order)
		require.Equal(t, ids[3:], taken(batch), name)
		assert.Equal(t, attempts+1, batch.Messages[0].Attempts, "%s: it was alone, and is charged", name)
		t.publish(batch)
		assert.Equal(t, fresh, taken(t.claim(maxBytes(5), order)), name)
	})
}

// Payloads that the database keeps apart from the row, or packs, count as what they are.
func testBytesOutOfLine(t *table) {
	const size = 100_000
	keys := t.keys(2)
	t.inBothModes(func(name string, order func(*driver.Claim)) {
		ids := t.addSizes(keys, slices.Repeat([]int{size}, 4)...)
		batch := t.claim(maxBytes(3*size-1), order)
		assert.Equal(t, ids[:2], taken(batch), name)
		assert.True(t, batch.Cut, name)
		t.publish(batch)
		batch = t.claim(maxBytes(2*size), order)
		assert.Equal(t, ids[2:], taken(batch), name)
		assert.False(t, batch.Cut, name)
	})
}
