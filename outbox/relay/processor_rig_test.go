package relay_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// rig is a processor on a real SQLite file, with the in-memory broker, in a bubble of synctest:
// hours pass in an instant, for the processor and, SQLite's clock being ours, for the database.
type rig struct {
	t      *testing.T
	db     *sql.DB
	store  *sqlite.Store
	broker brokers.Broker
	cancel context.CancelFunc
	done   chan error
	proc   *relay.Processor
	policy outbox.Policy
}

func newRig(t *testing.T, path string, broker brokers.Broker, policy outbox.Policy) *rig {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	store, err := sqlite.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	proc, err := relay.NewProcessor(relay.ProcessorConfig{
		Database: "test", Broker: "b", Store: store, Target: broker, Policy: policy, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	return &rig{t: t, db: db, store: store, broker: broker, proc: proc, policy: policy, done: make(chan error, 1)}
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
