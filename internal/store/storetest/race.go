package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
)

var raceTests = []test{
	{name: "NeverShared", run: func(t *table) { testNeverShared(t, false) }, concurrent: true},
	{name: "NeverSharedUnordered", run: func(t *table) { testNeverShared(t, true) }, concurrent: true},
	{name: "Drain", run: func(t *table) { testDrain(t, false) }, concurrent: true},
	{name: "DrainUnordered", run: func(t *table) { testDrain(t, true) }, concurrent: true},
}

const (
	raceWorkers = 4
	raceTimeout = 2 * time.Minute
	raceSeed    = 20 // the schedules differ from run to run anyway
)

// crew runs one function on several goroutines, half of them on a store of their own as another
// process would have it. The context ends when one of them reports a failure.
func (t *table) crew(f func(ctx context.Context, store driver.Store, random *rand.Rand) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), raceTimeout)
	defer cancel()
	stores := []driver.Store{t.Store, t.another()}
	var (
		group sync.WaitGroup
		once  sync.Once
		first error // the others only stopped
	)
	for n := range raceWorkers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(raceSeed, uint64(n)))
			if err := f(ctx, stores[n%2], random); err != nil {
				once.Do(func() { first = err; cancel() })
			}
		})
	}
	group.Wait()
	require.NoError(t, first)
}

// hands knows which rows and keys are in whose hands.
type hands struct {
	sync.Mutex
	rows map[int64]bool
	keys map[string]int
}

func (h *hands) take(b driver.Batch, unordered bool) error {
	h.Lock()
	defer h.Unlock()
	mine := map[string]bool{}
	last := int64(0)
	for _, m := range b.Messages {
		if h.rows[m.ID] {
			return fmt.Errorf("row %d is in two hands", m.ID)
		}
		h.rows[m.ID] = true
		if m.ID <= last {
			return fmt.Errorf("row %d is not in the order of ids", m.ID)
		}
		last = m.ID
		if m.OrderingKey == "" || unordered {
			continue
		}
		if h.keys[m.OrderingKey] > 0 && !mine[m.OrderingKey] {
			return fmt.Errorf("key %q is in two hands", m.OrderingKey)
		}
		mine[m.OrderingKey] = true
		h.keys[m.OrderingKey]++
	}
	return nil
}

func (h *hands) give(b driver.Batch) {
	h.Lock()
	defer h.Unlock()
	for _, m := range b.Messages {
		delete(h.rows, m.ID)
		h.keys[m.OrderingKey]--
	}
}

// Two claims never share a row, nor a key while order is on.
func testNeverShared(t *table, isUnordered bool) {
	k := t.keys(12)
	keys := make([]string, 240)
	for n := range keys {
		keys[n] = k[n*n%len(k)]
	}
	t.add(keys...)
	t.addLoose(40)
	total := t.number("SELECT count(*) FROM {t}")
	held := &hands{rows: map[int64]bool{}, keys: map[string]int{}}

	t.crew(func(ctx context.Context, store driver.Store, random *rand.Rand) error {
		var completion *driver.Completion
		for {
			claim := t.request(limit(1+random.IntN(20)), func(c *driver.Claim) {
				c.Window += random.IntN(60)
				c.Unordered = isUnordered
			})
			result, err := store.Exchange(ctx, completion, claim)
			if err != nil {
				return err
			}
			if completion != nil && (result.Completed == nil || result.Completed.Lost > 0) {
				return fmt.Errorf("completed %+v, and no lease ran out", result.Completed)
			}
			completion = nil
			batch := result.Batch
			if len(batch.Messages) == 0 {
				var left int64
				if err := t.DB.QueryRowContext(ctx, t.read("SELECT count(*) FROM {t} WHERE finished_at IS NULL")).Scan(&left); err != nil {
					return err
				}
				if left == 0 {
					return nil
				}
				runtime.Gosched()
				continue
			}
			if err := held.take(batch, isUnordered); err != nil {
				return err
			}
			if random.IntN(5) == 0 {
				if kept, err := store.Renew(ctx, batch.Lease); err != nil || kept != len(batch.Messages) {
					return fmt.Errorf("renewed %d of %d: %w", kept, len(batch.Messages), err)
				}
			}
			completion = randomOutcomes(batch, random)
			held.give(batch)
		}
	})
	assert.Equal(t, total, t.number("SELECT count(*) FROM {t} WHERE finished_at IS NOT NULL"))
}

func randomOutcomes(b driver.Batch, random *rand.Rand) *driver.Completion {
	s := &driver.Completion{Lease: b.Lease}
	for _, m := range b.Messages {
		switch random.IntN(10) {
		case 0:
			s.Other = append(s.Other, driver.Outcome{ID: m.ID, Status: outbox.StatusPending})
		case 1:
			s.Other = append(s.Other, driver.Outcome{ID: m.ID, Status: outbox.StatusFailed, Spent: true})
		case 2:
			s.Other = append(s.Other, driver.Outcome{ID: m.ID, Status: outbox.StatusFailed, Spent: true, Delay: time.Millisecond})
		case 3:
			s.Other = append(s.Other, driver.Outcome{ID: m.ID, Status: outbox.StatusAbandoned, Spent: true})
		default:
			s.Published = append(s.Published, driver.Delivered{ID: m.ID})
		}
	}
	return s
}

