package storetest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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

var aheadTests = []test{
	{name: "LikeALargeWindow", run: testAheadLikeALargeWindow},
	{name: "WithinItsBytes", run: testAheadBytes},
}

// ahead looks past so many rows. On SQL Server a claim does not, and finds what its window has.
func ahead(rows int) func(*driver.Claim) { return func(c *driver.Claim) { c.Ahead = rows } }

func (t *table) looksAhead() bool { return t.Store.Dialect() != outbox.SQLServer }

// putOff has rows wait for a while.
func (t *table) putOff(ids ...int64) {
	t.Helper()
	for _, id := range ids {
		t.exec("UPDATE {t} SET locked_until = "+t.sql.minus("created_at", -lease)+" WHERE id = ? AND status = 'pending'", id)
	}
}

// What stays within the bytes of a claim is taken, behind whatever it passes over.
func testAheadBytes(t *table) {
	k := t.keys(3)
	t.putOff(t.addSizes(k[:1], 1000, 1000)...)
	free := t.addSizes(k[1:], 10, 20, 30)
	for _, c := range []struct{ bytes, rows int }{{60, 3}, {59, 2}, {29, 1}, {1, 1}} {
		batch := t.claim(maxBytes(c.bytes), ahead(1000))
		assert.Equal(t, free[:c.rows], taken(batch), "%d bytes", c.bytes)
		assert.Equal(t, c.rows < 3, batch.Cut, "%d bytes", c.bytes)
		require.Zero(t, t.complete(outcome(batch, driver.Outcome{Status: outbox.StatusPending})).Lost)
	}
}

// Of whatever there is, a claim that looks ahead takes what one takes that has it all in its window.
func testAheadLikeALargeWindow(t *table) {
	if !t.looksAhead() {
		t.Skip("a claim does not look ahead on SQL Server")
	}
	keys := t.keys(7)
	loose := t.looseIDs(30)
	t.exec("DELETE FROM {t}")
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(7, seed))
		brokers := [2]string{"large", "ahead"}
		other := func(n int) func(*driver.Claim) { return func(c *driver.Claim) { c.Broker = brokers[n] } }
		ids := [2][]int64{}
		// The same rows for both: what is at a place of one is at that of the other.
		write := func(n int) {
			t.Helper()
			var rows []outbox.Row
			for range n {
				row := newRow(keys[random.IntN(len(keys))])
				if at := len(ids[0]) + len(rows)/2; random.IntN(4) == 0 && at < len(loose) {
					row.OrderingKey, row.MessageID = "", loose[at]
				}
				for _, name := range brokers {
					row.TargetBroker = name
					rows = append(rows, row)
				}
			}
			for i, id := range t.insert(rows...) {
				ids[i%2] = append(ids[i%2], id)
			}
		}
		// Some rows of each kind: claimed, failed, put off, crashed, deferred.
		some := func(f func(broker int)) {
			for n := range brokers {
				f(n)
			}
		}
		write(10 + random.IntN(20))
		for range 1 + random.IntN(3) {
			most, fails := 1+random.IntN(6), random.IntN(4)
			some(func(n int) {
				batch := t.claim(other(n), limit(most))
				switch {
				case len(batch.Messages) == 0:
				case fails == 0:
					t.complete(retryLater(batch, batch.Messages[0].ID))
				case fails == 2: // the first one is given back, before the others of its key
					t.complete(&driver.Completion{Lease: batch.Lease, Other: []driver.Outcome{{ID: batch.Messages[0].ID, Status: outbox.StatusPending}}})
				case fails == 1:
					for _, id := range taken(batch) {
						t.endsIn(id, "locked_until", -time.Second)
					}
				}
			})
		}
		waits := random.IntN(len(ids[0]))
		some(func(n int) { t.putOff(ids[n][waits]) })
		if random.IntN(2) == 0 {
			some(func(n int) { t.deferRows(other(n), limit(5), window(5)) })
		}
		write(10 + random.IntN(20))
		waits = random.IntN(len(ids[0]))
		some(func(n int) { t.putOff(ids[n][waits]) })

		for most := 1; most <= 64; most *= 4 {
			var places [2][]int
			some(func(n int) {
				batch := t.claim(other(n), limit(most), window(1000), func(c *driver.Claim) { c.Ahead = n * 1000 })
				for _, id := range taken(batch) {
					for place := range ids[n] {
						if ids[n][place] == id {
							places[n] = append(places[n], place)
						}
					}
				}
				assert.Len(t, places[n], len(batch.Messages))
			})
			require.Equal(t, places[0], places[1], "seed %d, at most %d", seed, most)
		}
		t.exec("DELETE FROM {t}")
		t.exec("DELETE FROM {t}_key_blocks")
	}
}
