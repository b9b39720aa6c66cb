package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

var purgeTests = []test{
	{name: "StatusAndRetention", run: testPurge},
	{name: "Limit", run: testPurgeLimit},
	{name: "LockedRows", run: testPurgeLocked},
	{name: "BlockedKeys", run: testPurgeBlocked},
	{name: "WrongStatus", run: testPurgeWrong},
	{name: "RequeuedMeanwhile", run: testPurgeRequeued},
	{name: "WhileClaimsRun", run: testPurgeRace, concurrent: true},
	{name: "FinishedBrokers", run: testFinishedBrokers},
	{name: "Exclusive", run: testExclusive},
}

func (t *table) purge(status outbox.Status, retention time.Duration, limit int) int {
	t.Helper()
	removed, err := t.Store.Purge(t.Context(), admin.PurgeRequest{Status: status, Retention: retention, Limit: limit, Broker: broker})
	require.NoError(t, err)
	return removed
}

// finish writes rows that are finished: half of them published, half abandoned.
func (t *table) finish(n int) (publishedIDs, abandonedIDs []int64) {
	t.Helper()
	t.keys(1)
	ids := t.addLoose(2 * n)
	batch := t.claim(limit(len(ids)))
	require.Equal(t, ids, taken(batch))
	s := published(batch)
	s.Published = s.Published[:n]
	for _, id := range ids[n:] {
		s.Other = append(s.Other, driver.Outcome{ID: id, Status: outbox.StatusAbandoned, Spent: true})
	}
	require.Zero(t, t.complete(s).Lost)
	return ids[:n], ids[n:]
}

// ageFinished makes a row to have been finished earlier.
func (t *table) ageFinished(id int64, by time.Duration) {
	t.Helper()
	t.exec("UPDATE {t} SET finished_at = "+t.sql.minus("finished_at", by)+", published_at = "+t.sql.minus("published_at", by)+" WHERE id = ?", id)
}

func testPurge(t *table) {
	done, dead := t.finish(3)
	open := t.add("key", "key")
	t.ageFinished(done[0], 2*time.Hour)
	t.ageFinished(done[1], 2*time.Hour)
	t.ageFinished(dead[0], 2*time.Hour)
	for _, id := range open { // their age does not matter
		t.age(id, "created_at", 1000*time.Hour)
	}
	assert.Zero(t, t.purge(outbox.StatusPublished, 3*time.Hour, 100))
	assert.Equal(t, 2, t.purge(outbox.StatusPublished, time.Hour, 100))
	assert.Zero(t, t.purge(outbox.StatusPublished, time.Hour, 100))
	assert.Equal(t, 1, t.purge(outbox.StatusAbandoned, time.Hour, 100))
	assert.Equal(t, append([]int64{done[2], dead[1], dead[2]}, open...), t.ids("SELECT id FROM {t} ORDER BY id"))
	assert.Equal(t, 1, t.purge(outbox.StatusPublished, 0, 100), "no retention: all that is finished")
}

func testPurgeLimit(t *table) {
	done, _ := t.finish(5)
	for n, id := range done {
		t.ageFinished(id, time.Duration(10-n)*time.Hour)
	}
	assert.Equal(t, 2, t.purge(outbox.StatusPublished, time.Hour, 2))
	assert.Equal(t, done[2:], t.ids("SELECT id FROM {t} WHERE status = 'published' ORDER BY id"), "the oldest first")
	assert.Equal(t, 2, t.purge(outbox.StatusPublished, time.Hour, 2))
	assert.Equal(t, 1, t.purge(outbox.StatusPublished, time.Hour, 2))
}

// A row that another session has locked is left for the next time, and the others go.
func testPurgeLocked(t *table) {
	t.oneHolds()
	done, dead := t.finish(2)
	session := t.outsider()
	session.scrub(done[0])
	session.scrub(dead[1])
	assert.Equal(t, 1, t.purge(outbox.StatusPublished, 0, 100))
	assert.Equal(t, 1, t.purge(outbox.StatusAbandoned, 0, 100))
	require.NoError(t, session.tx.Commit())
	assert.Equal(t, []int64{done[0], dead[1]}, t.ids("SELECT id FROM {t} ORDER BY id"))
	assert.Equal(t, 1, t.purge(outbox.StatusPublished, 0, 100))
	assert.Equal(t, 1, t.purge(outbox.StatusAbandoned, 0, 100))
}

