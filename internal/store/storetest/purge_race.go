package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

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
	exchanged, err = store.Exchange(ctx, s, nil)
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
