package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// rig is a processor on a real SQLite file, with the in-memory broker, in a bubble of synctest: hours pass in an instant,
// for the processor and, SQLite's clock being ours, for the database.
type rig struct {
	t      *testing.T
	db     *sql.DB
	store  *sqlite.Store
	broker brokers.Broker
	cancel context.CancelFunc
	done   chan error
	proc   *outbox.Processor
}

func newRig(t *testing.T, path string, broker brokers.Broker, policy outbox.Policy) *rig {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	store, err := sqlite.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	proc, err := outbox.NewProcessor(outbox.ProcessorConfig{
		Database: "test", Broker: "b", Store: store, Target: broker, Policy: policy, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	return &rig{t: t, db: db, store: store, broker: broker, proc: proc, done: make(chan error, 1)}
}

func (r *rig) start() {
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(r.t.Context())
	go func() { r.done <- r.proc.Run(ctx) }()
}

func (r *rig) stop() {
	r.t.Helper()
	r.cancel()
	require.NoError(r.t, <-r.done)
}

// insert writes a row; its payload is its name in the test.
func (r *rig) insert(key, name string) {
	r.t.Helper()
	_, err := r.db.ExecContext(r.t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, payload) VALUES (?, 'b', 's', 'T', nullif(?, ''), ?)`,
		uuid.NewString(), key, []byte(name))
	require.NoError(r.t, err)
}

func (r *rig) query(text string, args ...any) string {
	r.t.Helper()
	var answer sql.NullString
	require.NoError(r.t, r.db.QueryRowContext(r.t.Context(), text, args...).Scan(&answer))
	return answer.String
}

func (r *rig) status(id string) string {
	return r.query("SELECT status || ' ' || attempts FROM outbox_messages WHERE CAST(payload AS TEXT) = ?", id)
}

// until lets time pass until the condition holds, at most the given time.
func (r *rig) until(limit time.Duration, condition func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(limit); !condition(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %s", limit)
		}
		time.Sleep(max(limit/1000, 10*time.Millisecond)) // of the bubble's time
	}
}

func (r *rig) open() string {
	return r.query("SELECT count(*) FROM outbox_messages WHERE finished_at IS NULL")
}

// fake is a broker whose answers a test writes.
type fake struct {
	mu      sync.Mutex
	seen    []string
	publish func(ctx context.Context, m brokers.Message) error
}

func (f *fake) Publish(ctx context.Context, messages []brokers.Message) []brokers.Result {
	results := make([]brokers.Result, len(messages))
	failed := map[string]bool{}
	for i, m := range messages {
		m.ID = string(m.Payload) // its name in the test
		if m.OrderingKey != "" && failed[m.OrderingKey] {
			results[i].Err = brokers.ErrNotSent
			continue
		}
		err := f.publish(ctx, m)
		results[i] = brokers.Result{BrokerMessageID: "b-" + m.ID, Err: err}
		failed[m.OrderingKey] = err != nil
		if err == nil {
			f.mu.Lock()
			f.seen = append(f.seen, m.ID)
			f.mu.Unlock()
		}
	}
	return results
}
func (f *fake) Capabilities() brokers.Capabilities { return brokers.Capabilities{Ordering: true} }
func (f *fake) Ping(context.Context) error         { return nil }
func (f *fake) Close(context.Context) error        { return nil }

func (f *fake) delivered() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.seen...)
}

// inBubble runs a test in which time is faked.
func inBubble(t *testing.T, test func(t *testing.T, path string)) {
	t.Helper()
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) { test(t, path) })
}

func start(t *testing.T, path string, broker brokers.Broker, policy outbox.Policy) *rig {
	t.Helper()
	r := newRig(t, path, broker, policy)
	r.start()
	t.Cleanup(func() { _ = r.db.Close() })
	return r
}

func TestProcessorDelivers(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := start(t, path, memory.New(), outbox.Policy{})
		for i := range 1234 {
			r.insert(fmt.Sprintf("k%d", i%7), strconv.Itoa(i))
		}
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.EqualValues(t, 1234, r.proc.Stats().Published)
		assert.Equal(t, "1234", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND attempts = 1 AND published_at = finished_at AND lock_token IS NULL"))
	})
}

func TestProcessorRetriesAndAbandons(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var times []time.Time
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "bad" {
				times = append(times, time.Now())
				return brokers.Retryable(errors.New("no luck"))
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{Retry: outbox.Retry{Jitter: -1}, PollMin: 5 * time.Second, PollMax: 5 * time.Second})
		r.insert("k", "bad")
		r.insert("k", "follower")
		r.insert("other", "free")
		r.until(10*time.Second, func() bool { return r.status("free") == "published 1" })
		assert.Equal(t, "failed 1", r.status("bad"))
		assert.Equal(t, "pending 0", r.status("follower"))
		r.until(2*time.Hour, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, "abandoned 5", r.status("bad"))
		assert.Equal(t, "published 1", r.status("follower"), "after an abandon the key goes on")
		assert.Equal(t, "no luck", r.query(`SELECT last_error ->> 'message' FROM outbox_messages WHERE CAST(payload AS TEXT) = 'bad'`)[len("retryable: "):])
		require.Len(t, times, 5)
		for i, minutes := range []time.Duration{1, 2, 4, 8} {
			// The poll adds at most its own interval.
			assert.InDelta(t, float64(minutes*time.Minute), float64(times[i+1].Sub(times[i])), float64(5*time.Second+time.Millisecond))
		}
	})
}

func TestProcessorOutageSpendsNoAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		down, calls := true, 0
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			if calls++; down {
				return brokers.Unavailable(brokers.ScopeBroker, errors.New("connection refused"))
			}
			return nil
		}}
		r := start(t, path, broker, outbox.Policy{PollMin: 5 * time.Second, PollMax: 10 * time.Second})
		for i := range 100 {
			r.insert("", strconv.Itoa(i))
		}
		time.Sleep(10 * time.Minute)
		assert.True(t, r.proc.Stats().Unavailable)
		assert.Equal(t, "100", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'pending' AND attempts = 0"))
		assert.Less(t, calls, 600/10*10+200, "the broker is not hammered")
		down = false
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.False(t, r.proc.Stats().Unavailable)
	})
}

func TestProcessorMissingDestinationHoldsBackItselfOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		missing := true
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if missing && m.Destination == "missing" {
				return brokers.Unavailable(brokers.ScopeDestination, errors.New("no such topic"))
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 300 {
			r.insert("", strconv.Itoa(i))
		}
		_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET stream = 'missing' WHERE id % 3 = 0")
		require.NoError(t, err)
		r.start()
		r.until(time.Minute, func() bool { return r.open() == "100" })
		assert.False(t, r.proc.Stats().Unavailable)
		assert.Equal(t, "0", r.query("SELECT max(attempts) FROM outbox_messages WHERE stream = 'missing'"))
		missing = false
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
	})
}

func TestProcessorAbandonsMalformedRows(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		r := newRig(t, path, memory.New(), outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		for _, column := range []string{"stream = ''", "type = ''", "headers = '{'", "content_type = 'nonsense'", "expires_at = 1"} {
			r.insert("", column)
			_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET "+column+" WHERE CAST(payload AS TEXT) = ?", column)
			require.NoError(t, err)
			r.insert("", "neighbour of "+column)
		}
		r.start()
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, "5", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published'"))
		assert.Equal(t, "5", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'abandoned' AND last_error ->> 'class' IN ('malformed', 'expired')"))
	})
}

func TestProcessorSurvivesABrokerThatPanics(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "bomb" {
				panic("boom")
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{Retry: outbox.Retry{BaseDelay: time.Second}})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 50 {
			r.insert("", strconv.Itoa(i))
		}
		r.insert("", "bomb")
		r.start()
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, "abandoned 5", r.status("bomb"))
		assert.Contains(t, r.query(`SELECT last_error FROM outbox_messages WHERE status = 'abandoned'`), "panicked: boom")
		assert.Equal(t, "50", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published'"))
	})
}

// A publish that takes longer than the lease is renewed and delivered once.
func TestProcessorRenews(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(ctx context.Context, _ brokers.Message) error {
			time.Sleep(400 * time.Millisecond)
			return ctx.Err()
		}}
		r := start(t, path, broker, outbox.Policy{Lease: 3 * time.Second, PublishTimeout: 2900 * time.Millisecond})
		for i := range 6 {
			r.insert("", strconv.Itoa(i))
		}
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Len(t, broker.delivered(), 6)
		assert.Zero(t, r.proc.Stats().LeaseLost)
	})
}

// The lease is gone while the broker is slow: the late outcome changes nothing, and the new owner's stands.
func TestProcessorLosesItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var r *rig
		broker := &fake{publish: func(context.Context, brokers.Message) error {
			_, err := r.db.ExecContext(t.Context(), "UPDATE outbox_messages SET lock_token = 'somebody', locked_until = locked_until + 3600000000")
			return err
		}}
		r = newRig(t, path, broker, outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		r.insert("k", "1")
		r.start()
		r.until(time.Minute, func() bool { return r.proc.Stats().LeaseLost == 1 })
		r.stop()
		assert.Equal(t, "processing 0", r.status("1"))
		assert.Equal(t, "somebody", r.query("SELECT lock_token FROM outbox_messages"))
	})
}

// A stop in the middle of a batch finishes what is with the broker, releases the rest, and spends no attempt.
func TestProcessorStops(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		var r *rig
		broker := &fake{}
		broker.publish = func(context.Context, brokers.Message) error {
			if len(broker.delivered()) == 50 {
				r.cancel()
			}
			return nil
		}
		r = newRig(t, path, broker, outbox.Policy{})
		t.Cleanup(func() { _ = r.db.Close() })
		for i := range 500 {
			r.insert("", strconv.Itoa(i))
		}
		r.start()
		require.NoError(t, <-r.done)
		assert.Equal(t, "100", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published'"), "the chunk under way")
		assert.Equal(t, "400", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'pending' AND attempts = 0 AND lock_token IS NULL"))
	})
}

// Two processors of one broker share the work, keep each key's order, and deliver each message once.
func TestProcessorsShare(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(context.Context, brokers.Message) error { time.Sleep(time.Millisecond); return nil }}
		first := newRig(t, path, broker, outbox.Policy{BatchSize: 20})
		second := newRig(t, path, broker, outbox.Policy{BatchSize: 20})
		t.Cleanup(func() { _, _ = first.db.Close(), second.db.Close() })
		for i := range 600 {
			first.insert(fmt.Sprintf("k%d", i%30), fmt.Sprintf("%d-%d", i%30, i/30))
		}
		first.start()
		second.start()
		first.until(time.Minute, func() bool { return first.open() == "0" })
		first.stop()
		second.stop()
		next := map[int]int{}
		for _, id := range broker.delivered() {
			var key, n int
			_, err := fmt.Sscanf(id, "%d-%d", &key, &n)
			require.NoError(t, err)
			assert.Equal(t, next[key], n, "key %d", key)
			next[key]++
		}
		assert.Len(t, broker.delivered(), 600)
		assert.Positive(t, first.proc.Stats().Published, "%+v", second.proc.Stats())
		assert.Positive(t, second.proc.Stats().Published, "%+v", first.proc.Stats())
	})
}

func TestNewEngineReportsEverything(t *testing.T) {
	t.Parallel()
	_, err := outbox.NewEngine(outbox.EngineConfig{})
	require.ErrorContains(t, err, "at least one database and one broker")
	store, err := sqlite.New(nil, "")
	require.NoError(t, err)
	_, err = outbox.NewEngine(outbox.EngineConfig{
		Stores:  map[string]outbox.Store{"d": store},
		Brokers: map[string]outbox.Target{"a": {Broker: memory.New(), Policy: outbox.Policy{Workers: -1}}, "b": {Broker: memory.New(), Policy: outbox.Policy{BatchSize: -1}}},
	})
	require.ErrorContains(t, err, `broker "a"`)
	require.ErrorContains(t, err, `broker "b"`)
}

// One processor for each pair of database and broker; a broker that hangs delays no other, in either database.
func TestEngine(t *testing.T) {
	t.Parallel()
	paths := []string{filepath.Join(t.TempDir(), "one.db"), filepath.Join(t.TempDir(), "two.db")}
	synctest.Test(t, func(t *testing.T) {
		good := memory.New()
		hung := &fake{publish: func(ctx context.Context, _ brokers.Message) error {
			<-ctx.Done()
			return brokers.Unavailable(brokers.ScopeBroker, ctx.Err())
		}}
		stores, rigs := map[string]outbox.Store{}, []*rig{}
		for _, path := range paths {
			r := newRig(t, path, good, outbox.Policy{})
			defer r.db.Close()
			rigs = append(rigs, r)
			stores[filepath.Base(path)] = r.store
		}
		engine, err := outbox.NewEngine(outbox.EngineConfig{
			Stores: stores, Brokers: map[string]outbox.Target{"b": {Broker: good}, "hung": {Broker: hung}}, Log: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- engine.Run(ctx) }()
		for i := range 100 {
			for _, r := range rigs {
				r.insert("", strconv.Itoa(i))
				_, err := r.db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload)
					SELECT message_id, 'hung', stream, type, payload FROM outbox_messages ORDER BY id DESC LIMIT 1`)
				require.NoError(t, err)
			}
		}
		engine.Wake("one.db")
		for _, r := range rigs {
			r.until(5*time.Second, func() bool {
				return r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published' AND target_broker = 'b'") == "100"
			})
		}
		stop()
		require.NoError(t, <-done)
		require.Len(t, engine.Stats(), 4)
		for _, r := range rigs {
			assert.Equal(t, "100", r.query("SELECT count(*) FROM outbox_messages WHERE target_broker = 'hung' AND status = 'pending' AND attempts = 0"))
		}
	})
}