// A row for which a key waits stays, however old it is, and however many are younger: an operator
// has to decide about it.
func testPurgeBlocked(t *table) {
	k := t.keys(2)
	blocked := t.add(k[0], k[0], k[1])
	t.abandonAndBlock(blocked[0])
	t.abandonAndBlock(blocked[2])
	_, dead := t.finish(2)
	for n, id := range []int64{blocked[0], blocked[2], dead[0], dead[1]} {
		t.ageFinished(id, time.Duration(10-n)*time.Hour)
	}
	assert.Equal(t, 2, t.purge(outbox.StatusAbandoned, time.Hour, 2), "those behind them in age are found")
	assert.Zero(t, t.purge(outbox.StatusAbandoned, time.Hour, 2))
	assert.Len(t, t.blockedKeys(), 2)
	assert.True(t, t.release(k[1]))
	assert.Equal(t, 1, t.purge(outbox.StatusAbandoned, time.Hour, 2), "the key goes on without it")
	assert.Equal(t, 1, t.requeue(t.these(blocked[0])))
	t.next(blocked[0])
	t.next(blocked[1])
}

func testPurgeWrong(t *table) {
	t.add("key")
	for _, status := range []outbox.Status{outbox.StatusPending, outbox.StatusProcessing, outbox.StatusFailed, "", "done"} {
		_, err := t.Store.Purge(t.Context(), admin.PurgeRequest{Status: status, Limit: 10, Broker: broker})
		require.ErrorContains(t, err, "published and abandoned", "only these can be purged")
	}
	assert.Equal(t, 1, t.count(outbox.StatusPending))
}

// A row that an operator sends again at this moment stays.
func testPurgeRequeued(t *table) {
	if t.OneWriter {
		t.Skip("writers take turns on this database")
	}
	_, dead := t.finish(2)
	t.ageFinished(dead[0], time.Hour)
	t.ageFinished(dead[1], time.Hour)
	tx, err := t.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), t.render("UPDATE {t} SET status = 'pending', finished_at = NULL, attempts = 0 WHERE id = ?"), dead[0])
	require.NoError(t, err)
	assert.Equal(t, 1, t.purge(outbox.StatusAbandoned, time.Minute, 10))
	require.NoError(t, tx.Commit())
	assert.Equal(t, "pending", t.state(dead[0]).Status)
	assert.Zero(t, t.purge(outbox.StatusAbandoned, time.Minute, 10))
	assert.Equal(t, dead[:1], taken(t.claim()))
}

