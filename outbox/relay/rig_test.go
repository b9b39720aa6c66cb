package relay

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/admin"
	"github.com/gorm-fanout/fanout/outbox/sqlite"
)

// rig is a processor on a real SQLite file in a bubble of synctest: hours pass in an instant, for
// the processor and, SQLite's clock being ours, for the database.
type rig struct {
	t      *testing.T
	db     *sql.DB
	store  *sqlite.Store
	config ProcessorConfig
	proc   *Processor
	log    *lines
	stop   func() // of the processor that start began
}

// inBubble runs a test in which time is faked.
func inBubble(t *testing.T, test func(t *testing.T, path string)) {
	t.Helper()
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	synctest.Test(t, func(t *testing.T) { test(t, path) })
}

// newRig makes a processor that does nothing yet. Each change adapts its configuration: a store
// that misbehaves wraps the one that it finds there.
func newRig(t *testing.T, path string, broker brokers.Broker, policy outbox.Policy, changes ...func(*ProcessorConfig)) *rig {
	t.Helper()
	db, err := sql.Open("sqlite", path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	store, err := sqlite.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	r := &rig{t: t, db: db, store: store, log: newLog(t)}
	r.config = ProcessorConfig{Database: "test", Broker: "b", Store: store, Target: broker, Policy: policy, Log: r.log.logger(slog.LevelInfo)}
	for _, change := range changes {
		change(&r.config)
	}
	r.proc, err = NewProcessor(r.config)
	require.NoError(t, err)
	return r
}

// start is newRig with a processor that runs.
func start(t *testing.T, path string, broker brokers.Broker, policy outbox.Policy, changes ...func(*ProcessorConfig)) *rig {
	t.Helper()
	r := newRig(t, path, broker, policy, changes...)
	r.start()
	return r
}

func (r *rig) start() { r.stop = r.run(r.proc.Run) }

// another starts a further relay on the same table.
func (r *rig) another(changes ...func(*ProcessorConfig)) (stop func()) {
	r.t.Helper()
	config := r.config
	for _, change := range changes {
		change(&config)
	}
	proc, err := NewProcessor(config)
	require.NoError(r.t, err)
	return r.run(proc.Run)
}

// engine runs an engine on the table, or on the stores that the configuration names.
func (r *rig) engine(config EngineConfig) (engine *Engine, stop func()) {
	r.t.Helper()
	if config.Stores == nil {
		config.Stores = map[string]driver.Delivery{"d": r.store}
	}
	config.Log = r.config.Log
	engine, err := NewEngine(config)
	require.NoError(r.t, err)
	return engine, r.run(engine.Run)
}

func (r *rig) run(run func(context.Context) error) (stop func()) { return running(r.t, run) }

// running runs until stop is called, at the latest until the test ends.
func running(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); require.NoError(t, <-done) })
	t.Cleanup(stop)
	return stop
}

// A row to be inserted. Its payload is its name in the test.
type row struct {
	key, name string
	stream    string // "s" where it is empty
	priority  int
	in        time.Duration // until it is available
	headers   string
}

// insert writes rows with one statement: the driver parses one for each call.
func (r *rig) insert(rows ...row) {
	r.t.Helper()
	type column = map[string]any
	columns := make([]column, len(rows))
	for i, row := range rows {
		columns[i] = column{"id": uuid.NewString(), "stream": cmp.Or(row.stream, "s"), "key": row.key, "priority": row.priority, "headers": row.headers, "name": row.name}
		if row.in > 0 {
			columns[i]["available"] = time.Now().Add(row.in).UnixMicro()
		}
	}
	list, err := json.Marshal(columns)
	require.NoError(r.t, err)
	r.exec(`INSERT INTO outbox_messages (message_id, target_broker, stream, type, ordering_key, priority, available_at, headers, payload)
		SELECT value ->> 'id', 'b', value ->> 'stream', 'T', nullif(value ->> 'key', ''), value ->> 'priority', value ->> 'available',
			nullif(value ->> 'headers', ''), CAST(value ->> 'name' AS BLOB) FROM json_each(?) ORDER BY key`, string(list))
}

// fill writes n rows at once: of is the i-th.
func (r *rig) fill(n int, of func(i int) row) {
	r.t.Helper()
	rows := make([]row, n)
	for i := range rows {
		rows[i] = of(i)
	}
	r.insert(rows...)
}

// loose makes rows without a key, named prefix0, prefix1 ...
func loose(prefix string) func(int) row {
	return func(i int) row { return row{name: fmt.Sprint(prefix, i)} }
}

// keyed makes rows of so many keys in turn, named prefix0, prefix1 ...
func keyed(prefix string, keys int) func(int) row {
	return func(i int) row { return row{key: fmt.Sprint(prefix, "-", i%keys), name: fmt.Sprint(prefix, i)} }
}

func (r *rig) exec(text string, args ...any) {
	r.t.Helper()
	_, err := r.db.ExecContext(context.WithoutCancel(r.t.Context()), text, args...)
	require.NoError(r.t, err)
}

func (r *rig) query(text string, args ...any) string {
	r.t.Helper()
	var answer sql.NullString
	require.NoError(r.t, r.db.QueryRowContext(r.t.Context(), text, args...).Scan(&answer))
	return answer.String
}

func (r *rig) count(where string) (n int) {
	r.t.Helper()
	require.NoError(r.t, r.db.QueryRowContext(r.t.Context(), "SELECT count(*) FROM outbox_messages WHERE "+where).Scan(&n))
	return n
}

