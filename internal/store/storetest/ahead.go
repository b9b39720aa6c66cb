package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

var aheadTests = []test{
	{name: "LikeALargeWindow", run: testAheadLikeALargeWindow},
	{name: "WithinItsBytes", run: testAheadBytes},
}

// ahead looks past so many rows. On SQL Server a claim does not, and finds what its window has.
func ahead(rows int) func(*driver.Claim) { return func(c *driver.Claim) { c.Ahead = rows } }

func (t *table) looksAhead() bool { return t.Store.Dialect() != outbox.SQLServer }

// schedule has rows wait for a while.
func (t *table) schedule(ids ...int64) {
	t.Helper()
	for _, id := range ids {
		t.exec("UPDATE {t} SET available_at = "+t.sql.minus("created_at", -lease)+" WHERE id = ?", id)
	}
}

// What stays within the bytes of a claim is taken, behind whatever it passes over.
func testAheadBytes(t *table) {
	k := t.keys(3)
	t.schedule(t.addSizes(k[:1], 1000, 1000)...)
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
	for seed := range uint64(20) {
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
		// Some rows of each kind: claimed, failed, scheduled, crashed, deferred.
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
		some(func(n int) { t.schedule(ids[n][waits]) })
		if random.IntN(2) == 0 {
			some(func(n int) { t.deferRows(other(n), limit(5), window(5)) })
		}
		write(10 + random.IntN(20))
		waits = random.IntN(len(ids[0]))
		some(func(n int) {
			t.exec("UPDATE {t} SET available_at = "+t.sql.minus("created_at", -lease)+" WHERE id = ? AND status = 'pending'", ids[n][waits])
		})

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
