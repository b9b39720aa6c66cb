package fanout_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
)

// safeLog may be read while a relay writes.
type safeLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// landlord runs a relay with tenants and two brokers.
type landlord struct {
	*testing.T

	brokers map[string]*memory.Broker
	log     safeLog
	relay   *fanout.Relay
	end     func()
}

func runTenants(t *testing.T, section string, opts ...fanout.Option) *landlord {
	t.Helper()
	l := &landlord{T: t, brokers: map[string]*memory.Broker{"default": memory.New(), "partner": memory.New()}}
	cfg, err := config.Parse([]byte("tenants: "+section+"\noutbox: {external_brokers: [partner]}\nbrokers: {default: {type: memory}, partner: {type: memory, destination: partner}}\n"), "fanout.yaml",
		config.WithBrokerTypes(fanout.BrokerTypes()...))
	require.NoError(t, err)
	opts = append(opts, fanout.WithLogger(slog.New(slog.NewTextHandler(&l.log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	for name, broker := range l.brokers {
		opts = append(opts, fanout.WithBroker(name, broker))
	}
	l.relay, err = fanout.Open(t.Context(), cfg, opts...)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.relay.Run(ctx) }()
	l.end = sync.OnceFunc(func() { cancel(); assert.NoError(t, <-done) })
	t.Cleanup(l.end)
	return l
}

func (l *landlord) eventually(condition func() bool, what string) {
	l.Helper()
	require.Eventually(l, condition, 90*time.Second, 20*time.Millisecond, "%s\n%s", what, tail(l.log.String()))
}

// delivered counts the messages of a broker.
func (l *landlord) delivered(broker string) (n int) {
	for _, destination := range l.brokers[broker].Destinations() {
		n += len(l.brokers[broker].Messages(destination))
	}
	return n
}

func tail(text string) string { return text[max(0, len(text)-4000):] }

// sqliteTenant makes a file with an outbox.
func sqliteTenant(t *testing.T) (dsn string, db *sql.DB) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tenant.db")
	db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	store, err := sqlitestore.New(db, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	return file, db
}

func write(t *testing.T, dialect outbox.Dialect, db outbox.Execer, broker string, n int) {
	t.Helper()
	rows := make([]outbox.Row, n)
	for i := range rows {
		rows[i] = outbox.Row{MessageID: uuid.New(), TargetBroker: broker, Stream: "s", Type: "t", OrderingKey: fmt.Sprint(i), Payload: []byte("{}")}
	}
	inserter, err := outbox.NewInserter(dialect, outbox.DefaultTable)
	require.NoError(t, err)
	require.NoError(t, inserter.Insert(t.Context(), db, rows))
}

// Tenants come and go with a file. An entry that is wrong, and a database that is not there, cost no
// other; a file that cannot be read removes nothing.
func TestTenantsFromAFile(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	first, firstDB := sqliteTenant(t)
	second, secondDB := sqliteTenant(t)
	file := filepath.Join(t.TempDir(), "tenants.yaml")
	list := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	list("first: {dsn: '" + first + "'}\nbroken: {driver: orcale, dsn: x}\ngone: {dsn: /no/such/folder/x.db}\n")
	l := runTenants(t, "{file: '"+file+"', driver: sqlite, every: 1s, idle_after: 1s, visit_every: 1s}")
	write(t, outbox.SQLite, firstDB, "default", 3)
	l.eventually(func() bool { return l.delivered("default") == 3 }, "the first tenant's")
	l.eventually(func() bool { return strings.Contains(l.log.String(), `msg="tenant asleep" tenant=first`) }, "it sleeps")
	write(t, outbox.SQLite, firstDB, "partner", 2)
	l.eventually(func() bool { return l.delivered("partner") == 2 }, "that of a sleeping one")

	list("first: {dsn: '" + first + "'}\nsecond: {dsn: '" + second + "'}\n")
	write(t, outbox.SQLite, secondDB, "default", 4)
	l.eventually(func() bool { return l.delivered("default") == 7 }, "that of one which was added")
	list("first: {dsn: ")
	l.eventually(func() bool { return strings.Contains(l.log.String(), `msg="tenants not listed"`) }, "the file is broken")
	write(t, outbox.SQLite, firstDB, "default", 1)
	l.eventually(func() bool { return l.delivered("default") == 8 }, "the last list is in force")
	list("second: {dsn: '" + second + "'}\n")
	l.eventually(func() bool { return strings.Contains(l.log.String(), `msg="tenant removed" tenant=first`) }, "one was removed")
	var relays int
	l.eventually(func() bool {
		require.NoError(t, firstDB.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox_messages_instances").Scan(&relays))
		return relays == 0
	}, "the relay has left it")
	l.end()
	for _, text := range []string{
		`level=ERROR msg="tenant entry refused" tenant=broken`, `level=ERROR msg="tenant not opened" tenant=gone`, `msg="tenant added" tenant=second`,
	} {
		assert.Contains(t, l.log.String(), text)
	}
}

// A commit in the process of the relay wakes a tenant that sleeps, and a tenant can come from Go.
func TestCommitWakesATenant(t *testing.T) {
	t.Parallel()
	dsn, db := sqliteTenant(t)
	var failing sync.Map
	l := runTenants(t, "{idle_after: 1s, every: 1s, visit_every: 1m}", fanout.WithTenants(func(context.Context) (map[string]config.Database, error) {
		if _, fails := failing.Load("now"); fails {
			return nil, errors.New("no list")
		}
		return map[string]config.Database{"acme": {Driver: outbox.SQLite, DSN: config.Secret(dsn)}}, nil
	}))
	write(t, outbox.SQLite, db, "default", 1)
	writer, err := outbox.NewWriter(outbox.WriterConfig{
		Dialect: outbox.SQLite, Events: wakeUps(), Routing: outbox.Routing{External: []outbox.Route{{Broker: "partner", Overrides: outbox.Overrides{Destination: "partner"}}}},
	})
	require.NoError(t, err)
	disconnect, err := l.relay.ConnectWriter("acme", writer)
	require.NoError(t, err)
	defer disconnect()
	l.eventually(func() bool { return strings.Contains(l.log.String(), `msg="tenants found" tenants=1`) }, "it is there")
	failing.Store("now", true)
	for n := range 3 {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		written, err := writer.Insert(t.Context(), tx, envelope.NewEvent(wakeUp{n}))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		written.Committed()
		l.eventually(func() bool { return strings.Count(l.log.String(), `msg="tenant asleep"`) > n }, "delivered, and asleep again")
	}
	assert.Equal(t, 4, l.delivered("default"))
	_, err = l.relay.ConnectDB("acme", nil)
	require.Error(t, err)
}

// schemaTenants makes a schema with an outbox for each of many tenants of one database.
func schemaTenants(t *testing.T, n int) (dsn string, list map[string]config.Database) {
	t.Helper()
	dsn = testenv.Postgres(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	list = map[string]config.Database{}
	for i := range n {
		name := fmt.Sprintf("tenant_%03d", i)
		_, err := conn.Exec(t.Context(), "CREATE SCHEMA "+name)
		require.NoError(t, err)
		list[name] = config.Database{Driver: outbox.Postgres, Notify: true, DSN: config.Secret(inSchema(t, dsn, name))}
	}
	var parts [4]map[string]config.Database // which are migrated at once
	for i, name := range slices.Sorted(maps.Keys(list)) {
		if part := &parts[i%len(parts)]; *part == nil {
			*part = map[string]config.Database{name: list[name]}
		} else {
			(*part)[name] = list[name]
		}
	}
	var group sync.WaitGroup
	for _, part := range parts {
		if len(part) == 0 {
			continue
		}
		cfg, err := config.Parse([]byte("brokers: {default: {type: memory}}\n"), "fanout.yaml")
		require.NoError(t, err)
		cfg.Databases = part
		group.Go(func() { assert.NoError(t, fanout.Migrate(t.Context(), cfg)) })
	}
	group.Wait()
	return dsn, list
}

// visited counts the tenants in which a relay has left a heartbeat.
func visited(t *testing.T, dsn string, list map[string]config.Database) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	for name := range list {
		var there bool
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM "+name+".outbox_messages_instances)").Scan(&there))
		if !there {
			return n
		}
		n++
	}
	return n
}

func inSchema(t *testing.T, dsn, schema string) string {
	t.Helper()
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	values := address.Query()
	values.Set("search_path", schema)
	address.RawQuery = values.Encode()
	return address.String()
}

// A tap is in front of a PostgreSQL and keeps the statements of each session.
type tap struct {
	upstream, addr string

	mu         sync.Mutex
	open, most int // sessions
	sessions   []*tapped
}

type tapped struct {
	statements []string
	ended      bool
}

func newTap(t *testing.T, upstream string) *tap {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	p := &tap{upstream: upstream, addr: listener.Addr().String()}
	go func() {
		for client, err := listener.Accept(); err == nil; client, err = listener.Accept() {
			go p.serve(client)
		}
	}()
	return p
}

func (p *tap) serve(client net.Conn) {
	defer client.Close()
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	go func() { _, _ = io.Copy(client, server) }()
	session := &tapped{}
	p.mu.Lock()
	p.open++
	p.most = max(p.most, p.open)
	p.sessions = append(p.sessions, session)
	p.mu.Unlock()
	for requests, kind := bufio.NewReader(io.TeeReader(client, server)), byte(0); err == nil; kind, err = requests.ReadByte() {
		var length uint32 // the first message has no kind
		_ = binary.Read(requests, binary.BigEndian, &length)
		body := make([]byte, max(length, 4)-4)
		_, _ = io.ReadFull(requests, body)
		if kind == 'P' || kind == 'Q' { // Parse, Query
			p.mu.Lock()
			session.statements = append(session.statements, string(body))
			p.mu.Unlock()
		}
	}
	p.mu.Lock()
	p.open--
	session.ended = true
	p.mu.Unlock()
}

// forget leaves out the sessions until now.
func (p *tap) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions = nil
}

// seen returns how many sessions are open now and were at most, and the statements of those that have ended.
func (p *tap) seen() (open, most int, ended [][]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, session := range p.sessions {
		if session.ended {
			ended = append(ended, session.statements)
		}
	}
	return p.open, p.most, ended
}

// Many tenants that have nothing to do, with two brokers, cost few connections, and one statement for each
// visit, however often they are visited. They are a hundred with FANOUT_TEST_LONG=1.
func TestHundredIdleTenants(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	number := 16
	if testenv.Long() {
		number = 100
	}
	dsn, list := schemaTenants(t, number)
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	tap := newTap(t, address.Host)
	address.Host = tap.addr
	for name, database := range list {
		database.DSN = config.Secret(inSchema(t, address.String(), name))
		list[name] = database
	}
	var mu sync.Mutex
	l := runTenants(t, "{idle_after: 1s, every: 1s, visit_every: 2s}", fanout.WithTenants(func(context.Context) (map[string]config.Database, error) {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(list), nil
	}))
	l.eventually(func() bool { return visited(t, dsn, list) == number && len(l.relay.Stats()) == 0 }, "all were visited, and sleep")
	tap.forget()
	var visits [][]string
	most := 0
	l.eventually(func() bool { // each visit is a session
		_, most, visits = tap.seen()
		return len(visits) >= 2*number
	}, "they are visited again and again")
	assert.LessOrEqual(t, most, 10)
	for _, statements := range visits {
		statements = slices.DeleteFunc(statements, func(s string) bool { return strings.Contains(s, "_instances") }) // a heartbeat is due now and then
		assert.Len(t, statements, 1)
	}

	tenant, err := sql.Open("pgx", list["tenant_012"].DSN.Reveal())
	require.NoError(t, err)
	defer tenant.Close()
	write(t, outbox.Postgres, tenant, "partner", 1)
	l.eventually(func() bool { return l.delivered("partner") == 1 }, "the first message")
	mu.Lock()
	clear(list)
	mu.Unlock()
	require.NoError(t, tenant.Close())
	l.eventually(func() bool { open, _, _ := tap.seen(); return open == 0 && len(l.relay.Stats()) == 0 }, "none is connected")
	assert.Contains(t, l.log.String(), `level=WARN msg="all tenants removed" tenants=`+strconv.Itoa(number))
}
