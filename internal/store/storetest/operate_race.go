package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// Operators act while claims run: nothing is lost, no key is in two hands, and what was never
// abandoned is delivered in the order of its key.
func testOperateRace(t *table) {
	k := t.keys(7)
	unwanted, ordered := k[0], k[1:]
	keys := make([]string, 260)
	for i := range keys {
		keys[i] = ordered[i*i%len(ordered)]
		if i%13 == 0 {
			keys[i] = unwanted
		}
	}
	ids := t.add(keys...)
	r := &operateRace{
		table: t, keys: ordered, unwanted: unwanted, total: len(ids),
		held: &hands{rows: map[int64]bool{}, keys: map[string]int{}}, last: map[string]int64{}, reentered: map[int64]bool{},
	}
	t.crew(func(ctx context.Context, store driver.Store, random *rand.Rand) error {
		for {
			if done, err := r.done(ctx); done || err != nil {
				return err
			}
			if err := r.deliver(ctx, store, random); err != nil {
				return err
			}
			if err := r.operate(ctx, store, random); err != nil {
				return err
			}
			runtime.Gosched()
		}
	})
	t.pass()
	t.claim(wake) // moves on the last blocks
	assert.Zero(t, t.blocks())
	assert.Zero(t, t.deferred())
}

type operateRace struct {
	*table
	keys     []string
	unwanted string // the key whose rows an operator abandons
	total    int
	held     *hands

	mu        sync.Mutex
	last      map[string]int64 // by key, the last row that was delivered
	reentered map[int64]bool   // rows that were abandoned at some time
}

func (r *operateRace) done(ctx context.Context) (bool, error) {
	var left int
	err := r.DB.QueryRowContext(ctx, r.render("SELECT count(*) FROM {t} WHERE status <> 'published'")).Scan(&left)
	return left == 0, err
}

func (r *operateRace) deliver(ctx context.Context, store driver.Store, random *rand.Rand) error {
	claim := r.request(limit(1+random.IntN(20)), wake, window(2*r.total)) // so that it sees a claimed row behind one that came back
	result, err := store.Exchange(ctx, nil, claim)
	if err != nil {
		return err
	}
	if batch := result.Batch; len(batch.Messages) > 0 {
		if err := r.held.take(batch, false); err != nil {
			return err
		}
		completion, err := r.outcomes(batch, random)
		if err != nil {
			return err
		}
		r.held.give(batch)
		if result, err = exchange(ctx, store, completion, nil); err != nil || result.Completed.Lost > 0 {
			return fmt.Errorf("completed %+v: %w", result.Completed, err)
		}
	}
	if random.IntN(3) == 0 {
		_, err = store.Defer(ctx, claim)
	}
	return err
}

// outcomes delivers a batch in its order; a key stops at its first failure, as it does in a
// processor.
func (r *operateRace) outcomes(batch driver.Batch, random *rand.Rand) (*driver.Completion, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &driver.Completion{Lease: batch.Lease, BlockAbandoned: random.IntN(2) == 0}
	stopped := map[string]bool{}
	for i := range batch.Messages {
		m := &batch.Messages[i]
		o := driver.Outcome{ID: m.ID, Status: outbox.StatusPending}
		switch chance := random.IntN(20); {
		case stopped[m.OrderingKey], chance == 0:
		case chance <= 2:
			o.Status, o.Spent, o.Delay = outbox.StatusFailed, true, time.Duration(random.IntN(3))*time.Millisecond
		case chance <= 4:
			o.Status, o.Spent, r.reentered[m.ID] = outbox.StatusAbandoned, true, true
		default:
			if m.ID < r.last[m.OrderingKey] && !r.reentered[m.ID] && m.OrderingKey != r.unwanted {
				return nil, fmt.Errorf("row %d of key %q is delivered after row %d", m.ID, m.OrderingKey, r.last[m.OrderingKey])
			}
			r.last[m.OrderingKey] = max(r.last[m.OrderingKey], m.ID)
			s.Published = append(s.Published, driver.Delivered{ID: m.ID})
			continue
		}
		stopped[m.OrderingKey] = true
		s.Other = append(s.Other, o)
	}
	return s, nil
}

func (r *operateRace) operate(ctx context.Context, operator admin.Administration, random *rand.Rand) error {
	var err error
	switch random.IntN(8) {
	case 0:
		_, err = operator.Requeue(ctx, admin.Filter{Broker: broker}, 1+random.IntN(20))
	case 1:
		_, err = operator.Requeue(ctx, admin.Filter{Statuses: []outbox.Status{outbox.StatusAbandoned}, Key: r.keys[random.IntN(len(r.keys))]}, 1+random.IntN(3))
	case 2:
		_, err = operator.UnblockKey(ctx, broker, r.keys[random.IntN(len(r.keys))])
	case 3:
		_, err = operator.Abandon(ctx, admin.Filter{Broker: broker, Key: r.unwanted}, "not wanted", 1+random.IntN(3))
	}
	return err
}

// Operators whose filters name different brokers, or none, do not get into each other's way.
func testOperateBrokersRace(t *table) {
	const total = 240
	names := []string{"a", "b", "c", ""}
	rows := make([]outbox.Row, total)
	for i := range rows {
		rows[i] = newRow(fmt.Sprintf("key-%d", i%17))
		rows[i].TargetBroker = names[i%3]
	}
	t.insert(rows...)
	t.exec("UPDATE {t} SET status = 'abandoned', finished_at = created_at")
	var changed atomic.Int64
	t.crew(func(ctx context.Context, store driver.Store, random *rand.Rand) error {
		operator := store
		for changed.Load() < total {
			n, err := operator.Requeue(ctx, admin.Filter{Broker: names[random.IntN(len(names))]}, 1+random.IntN(7))
			if err != nil {
				return err
			}
			changed.Add(int64(n))
		}
		return nil
	})
	assert.Equal(t, int64(total), changed.Load(), "each row once")
	assert.Equal(t, int64(total), t.number("SELECT count(*) FROM {t} WHERE status = 'pending'"))
}

// A purge removes no row that was requeued, and an operator brings back none that was removed.
func testOperatePurgeRace(t *table) {
	_, dead := t.finish(150)
	var requeued, removed atomic.Int64
	t.crew(func(ctx context.Context, store driver.Store, random *rand.Rand) error {
		for requeued.Load()+removed.Load() < int64(len(dead)) {
			if random.IntN(2) == 0 {
				n, err := store.Purge(ctx, admin.PurgeRequest{Status: outbox.StatusAbandoned, Limit: 1 + random.IntN(4), Broker: broker})
				if err != nil {
					return err
				}
				removed.Add(int64(n))
				continue
			}
			n, err := store.Requeue(ctx, admin.Filter{Broker: broker}, 1+random.IntN(4))
			if err != nil {
				return err
			}
			requeued.Add(int64(n))
		}
		return nil
	})
	require.Equal(t, int64(len(dead)), requeued.Load()+removed.Load())
	assert.Equal(t, requeued.Load(), t.number("SELECT count(*) FROM {t} WHERE status = 'pending'"))
	assert.Zero(t, t.count(outbox.StatusAbandoned))
	assert.Equal(t, 150, t.count(outbox.StatusPublished))
}
