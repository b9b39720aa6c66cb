package relay

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
)

// lobby is a store that hands out one batch, and a registry that remembers what it was told.
type lobby struct {
	mu    sync.Mutex
	batch []driver.Message
	beats []admin.Instance
	left  []uuid.UUID
	fail  error
	hang  bool
}

func (l *lobby) Exchange(_ context.Context, completion *driver.Completion, claim *driver.Claim) (driver.Exchanged, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var result driver.Exchanged
	if completion != nil {
		result.Completed = &driver.Completed{}
	}
	if claim != nil {
		result.Batch = driver.Batch{Messages: l.batch, Seen: len(l.batch), Lease: driver.Lease{Broker: claim.Broker, Shard: claim.Shard, Token: uuid.New(), Duration: claim.Lease}}
		l.batch = nil
	}
	return result, nil
}

func (l *lobby) Renew(context.Context, driver.Lease) (int, error) { return 2, nil }
func (l *lobby) Ready(context.Context, string, wakeup.Set) (driver.Readiness, error) {
	return driver.Readiness{}, nil
}
func (l *lobby) Defer(context.Context, *driver.Claim) (int, error)          { return 0, nil }
func (l *lobby) Alone(context.Context, string, string, int64) (bool, error) { return false, nil }
func (l *lobby) Holder(context.Context, string, int) (driver.Holder, error) {
	return driver.Holder{}, nil
}
func (l *lobby) Shards() int                                       { return 1 }
func (l *lobby) Close() error                                      { return nil }
func (l *lobby) Pauses(context.Context) ([]admin.Pause, error)     { return nil, nil }
func (l *lobby) Backlog(context.Context) ([]admin.Backlog, error)  { return nil, nil }
func (l *lobby) Diagnose(context.Context) (admin.Diagnosis, error) { return admin.Diagnosis{}, nil }
func (l *lobby) Watch(context.Context) ([]admin.Finding, error)    { return nil, nil }
func (l *lobby) Stranded(context.Context, string, admin.Position, int) (admin.List, error) {
	return admin.List{}, nil
}

func (l *lobby) Heartbeat(ctx context.Context, now admin.Instance) error {
	return l.hear(ctx, &now, uuid.Nil)
}
func (l *lobby) Leave(ctx context.Context, id uuid.UUID) error { return l.hear(ctx, nil, id) }

func (l *lobby) hear(ctx context.Context, beat *admin.Instance, left uuid.UUID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hang {
		l.mu.Unlock()
		<-ctx.Done()
		l.mu.Lock()
		return ctx.Err()
	}
	if l.fail != nil {
		return l.fail
	}
	if beat != nil {
		beat.SeenAt = time.Now() // as a store does
		l.beats = append(l.beats, *beat)
	} else {
		l.left = append(l.left, left)
	}
	return nil
}

func (l *lobby) set(fail error, hang bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail, l.hang = fail, hang
}

// taken returns the heartbeats since the last call, and who has left.
func (l *lobby) taken() (beats []admin.Instance, left []uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	beats, left = l.beats, l.left
	l.beats, l.left = nil, nil
	return beats, left
}

// slow is a broker that takes its time.
type slow struct {
	brokers.Broker
	takes time.Duration
}

func (s slow) Publish(_ context.Context, messages []brokers.Message) []brokers.Result {
	time.Sleep(s.takes)
	return make([]brokers.Result, len(messages))
}

func (slow) Capabilities() brokers.Capabilities { return brokers.Capabilities{} }

type text struct {
	mu sync.Mutex
	b  strings.Builder
}

func (t *text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(p)
}

// count is how often the log says something.
func (t *text) count(what string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Count(t.b.String(), what)
}

