package postgres

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// idler is a database with nothing in it, which counts what it is asked.
type idler struct {
	driver.Store // nothing else of it is called
	mu           sync.Mutex
	asked        map[string]int
	heard        func(string)
}

func (i *idler) ask(verb string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked[verb]++
}

func (i *idler) Exchange(context.Context, *driver.Completion, *driver.Claim) (driver.Exchanged, error) {
	i.ask("exchange")
	return driver.Exchanged{}, nil
}
func (i *idler) Renew(context.Context, driver.Lease) (int, error) { i.ask("renew"); return 0, nil }
func (i *idler) Ready(context.Context, string, wakeup.Set) (driver.Readiness, error) {
	i.ask("ready")
	return driver.Readiness{}, nil
}

func (i *idler) Defer(context.Context, *driver.Claim) (int, error) { i.ask("defer"); return 0, nil }
func (i *idler) Shards() int                                       { return outbox.Shards }
func (i *idler) Close() error                                      { return nil }
func (i *idler) Heartbeat(context.Context, admin.Instance) error   { i.ask("heartbeat"); return nil }
func (i *idler) Leave(context.Context, uuid.UUID) error            { return nil }
func (i *idler) Backlog(context.Context) ([]admin.Backlog, error)  { i.ask("backlog"); return nil, nil }

func (i *idler) Watch(context.Context) ([]admin.Finding, error) { i.ask("watch"); return nil, nil }

func (i *idler) Stranded(context.Context, string, admin.Position, int) (admin.List, error) {
	i.ask("stranded")
	return admin.List{}, nil
}

func (i *idler) FinishedBrokers(context.Context) ([]string, error) {
	i.ask("finished")
	return []string{"b"}, nil
}

func (i *idler) Purge(context.Context, admin.PurgeRequest) (int, error) {
	i.ask("purge")
	return 0, nil
}

func (i *idler) Exclusive(ctx context.Context, _ string, f func(context.Context) error) (bool, error) {
	i.ask("exclusive")
	return true, f(ctx)
}

func (i *idler) Listen(ctx context.Context, began func(), heard func(string)) error {
	said := make(chan string, 1)
	i.heard = func(text string) { said <- text }
	began()
	for {
		select {
		case text := <-said:
			heard(text)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (i *idler) Notify(_ context.Context, text string) error {
	i.ask("notify")
	i.heard(text)
	return nil
}

// Of a relay with one broker that has nothing to do, the database hears from once in five seconds:
// by looks, heartbeats, probes of the listener, the searches for unconfigured and for who holds
// back vacuum, and the purge together. (P11.)
func TestIdleCost(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	_, err := openStore(t, dsn, "idle").Migrate(t.Context())
	require.NoError(t, err)
	var (
		log   tracer
		trips atomic.Int64
		cost  = map[string]int{}
	)
	store := wired(t, dsn, "idle", &trips, &stall{}, &log)
	for verb, run := range map[string]func() error{
		"ready":     func() error { _, err := store.Ready(t.Context(), "b", 0); return err },
		"heartbeat": func() error { return store.Heartbeat(t.Context(), admin.Instance{ID: uuid.New()}) },
		"backlog":   func() error { _, err := store.Backlog(t.Context()); return err },
		"watch":     func() error { _, err := store.Watch(t.Context()); return err },
		"stranded":  func() error { _, err := store.Stranded(t.Context(), "b", admin.Position{}, 1000); return err },
		"notify":    func() error { return store.Notify(t.Context(), "1 ?x") },
		"finished":  func() error { _, err := store.FinishedBrokers(t.Context()); return err },
		"purge": func() error {
			_, err := store.Purge(t.Context(), admin.PurgeRequest{Broker: "b", Status: outbox.StatusPublished, Limit: 1})
			return err
		},
		"exclusive": func() error {
			_, err := store.Exclusive(t.Context(), "x", func(context.Context) error { return nil })
			return err
		},
	} {
		log.take()
		require.NoError(t, run(), verb)
		cost[verb] = len(strings.Fields(log.take()))
		require.Positive(t, cost[verb], verb)
	}
	assert.Equal(t, []int{1, 1, 4, 1, 1}, []int{cost["ready"], cost["heartbeat"], cost["backlog"], cost["watch"], cost["notify"]})

	synctest.Test(t, func(t *testing.T) {
		const duration = 24 * time.Hour
		database := &idler{asked: map[string]int{}}
		quiet := slog.New(slog.DiscardHandler)
		engine, err := relay.NewEngine(relay.EngineConfig{
			Stores:  map[string]driver.Delivery{"db": database},
			Brokers: map[string]relay.Target{"b": {Broker: memory.New(), Policy: outbox.Policy{PollMax: 10 * time.Second}}},
			Listen:  []string{"db"}, Log: quiet,
		})
		require.NoError(t, err)
		cleaner, err := cleanup.New(cleanup.Config{Databases: map[string]cleanup.Table{"db": database}, Log: quiet})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { assert.NoError(t, engine.Run(ctx)) })
		running.Go(func() { assert.NoError(t, cleaner.Run(ctx)) })
		time.Sleep(time.Minute) // the claims and looks of the start
		database.mu.Lock()
		clear(database.asked)
		database.mu.Unlock()
		time.Sleep(duration)
		cancel()
		running.Wait()
		total := 0
		for verb, times := range database.asked {
			require.Contains(t, cost, verb, "nothing else is asked")
			total += times * cost[verb]
		}
		perSecond := float64(total) / duration.Seconds()
		t.Logf("%.3f statements a second: %v times %v", perSecond, database.asked, cost)
		assert.LessOrEqual(t, perSecond, 0.2)
		assert.Equal(t, relay.ListenerDisconnected, engine.Stats()[0].Listener, "it has stopped")
		assert.InDelta(t, duration/(10*time.Second)*10/9, database.asked["ready"], float64(duration/time.Minute), "and it did look")
	})
}
