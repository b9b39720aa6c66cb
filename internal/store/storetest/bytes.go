package storetest

import (
	"bytes"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

var bytesTests = []test{
	{name: "ExactlyTheBytes", run: testExactBytes},
	{name: "OneRowInAnyCase", run: testOneRow},
	{name: "HeadersCount", run: testBytesOfHeaders},
	{name: "OutOfLine", run: testBytesOutOfLine},
	{name: "TooLargeToRead", run: testUnread},
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

// Headers count as payloads do, as the database stores them.
func testBytesOfHeaders(t *table) {
	keys := t.keys(2)
	headers := `{"name":"välue"}`
	size := len(headers)
	if t.Store.Dialect() == outbox.SQLServer { // UTF-16
		size = 2 * (len(headers) - 1)
	}
	t.inBothModes(func(name string, order func(*driver.Claim)) {
		rows := []outbox.Row{newRow(keys[0]), newRow(keys[1]), newRow(keys[0])}
		for i := range rows[:2] {
			rows[i].Headers = headers
		}
		ids := t.insert(rows...)
		whole := 2*size + 3*len(rows[0].Payload)
		for _, c := range []struct{ bytes, rows int }{{whole, 3}, {whole - 1, 2}, {whole - len(rows[2].Payload) - 1, 1}} {
			batch := t.claim(maxBytes(c.bytes), order)
			assert.Equal(t, ids[:c.rows], taken(batch), "%s, %d bytes", name, c.bytes)
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

// A payload beyond the bound is claimed with its row, and not read; those beside it are.
func testUnread(t *table) {
	const most = 100_000
	sizes := []int{most, 1, most + 1, 0, 3 * most}
	bound := func(c *driver.Claim) { c.MaxPayload = most }
	keys := t.keys(len(sizes))
	t.inBothModes(func(name string, order func(*driver.Claim)) {
		ids := t.addSizes(keys, sizes...)
		read := func(batch driver.Batch) {
			t.Helper()
			for _, m := range batch.Messages {
				want := driver.Message{Payload: bytes.Repeat([]byte{'x'}, sizes[slices.Index(ids, m.ID)])}
				if len(want.Payload) > most {
					want.Payload, want.Unread = []byte{}, int64(len(want.Payload))
				}
				assert.Equal(t, want.Unread, m.Unread, name)
				assert.Len(t, m.Payload, len(want.Payload), name)
				assert.True(t, bytes.Equal(want.Payload, m.Payload), name)
				assert.Equal(t, "ordering::order", m.Stream, name)
			}
		}
		batch := t.claim(bound, order)
		require.Equal(t, ids, taken(batch), name)
		read(batch)
		require.Zero(t, t.complete(outcome(batch, driver.Outcome{Status: outbox.StatusPending})).Lost)

		// And where it has to be decided which rows are taken, as one's lease has run out.
		require.Equal(t, ids[:1], taken(t.claim(limit(1), order)), name)
		t.expire(ids[0])
		for range sizes {
			if batch = t.claim(bound, order); len(batch.Messages) > 0 {
				read(batch)
				t.publish(batch)
			}
		}
		assert.Equal(t, int64(len(sizes)), t.number("SELECT count(*) FROM {t} WHERE status = 'published'"), name)
	})
}