// open counts the rows that are not finished, charged those of them and of the abandoned ones that
// have spent attempts.
func (r *rig) open() int    { return r.count("finished_at IS NULL") }
func (r *rig) charged() int { return r.count("attempts > 0 AND status <> 'published'") }

func (r *rig) status(name string) string {
	return r.query("SELECT status || ' ' || attempts FROM outbox_messages WHERE CAST(payload AS TEXT) = ?", name)
}

// until lets time pass until the condition holds, at most the given time.
func (r *rig) until(limit time.Duration, condition func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(limit); !condition(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %s", limit)
		}
		time.Sleep(max(limit/200, 10*time.Millisecond)) // of the bubble's time
	}
}

// drained lets time pass until no row is open.
func (r *rig) drained(limit time.Duration) {
	r.t.Helper()
	r.until(limit, func() bool { return r.open() == 0 })
}

// fake is a broker whose answers a test writes. It keeps the order of keys, as brokers must.
type fake struct {
	publish func(ctx context.Context, m brokers.Message) error // nil: it accepts everything
	healed  atomic.Bool                                        // ends what failingWith has begun
	calls   atomic.Int64                                       // messages that it was given

	mu   sync.Mutex
	seen []string
}

// failingWith is a broker that fails with err, where it is no panic, the messages that match, until it
// is healed.
func failingWith(err error, match func(m brokers.Message) bool) *fake {
	f := &fake{}
	f.publish = func(_ context.Context, m brokers.Message) error {
		if f.healed.Load() || !match(m) {
			return nil
		}
		return err
	}
	return f
}

func all(brokers.Message) bool { return true }

// named matches messages whose name has a prefix, to those of a destination.
func named(prefix string) func(brokers.Message) bool {
	return func(m brokers.Message) bool { return strings.HasPrefix(m.ID, prefix) }
}

func to(destination string) func(brokers.Message) bool {
	return func(m brokers.Message) bool { return m.Destination == destination }
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
		f.calls.Add(1)
		var err error
		if f.publish != nil {
			err = f.publish(ctx, m)
		}
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

func (*fake) Capabilities() brokers.Capabilities { return brokers.Capabilities{Ordering: true} }
func (*fake) Ping(context.Context) error         { return nil }
func (*fake) Close(context.Context) error        { return nil }

// delivered lists what was delivered, in order; those whose name has the prefix.
func (f *fake) delivered(prefix string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	names := []string{}
	for _, name := range f.seen {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names
}

// names are prefix0, prefix1 ...
func names(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint(prefix, i)
	}
	return names
}

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// newLog makes a log that is shown where the test fails.
func newLog(t *testing.T) *lines {
	t.Helper()
	log := &lines{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(strings.Join(log.with(), ""))
		}
	})
	return log
}

func (l *lines) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: level}))
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// with are the lines that contain all of these.
func (l *lines) with(parts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
lines:
	for line := range strings.Lines(l.text.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		found = append(found, line)
	}
	return found
}

// count is how many lines contain all of these.
func (l *lines) count(parts ...string) int { return len(l.with(parts...)) }

// take returns the lines that contain all of these, and forgets everything.
func (l *lines) take(parts ...string) []string {
	found := l.with(parts...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
	return found
}

// stub is a store of which a test writes what it needs; the rest answers that there is nothing.
type stub struct{}

func (stub) Exchange(_ context.Context, completion *driver.Completion, _ *driver.Claim) (e driver.Exchanged, _ error) {
	if completion != nil {
		e.Completed = &driver.Completed{}
	}
	return e, nil
}

func (stub) Renew(context.Context, driver.Lease) (int, error) { return 1 << 20, nil }
func (stub) Ready(context.Context, string, wakeup.Set) (driver.Readiness, error) {
	return driver.Readiness{}, nil
}
func (stub) Defer(context.Context, *driver.Claim) (int, error)          { return 0, nil }
func (stub) Alone(context.Context, string, string, int64) (bool, error) { return false, nil }
func (stub) Holder(context.Context, string, int) (driver.Holder, error) { return driver.Holder{}, nil }
func (stub) Shards() int                                                { return 1 }
func (stub) Backlog(context.Context) ([]admin.Backlog, error)           { return nil, nil }
func (stub) Stranded(context.Context, string, admin.Position, int) (admin.List, error) {
	return admin.List{}, nil
}
func (stub) Pauses(context.Context) ([]admin.Pause, error)     { return nil, nil }
func (stub) Heartbeat(context.Context, admin.Instance) error   { return nil }
func (stub) Leave(context.Context, uuid.UUID) error            { return nil }
func (stub) Diagnose(context.Context) (admin.Diagnosis, error) { return admin.Diagnosis{}, nil }
func (stub) Watch(context.Context) ([]admin.Finding, error)    { return nil, nil }
func (stub) Close() error                                      { return nil }

// message is a row as a claim returns it.
func message(id int64) driver.Message {
	return driver.Message{ID: id, MessageID: uuid.NewString(), Stream: "s", Type: "T", ContentType: "application/json", Payload: []byte("{}")}
}

// taker is a broker that takes everything after a while, and notes how many messages each call has.
type taker struct {
	takes time.Duration
	sizes *[]int // may be nil
}

func (b taker) Publish(_ context.Context, messages []brokers.Message) []brokers.Result {
	if b.sizes != nil {
		*b.sizes = append(*b.sizes, len(messages))
	}
	if b.takes > 0 {
		time.Sleep(b.takes)
	}
	return make([]brokers.Result, len(messages))
}
func (taker) Capabilities() brokers.Capabilities { return brokers.Capabilities{} }
func (taker) Ping(context.Context) error         { return nil }
func (taker) Close(context.Context) error        { return nil }
