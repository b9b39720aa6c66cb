package postgres

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
)

// A tracer lists the statements that go to the server.
type tracer struct {
	mu         sync.Mutex
	statements []string
}

func (r *tracer) add(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "--") { // the first word tells what it is
			word, _, _ := strings.Cut(line, " ")
			r.statements = append(r.statements, word)
			return
		}
	}
}

func (r *tracer) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := strings.Join(r.statements, " ")
	r.statements = nil
	return all
}

func (r *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.add(data.SQL)
	return ctx
}
func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (r *tracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	r.add(data.SQL)
}
func (*tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A wire counts round trips: how often something is sent after something was received. It can also
// stop to receive.
type wire struct {
	net.Conn
	trips    *atomic.Int64
	received atomic.Bool
	stall    *stall
}

func (w *wire) Write(b []byte) (int, error) {
	if w.received.Swap(false) {
		w.trips.Add(1)
	}
	return w.Conn.Write(b)
}

func (w *wire) Read(b []byte) (int, error) {
	w.stall.wait()
	n, err := w.Conn.Read(b)
	w.received.Store(true)
	return n, err
}

// wired opens a store whose connections are watched.
func wired(t *testing.T, dsn, table string, trips *atomic.Int64, stall *stall, tracer pgx.QueryTracer) *Store {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 1
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	config.ConnConfig.Tracer = tracer
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &wire{Conn: conn, trips: trips, stall: stall}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := New(pool, table)
	require.NoError(t, err)
	store.water.slow = time.Hour // a list of writers, which a slow claim asks for, is one statement more
	return store
}

// TestStatements counts what each verb costs. A number that grows here is paid for every batch of
// every broker.
func TestStatements(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	_, err := openStore(t, dsn, "counted").Migrate(t.Context())
	require.NoError(t, err)
	var (
		log   tracer
		trips atomic.Int64
	)
	store := wired(t, dsn, "counted", &trips, &stall{}, &log)
	claim := &driver.Claim{Broker: "b", Limit: 10, Window: 10, Lease: time.Hour, Worker: "w"}
	free := &driver.Claim{Broker: "b", Limit: 10, Window: 10, Lease: time.Hour, Worker: "w", Unordered: true}
	waking, freeWaking := *claim, *free
	waking.Wake, freeWaking.Wake = true, true
	lease := driver.Lease{Broker: "b", Duration: time.Hour}
	published := &driver.Completion{Lease: lease, Published: []driver.Delivered{{ID: 1}}}
	deleted := *published
	deleted.DeletePublished = true
	failed := &driver.Completion{Lease: lease, Published: []driver.Delivered{{ID: 1}}, Other: []driver.Outcome{{ID: 2, Status: outbox.StatusFailed}}}
	exchange := func(s *driver.Completion, c *driver.Claim) func() error {
		return func() error { _, err := store.Exchange(t.Context(), s, c); return err }
	}
	const (
		read    = " COMMIT SELECT" + " SELECT" // settings, fetch
		claimed = "BEGIN SELECT WITH COMMIT"   // lock, claim; few rows come with it
		lock    = " SELECT"
		blocks  = "WITH"
	)
	for _, verb := range []struct {
		name, want string
		run        func() error
	}{
		{"claim", claimed, exchange(nil, claim)},
		{"claim without order", "BEGIN SELECT WITH" + read, exchange(nil, free)},
		{"claim and wake", "BEGIN " + blocks + " SELECT WITH COMMIT", exchange(nil, &waking)},
		{"claim without order and wake", "BEGIN " + blocks + " SELECT WITH" + read, exchange(nil, &freeWaking)},
		{"complete", "BEGIN SELECT UPDATE COMMIT", exchange(published, nil)},
		{"complete and claim", "BEGIN SELECT UPDATE COMMIT " + claimed, exchange(published, claim)},
		{"complete and claim where nothing is kept", "BEGIN SELECT DELETE COMMIT " + claimed, exchange(&deleted, claim)},
		{"complete failures and claim", "BEGIN SELECT" + lock + " WITH UPDATE COMMIT " + claimed, exchange(failed, claim)},
		{"renew", "BEGIN SELECT WITH COMMIT", func() error { _, err := store.Renew(t.Context(), lease); return err }},
		{"defer and find nothing", "BEGIN SELECT WITH COMMIT", func() error { _, err := store.Defer(t.Context(), claim); return err }},
		{"ready", "WITH", func() error { _, err := store.Ready(t.Context(), "b", 0); return err }},
		{"nothing", "", exchange(nil, nil)},
	} {
		require.NoError(t, verb.run(), verb.name) // the first time prepares the statements
		log.take()
		trips.Store(0)
		require.NoError(t, verb.run(), verb.name)
		assert.Equal(t, verb.want, log.take(), verb.name)
		assert.LessOrEqual(t, trips.Load(), int64(1), verb.name)
	}
}

// TestRoundTrips counts what a backlog costs with batches of 500: one round trip for each batch,
// which completes the one before.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	filler := openStore(t, dsn, "trips")
	_, err := filler.Migrate(t.Context())
	require.NoError(t, err)
	const (
		batches = 4
		batch   = 500
		rows    = batches * batch
	)
	_, err = filler.pool.Exec(t.Context(), `INSERT INTO trips (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT gen_random_uuid(), 'b', 's', 't', 'key', convert_to(repeat('x', 500), 'UTF8') FROM generate_series(1, $1::int)`, rows)
	require.NoError(t, err)
	var shard int
	require.NoError(t, filler.pool.QueryRow(t.Context(), "SELECT min(shard) FROM trips").Scan(&shard))
	for _, free := range []bool{false, true} {
		var trips atomic.Int64
		store := wired(t, dsn, "trips", &trips, &stall{}, nil)
		claim := &driver.Claim{Broker: "b", Shard: shard, Limit: batch, Window: batch, Lease: time.Hour, Worker: "w", Unordered: free}
		nobody := &driver.Completion{Lease: driver.Lease{Broker: "nobody"}, Published: []driver.Delivered{{ID: 1}}}
		_, err := store.Exchange(t.Context(), nobody, &driver.Claim{Broker: "nobody", Limit: 1, Window: 1, Lease: time.Hour, Unordered: free}) // prepares the statements
		require.NoError(t, err)
		trips.Store(0)
		var completion *driver.Completion
		completed := 0
		for {
			exchanged, err := store.Exchange(t.Context(), completion, claim)
			require.NoError(t, err)
			if completion != nil {
				require.Zero(t, exchanged.Completed.Lost)
				completed += len(completion.Published)
			}
			if len(exchanged.Batch.Messages) == 0 {
				break
			}
			completion = &driver.Completion{Lease: exchanged.Batch.Lease}
			for i := range exchanged.Batch.Messages {
				completion.Published = append(completion.Published, driver.Delivered{ID: exchanged.Batch.Messages[i].ID, BrokerMessageID: "1780000000000-0"})
			}
		}
		assert.Equal(t, rows, completed)
		assert.Equal(t, int64(batches+1), trips.Load(), "unordered: %v", free) // the last one finds nothing
		assert.LessOrEqual(t, float64(trips.Load())/rows, 0.005)
		_, err = filler.pool.Exec(t.Context(), "UPDATE trips SET status = 'pending', published_at = NULL, finished_at = NULL")
		require.NoError(t, err)
	}
}

