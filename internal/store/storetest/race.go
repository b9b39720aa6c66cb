package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
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

// exchange tries a completion again that meets locked rows, as a relay does.
func exchange(ctx context.Context, store driver.Store, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	for {
		exchanged, err := store.Exchange(ctx, completion, claim)
		if exchanged.Completed != nil || !errors.Is(err, driver.ErrLocked) {
			return exchanged, err
		}
	}
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
			result, err := exchange(ctx, store, completion, claim)
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
				if err := t.DB.QueryRowContext(ctx, t.render("SELECT count(*) FROM {t} WHERE finished_at IS NULL")).Scan(&left); err != nil {
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
