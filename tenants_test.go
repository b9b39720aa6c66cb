package fanout_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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

// Many tenants that have nothing to do, with two brokers, cost few connections, and one statement for each
// visit, however often they are visited. They are a hundred with FANOUT_TEST_LONG=1.
func TestHundredIdleTenants(t *testing.T) {
	t.Parallel()
	number := 25
	if testenv.Long() {
		number = 100
	}
	dsn, list := schemaTenants(t, number)
	var mu sync.Mutex
	l := runTenants(t, "{idle_after: 1s, every: 1s, visit_every: 2s}", fanout.WithTenants(func(context.Context) (map[string]config.Database, error) {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(list), nil
	}))
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	database := strings.Trim(address.Path, "/")
	address.Path = "/postgres" // so that what the test asks does not count
	conn, err := pgx.Connect(t.Context(), address.String())
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	connections := func() (n int) {
		require.NoError(t, conn.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'", database).Scan(&n))
		return n
	}
	// A session begins with a transaction of the server's own.
	counted := func() (statements, sessions int) {
		require.NoError(t, conn.QueryRow(t.Context(),
			"SELECT xact_commit - sessions, sessions FROM pg_stat_database WHERE datname = $1", database).Scan(&statements, &sessions))
		return statements, sessions
	}
	l.eventually(func() bool { return visited(t, dsn, list) == number && len(l.relay.Stats()) == 0 }, "all were visited, and sleep")
	most, statements, visits := 0, 0, 0
	before, sessions := counted()
	l.eventually(func() bool { // each visit is a session
		most = max(most, connections())
		statements, visits = counted()
		statements, visits = statements-before, visits-sessions
		return visits >= 2*number
	}, "they are visited again and again")
	perVisit := float64(statements) / float64(visits)
	t.Logf("%d statements in %d visits, %.2f each; at most %d connections", statements, visits, perVisit, most)
	assert.LessOrEqual(t, most, 10)
	assert.LessOrEqual(t, perVisit, 1.2, "a session that begins or ends meanwhile counts in part")

	tenant, err := sql.Open("pgx", list["tenant_012"].DSN.Reveal())
	require.NoError(t, err)
	defer tenant.Close()
	write(t, outbox.Postgres, tenant, "partner", 1)
	l.eventually(func() bool { return l.delivered("partner") == 1 }, "the first message")
	mu.Lock()
	clear(list)
	mu.Unlock()
	require.NoError(t, tenant.Close())
	l.eventually(func() bool { return connections() == 0 && len(l.relay.Stats()) == 0 }, "none is connected")
	assert.Contains(t, l.log.String(), `level=WARN msg="all tenants removed" tenants=`+strconv.Itoa(number))
}
