package postgres

import (
	"context"
	"database/sql"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/internal/store/driver"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/internal/wakeup"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/outbox/relay"
)

// relay is an engine that never polls within the time of a test: only what it hears makes it
// deliver.
type relayRig struct {
	t      *testing.T
	engine *relay.Engine
	broker *memory.Broker
	log    *logText
}

type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func startRelay(t *testing.T, store driver.Delivery) *relayRig {
	t.Helper()
	r := &relayRig{t: t, broker: memory.New(), log: &logText{}}
	var err error
	r.engine, err = relay.NewEngine(relay.EngineConfig{
		Stores:  map[string]driver.Delivery{"db": store},
		Brokers: map[string]relay.Target{"b": {Broker: r.broker, Policy: outbox.Policy{PollMin: time.Hour, PollMax: time.Hour}}},
		Listen:  []string{"db"}, Log: slog.New(slog.NewTextHandler(r.log, nil)),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- r.engine.Run(ctx) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-done) })
	return r
}

func (r *relayRig) state() relay.ListenerState { return r.engine.Stats()[0].Listener }

func (r *relayRig) await(condition func() bool, what string) {
	r.t.Helper()
	require.Eventually(r.t, condition, 20*time.Second, time.Millisecond, what)
}

func (r *relayRig) awaitListening() {
	r.t.Helper()
	r.await(func() bool { return r.state() == relay.ListenerConnected }, "listening")
}

func (r *relayRig) published() int64 { return r.engine.Stats()[0].Published }

// commit writes a row and announces it, as a writer in another process does.
func commit(t *testing.T, db *sql.DB, inserter *outbox.Inserter) {
	t.Helper()
	rows := []outbox.Row{{MessageID: uuid.New(), TargetBroker: "b", Stream: "s", Type: "T", OrderingKey: uuid.NewString(), Payload: []byte("{}")}}
	require.NoError(t, inserter.Insert(t.Context(), db, rows))
	require.NoError(t, wakeup.Notify(t.Context(), db, inserter.Table(), inserter.WakeUps(nil, rows)))
}

func listening(t *testing.T) (dsn string, db *sql.DB, inserter *outbox.Inserter) {
	t.Helper()
	dsn = testenv.Postgres(t)
	_, err := openStore(t, dsn, "").Migrate(t.Context())
	require.NoError(t, err)
	inserter, err = outbox.NewInserter(outbox.Postgres, outbox.DefaultTable)
	require.NoError(t, err)
	return dsn, openDB(t, dsn), inserter
}

// What one process commits, another one delivers at once; of several each row by one.
func TestListen(t *testing.T) {
	t.Parallel()
	dsn, db, inserter := listening(t)
	one, two := startRelay(t, openStore(t, dsn, "")), startRelay(t, openStore(t, dsn, ""))
	one.awaitListening()
	two.awaitListening()
	for n := range int64(20) {
		commit(t, db, inserter)
		one.await(func() bool { return one.published()+two.published() == n+1 }, "delivered")
	}
	_, err := db.ExecContext(t.Context(), `INSERT INTO outbox_messages (message_id, target_broker, stream, type, payload) VALUES (gen_random_uuid(), 'b', 's', 'T', '')`)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `NOTIFY "fanout:outbox_messages"`) // as docs/plain-sql.md says
	require.NoError(t, err)
	one.await(func() bool { return one.published()+two.published() == 21 }, "plain SQL")
	assert.Empty(t, one.log.String()+two.log.String())
}

// Fault 23: the connection that listens is lost. It is made anew, what came meanwhile is found, and
// polling would have found it.
func TestFault23ListenConnectionLost(t *testing.T) {
	t.Parallel()
	dsn, db, inserter := listening(t)
	r := startRelay(t, openStore(t, dsn, ""))
	r.awaitListening()
	kill := func() {
		r.await(func() bool { // the server may not show yet what its session has executed
			var killed int
			require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND query LIKE '%LISTEN "fanout:%' AND pid <> pg_backend_pid()) AS killed`).Scan(&killed))
			require.LessOrEqual(t, killed, 1)
			return killed == 1
		}, "it listens")
	}
	for n := range int64(3) {
		kill()
		commit(t, db, inserter) // announced to nobody, or to the new connection
		r.await(func() bool { return r.published() == n+1 }, "found by the look of the new connection")
		r.awaitListening()
	}
	assert.Contains(t, r.log.String(), "listener disconnected")
	assert.Contains(t, r.log.String(), "listener connected again")
}

// Fault 23: a pooler in transaction mode. LISTEN succeeds, and nothing ever arrives.
func TestFault23PoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	dsn, db, inserter := listening(t)
	address, err := url.Parse(with(t, dsn, "sslmode", "disable")) // muffle reads what is sent
	require.NoError(t, err)
	address.Host = muffle(t, address.Host)
	address.User = url.UserPassword(address.User.Username(), "hunter2")
	r := startRelay(t, openStore(t, address.String(), ""))
	r.await(func() bool { return strings.Contains(r.log.String(), "pooler in transaction mode") }, "it finds out by itself")
	assert.Equal(t, relay.ListenerDisconnected, r.state())
	assert.NotContains(t, r.log.String(), "hunter2")
	commit(t, db, inserter)
	r.engine.Wake("db") // a poll
	r.await(func() bool { return r.published() == 1 }, "the rest works")
}

// A password never stands in what a listener says.
func TestListenErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	address.User = url.UserPassword("nobody", "hunter2")
	pool, err := pgxpool.New(t.Context(), address.String())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := New(pool, "")
	require.NoError(t, err)
	err = store.Listen(t.Context(), func() { t.Error("it cannot have begun") }, func(string) {})
	require.ErrorContains(t, err, "listen for rows in outbox_messages")
	require.ErrorContains(t, err, "nobody")
	assert.NotContains(t, err.Error(), "hunter2")
}

// muffle forwards to a server and drops what it notifies of.
func muffle(t *testing.T, server string) (address string) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var open sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); open.Wait() })
	open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			open.Go(func() { _, _ = io.Copy(upstream, client); _ = upstream.Close() })
			open.Go(func() { dropNotifications(client, upstream); _ = client.Close() })
		}
	})
	return listener.Addr().String()
}

// dropNotifications copies messages of PostgreSQL's protocol, each with its type and length in
// front.
func dropNotifications(dst io.Writer, src io.Reader) {
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(src, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(src, body); err != nil {
			return
		}
		if head[0] == 'A' { // NotificationResponse
			continue
		}
		if _, err := dst.Write(append(head[:5:5], body...)); err != nil {
			return
		}
	}
}