// log is the broker of the drain: it remembers the first delivery of each row, per key.
type log struct {
	sync.Mutex
	seen  map[int64]bool
	order map[string][]int64
}

func (l *log) deliver(m *driver.Message) {
	l.Lock()
	defer l.Unlock()
	if !l.seen[m.ID] {
		l.seen[m.ID] = true
		l.order[m.OrderingKey] = append(l.order[m.OrderingKey], m.ID)
	}
}

// Workers fail, crash and come back late while rows are written: nothing is lost, and each key's
// first deliveries stand in the order of the rows.
func testDrain(t *table, isUnordered bool) {
	k := append(t.keys(9), "") // one shard, so that they meet
	const batches, perBatch = 12, 25
	inserter, err := outbox.NewInserter(t.Store.Dialect(), t.Table)
	require.NoError(t, err)
	delivered := &log{seen: map[int64]bool{}, order: map[string][]int64{}}

	writing := make(chan error, 1)
	go func() {
		random := rand.New(rand.NewPCG(raceSeed, 99))
		for range batches {
			rows := make([]outbox.Row, perBatch)
			for i := range rows {
				rows[i] = newRow(k[random.IntN(len(k))])
			}
			if err := inserter.Insert(t.background(), t.DB, rows); err != nil {
				writing <- err
				return
			}
		}
		writing <- nil
	}()
	t.crew(func(ctx context.Context, store driver.Store, random *rand.Rand) error {
		w := &drainer{table: t, store: store, random: random, log: delivered, unordered: isUnordered}
		for {
			var finished int
			if err := t.DB.QueryRowContext(ctx, t.read("SELECT count(*) FROM {t} WHERE status = 'published'")).Scan(&finished); err != nil {
				return err
			}
			if finished == batches*perBatch {
				return nil
			}
			for shard := range store.Shards() { // rows without a key are in all of them
				if err := w.work(ctx, shard); err != nil {
					return err
				}
			}
		}
	})
	require.NoError(t, <-writing)
	assert.Len(t, delivered.seen, batches*perBatch, "nothing is lost")
	if isUnordered {
		return
	}
	for key, ids := range delivered.order {
		assert.True(t, key == "" || slices.IsSorted(ids), "first deliveries of key %q: %v", key, ids)
	}
}

type drainer struct {
	*table
	store     driver.Store
	random    *rand.Rand
	log       *log
	unordered bool
	late      []*driver.Completion // of batches that were taken for lost
}

// work claims, delivers and completes one batch of a shard, as a processor that is out of luck.
func (w *drainer) work(ctx context.Context, shard int) error {
	result, err := w.store.Exchange(ctx, nil, w.request(limit(1+w.random.IntN(30)), func(c *driver.Claim) {
		c.Window, c.Shard, c.Unordered = c.Window+50, shard, w.unordered
	}))
	batch := result.Batch
	if err != nil || len(batch.Messages) == 0 {
		return err
	}
	completion := &driver.Completion{Lease: batch.Lease}
	stopped := map[string]bool{}
	crash := -1
	if w.random.IntN(6) == 0 {
		crash = w.random.IntN(len(batch.Messages))
	}
	for i := range batch.Messages {
		m := &batch.Messages[i]
		if i == crash {
			if w.random.IntN(2) == 0 {
				w.late = append(w.late, completion)
			}
			return w.expireToken(ctx, batch.Lease)
		}
		switch {
		case m.OrderingKey != "" && stopped[m.OrderingKey]:
			completion.Other = append(completion.Other, driver.Outcome{ID: m.ID, Status: outbox.StatusPending})
		case w.random.IntN(12) == 0:
			stopped[m.OrderingKey] = true
			completion.Other = append(completion.Other, driver.Outcome{
				ID: m.ID, Status: outbox.StatusFailed, Spent: true, Delay: time.Duration(w.random.IntN(3)) * time.Millisecond,
			})
		default:
			w.log.deliver(m)
			completion.Published = append(completion.Published, driver.Delivered{ID: m.ID})
		}
	}
	if _, err := w.store.Exchange(ctx, completion, nil); err != nil {
		return err
	}
	if len(w.late) > 0 { // an owner that was stopped comes back: fenced, or the outcome is true
		late := w.late[0]
		w.late = w.late[1:]
		_, err = w.store.Exchange(ctx, late, nil)
	}
	return err
}

// expireToken ends the lease of a worker that is no more. It locks rows in an order of its own, so
// that the server may break it off in favour of a late completion of the same rows: it tries again,
// as stores do.
func (w *drainer) expireToken(ctx context.Context, l driver.Lease) (err error) {
	for range 3 {
		_, err = w.DB.ExecContext(ctx, w.render("UPDATE {t} SET locked_until = "+w.sql.minus("locked_until", 2*lease)+
			" WHERE status = 'processing' AND target_broker = ? AND shard = ? AND finished_at IS NULL AND deferred = "+w.sql.no+" AND id BETWEEN ? AND ? AND lock_token = "+w.sql.id("?")),
			l.Broker, l.Shard, l.FirstID, l.LastID, l.Token.String())
		if err == nil {
			return nil
		}
	}
	return err
}