// stall makes reads wait.
type stall struct {
	mu    sync.Mutex
	block chan struct{}
}

func (s *stall) wait() {
	s.mu.Lock()
	block := s.block
	s.mu.Unlock()
	if block != nil {
		<-block
	}
}

func (s *stall) set(block chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.block = block
}

// TestStoppedClaimer: a process that is stopped while it receives a batch, so large that the server
// must wait for it to read on, does not keep the shard's lock.
func TestStoppedClaimer(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	store := openStore(t, dsn, "interrupted")
	_, err := store.Migrate(t.Context())
	require.NoError(t, err)
	_, err = store.pool.Exec(t.Context(), `INSERT INTO interrupted (message_id, target_broker, stream, type, ordering_key, payload)
		SELECT gen_random_uuid(), 'b', 's', 't', 'key', convert_to(repeat('x', 1000000), 'UTF8') FROM generate_series(1, 40)`)
	require.NoError(t, err)
	var shard int
	require.NoError(t, store.pool.QueryRow(t.Context(), "SELECT shard FROM interrupted LIMIT 1").Scan(&shard))
	claim := &driver.Claim{Broker: "b", Shard: shard, Limit: 100, Window: 100, Lease: time.Hour, Worker: "w"}

	var hold stall
	stopped := wired(t, dsn, "interrupted", new(atomic.Int64), &hold, nil)
	_, err = stopped.Exchange(t.Context(), nil, &driver.Claim{Broker: "nobody", Limit: 1, Window: 1, Lease: time.Hour}) // prepares
	require.NoError(t, err)
	block := make(chan struct{})
	hold.set(block)
	done := make(chan driver.Exchanged, 1)
	go func() {
		result, err := stopped.Exchange(context.WithoutCancel(t.Context()), nil, claim)
		assert.NoError(t, err)
		done <- result
	}()
	for deadline := time.Now().Add(time.Minute); ; {
		var claimed int
		require.NoError(t, store.pool.QueryRow(t.Context(), "SELECT count(*) FROM interrupted WHERE status = 'processing'").Scan(&claimed))
		if claimed == 40 {
			break
		}
		require.True(t, time.Now().Before(deadline), "the claim commits although nobody reads")
	}
	result, err := store.Exchange(t.Context(), nil, claim)
	require.NoError(t, err)
	assert.False(t, result.Batch.Busy)
	assert.Equal(t, 40, result.Batch.Seen)
	close(block)
	assert.Len(t, (<-done).Batch.Messages, 40)
}