// A broker that takes nothing and says nothing is not asked again and again without a pause.
func TestProcessorPausesWhenNothingIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		calls := 0
		broker := &fake{publish: func(context.Context, brokers.Message) error { calls++; return brokers.ErrNotSent }}
		r := newRig(t, path, broker, outbox.Policy{PollMax: 10 * time.Second})
		t.Cleanup(func() { _ = r.db.Close() })
		r.insert("", "x")
		r.start()
		time.Sleep(time.Minute)
		r.stop()
		assert.Positive(t, calls)
		assert.Less(t, calls, 20)
		assert.Equal(t, "pending 0", r.status("x"))
	})
}

// A message that makes an outage of its own does not hold up the others for ever: they pass, and it ends abandoned.
func TestProcessorFindsAMessageThatLooksLikeAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "poison" {
				return brokers.Unavailable(brokers.ScopeBroker, errors.New("connection reset"))
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{Retry: outbox.Retry{BaseDelay: time.Second, MaxDelay: time.Minute}, PollMin: time.Second})
		t.Cleanup(func() { _ = r.db.Close() })
		r.insert("k", "poison")
		for i := range 30 {
			r.insert("", strconv.Itoa(i))
		}
		r.start()
		r.until(2*time.Minute, func() bool { return r.open() == "1" })
		for i := range 100 { // traffic goes on
			r.insert("", strconv.Itoa(100+i))
			time.Sleep(10 * time.Second)
		}
		assert.Equal(t, "abandoned 5", r.status("poison"))
		r.until(time.Minute, func() bool { return r.open() == "0" })
		r.stop()
		assert.Equal(t, "130", r.query("SELECT count(*) FROM outbox_messages WHERE status = 'published'"))
	})
}

// A batch of one row must see past a failed head, too.
func TestProcessorWithBatchesOfOne(t *testing.T) {
	inBubble(t, func(t *testing.T, path string) {
		broker := &fake{publish: func(_ context.Context, m brokers.Message) error {
			if m.ID == "bad" {
				return errors.New("no luck")
			}
			return nil
		}}
		r := newRig(t, path, broker, outbox.Policy{BatchSize: 1})
		t.Cleanup(func() { _ = r.db.Close() })
		r.insert("", "bad")
		r.insert("", "good")
		r.start()
		r.until(30*time.Second, func() bool { return r.status("good") == "published 1" })
		r.stop()
	})
}