func testFinishedBrokers(t *table) {
	names, err := t.Store.FinishedBrokers(t.Context())
	require.NoError(t, err)
	assert.Empty(t, names)
	for _, name := range []string{"c", "a", "b", "a", "open"} {
		row := newRow("")
		row.TargetBroker = name
		id := t.insert(row)[0]
		switch name {
		case "a":
			t.exec("UPDATE {t} SET status = 'published', published_at = created_at, finished_at = created_at WHERE id = ?", id)
		case "b", "c":
			t.exec("UPDATE {t} SET status = 'abandoned', finished_at = created_at WHERE id = ?", id)
		}
	}
	names, err = t.Store.FinishedBrokers(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c"}, names)
}

func testExclusive(t *table) {
	other := t.another()
	never := func(context.Context) error { return errors.New("runs although it is taken") }
	calls := 0
	once := func(ctx context.Context) error { calls++; return ctx.Err() }
	for range 2 { // it is free again afterwards
		ran, err := t.Store.Exclusive(t.Context(), "purge", func(ctx context.Context) error {
			calls++
			for _, store := range []driver.Store{t.Store, other} {
				ran, err := store.Exclusive(ctx, "purge", never)
				assert.NoError(t, err)
				assert.False(t, ran)
				ran, err = store.Exclusive(ctx, "something else", once)
				assert.NoError(t, err)
				assert.True(t, ran)
			}
			_, err := t.Store.Purge(ctx, admin.PurgeRequest{Status: outbox.StatusPublished, Limit: 1, Broker: broker})
			return err // what it is for is possible inside
		})
		require.NoError(t, err)
		assert.True(t, ran)
	}
	assert.Equal(t, 6, calls)
	ran, err := other.Exclusive(t.Context(), "purge", once)
	require.NoError(t, err)
	assert.True(t, ran)
}

// purgeRace counts how rows come to their ends, and back.
type purgeRace struct {
	*table
	total                                         int64
	published, abandoned, requeued, goneAbandoned atomic.Int64
	gonePublished                                 atomic.Int64
}

// A purge that keeps nothing runs while rows are claimed, marked, abandoned and sent again: it
// removes what is finished at that very moment, and nothing else. Every row that was abandoned was
// sent again, removed, or is still there.
func testPurgeRace(t *table) {
	names := t.keys(6)
	keys := make([]string, 150)
	for i := range keys {
		keys[i] = names[i%len(names)]
	}
	r := &purgeRace{table: t, total: int64(len(t.add(keys...)))}
	t.crew(func(ctx context.Context, store driver.Store, random *rand.Rand) error {
		for r.published.Load()+r.goneAbandoned.Load() < r.total {
			steps := []func(context.Context, driver.Store, *rand.Rand) error{r.deliver, r.deliver, r.requeue, r.purgeSome}
			if err := steps[random.IntN(len(steps))](ctx, store, random); err != nil {
				return err
			}
			runtime.Gosched()
		}
		return nil
	})
	assert.Zero(t, t.number("SELECT count(*) FROM {t} WHERE finished_at IS NULL"))
	assert.Equal(t, r.total, r.published.Load()+r.goneAbandoned.Load())
	assert.Equal(t, r.published.Load(), r.gonePublished.Load()+int64(t.count(outbox.StatusPublished)), "published rows")
	assert.Equal(t, r.abandoned.Load(), r.requeued.Load()+r.goneAbandoned.Load()+int64(t.count(outbox.StatusAbandoned)), "rows that were abandoned")
	assert.Positive(t, r.requeued.Load())
	assert.Positive(t, r.goneAbandoned.Load()+r.gonePublished.Load())
}

func (r *purgeRace) deliver(ctx context.Context, store driver.Store, random *rand.Rand) error {
	exchanged, err := store.Exchange(ctx, nil, r.request(limit(1+random.IntN(15)), wake, window(int(r.total))))
	if err != nil || len(exchanged.Batch.Messages) == 0 {
		return err
	}
	batch := exchanged.Batch
	s := &driver.Completion{Lease: batch.Lease}
	for i := range batch.Messages {
		if id := batch.Messages[i].ID; random.IntN(3) == 0 {
			s.Other = append(s.Other, driver.Outcome{ID: id, Status: outbox.StatusAbandoned, Spent: true})
		} else {
			s.Published = append(s.Published, driver.Delivered{ID: id})
		}
	}
	// Counted before, since others may act on them as soon as they are written.
	r.abandoned.Add(int64(len(s.Other)))
	exchanged, err = exchange(ctx, store, s, nil)
	if err == nil && exchanged.Completed.Lost > 0 {
		err = fmt.Errorf("%d claimed rows are gone", exchanged.Completed.Lost)
	}
	r.published.Add(int64(len(s.Published)))
	return err
}

func (r *purgeRace) requeue(ctx context.Context, store driver.Store, random *rand.Rand) error {
	n, err := store.Requeue(ctx, admin.Filter{Broker: broker}, 1+random.IntN(5))
	r.requeued.Add(int64(n))
	return err
}

func (r *purgeRace) purgeSome(ctx context.Context, store driver.Store, random *rand.Rand) error {
	status, gone := outbox.StatusPublished, &r.gonePublished
	if random.IntN(3) == 0 {
		status, gone = outbox.StatusAbandoned, &r.goneAbandoned
	}
	n, err := store.Purge(ctx, admin.PurgeRequest{Status: status, Limit: 1 + random.IntN(5), Broker: broker})
	gone.Add(int64(n))
	return err
}