// startEngine runs an engine in the bubble of a test until stop is called, which returns how long
// it took.
func startEngine(t *testing.T, store driver.Delivery, takes time.Duration, name string) (log *text, stop func() time.Duration) {
	t.Helper()
	log = &text{}
	engine, err := NewEngine(EngineConfig{
		Stores: map[string]driver.Delivery{"db": store}, Brokers: map[string]Target{"b": {Broker: slow{takes: takes}, Policy: outbox.Policy{Workers: 1}}},
		Log: slog.New(slog.NewTextHandler(log, nil)), Name: name, Version: "v1",
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- engine.Run(ctx) }()
	return log, func() time.Duration {
		began := time.Now()
		cancel()
		require.NoError(t, <-done)
		return time.Since(began)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, began := &lobby{}, time.Now()
		log, stop := startEngine(t, store, 0, "relay-7")
		time.Sleep(2*heartbeatEvery + time.Second)
		beats, left := store.taken()
		require.Len(t, beats, 3, "one at the start, and one at each interval")
		assert.Empty(t, left)
		host, err := os.Hostname()
		require.NoError(t, err)
		for n, beat := range beats {
			assert.Equal(t, time.Duration(n)*heartbeatEvery, beat.SeenAt.Sub(began))
			assert.Equal(t, admin.Instance{ID: beats[0].ID, Name: "relay-7", Host: host, PID: os.Getpid(), Version: "v1", SeenAt: beat.SeenAt, Work: nil}, beat)
		}
		assert.NotZero(t, beats[0].ID)
		stop()
		beats2, left := store.taken()
		assert.Empty(t, beats2)
		assert.Equal(t, []uuid.UUID{beats[0].ID}, left)
		assert.Zero(t, log.count("instances"))

		_, stop = startEngine(t, store, 0, "")
		synctest.Wait()
		again, _ := store.taken()
		require.Len(t, again, 1)
		assert.Equal(t, host, again[0].Name, "a process without a name is called like its host")
		assert.NotEqual(t, beats[0].ID, again[0].ID, "each start has an id of its own")
		stop()
	})
}

// What is claimed shows, also while a stop waits for it.
func TestHeartbeatWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		batch := []driver.Message{{ID: 1, MessageID: uuid.NewString(), Stream: "s", Type: "T", ContentType: "text/plain"}, {ID: 2, MessageID: uuid.NewString(), Stream: "s", Type: "T", ContentType: "text/plain"}}
		store, began := &lobby{batch: batch}, time.Now()
		_, stop := startEngine(t, store, 40*time.Second, "")
		time.Sleep(heartbeatEvery + time.Second)
		beats, _ := store.taken()
		require.Len(t, beats, 2)
		require.Len(t, beats[1].Work, 1)
		work := beats[1].Work[0]
		assert.True(t, work.Since.Equal(began))
		assert.Contains(t, work.Worker, "/db/b/0")
		assert.Equal(t, admin.Work{Worker: work.Worker, Broker: "b", Shard: work.Shard, Rows: 2, Since: work.Since}, work)
		time.Sleep(heartbeatEvery)
		beats, _ = store.taken()
		require.Len(t, beats, 1)
		assert.Empty(t, beats[0].Work, "it was completed")

		store.mu.Lock()
		store.batch = batch
		store.mu.Unlock()
		_, stopSecond := startEngine(t, store, 10*time.Second, "second")
		synctest.Wait()
		assert.Equal(t, 10*time.Second, stopSecond(), "what is with the broker is finished")
		_, left := store.taken()
		assert.Len(t, left, 1, "and only then it leaves")
		stop()
	})
}

// A registry that fails or hangs is reported once and holds up nothing.
func TestHeartbeatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &lobby{fail: errors.New("no such table"), batch: []driver.Message{{ID: 1, MessageID: uuid.NewString(), Stream: "s", Type: "T", ContentType: "text/plain"}}}
		log, stop := startEngine(t, store, 0, "")
		time.Sleep(10 * heartbeatEvery)
		synctest.Wait()
		assert.Equal(t, 1, log.count("no such table"))
		store.set(errors.New("permission denied"), false)
		time.Sleep(10 * heartbeatEvery)
		synctest.Wait()
		assert.Equal(t, 1, log.count("permission denied"), "another cause")
		assert.Equal(t, 1, log.count("no such table"))
		assert.Empty(t, store.batch, "delivery goes on")
		store.set(nil, false)
		time.Sleep(heartbeatEvery)
		synctest.Wait()
		assert.Equal(t, 1, log.count("heartbeat restored"))
		store.set(nil, true)
		time.Sleep(10 * heartbeatEvery)
		assert.Equal(t, 1, log.count("deadline exceeded"))
		assert.LessOrEqual(t, stop(), heartbeatTime)
		assert.Equal(t, 1, log.count("deadline exceeded"))
	})
}
