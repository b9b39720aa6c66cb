package inbox_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// consumer is who most messages are for.
const consumer = "billing"

// A place is a database for one test, with the inbox and a table for effects in it.
type place struct {
	t     *testing.T
	db    *gorm.DB
	dial  func() gorm.Dialector
	table string
	dsn   string // of PostgreSQL
}

// A database is a kind that tests run on.
type database struct {
	name string
	dial func(t *testing.T) func() gorm.Dialector
}

var databases = []database{
	{"sqlite", func(t *testing.T) func() gorm.Dialector {
		t.Helper()
		path := filepath.Join(t.TempDir(), "test.db")
		return func() gorm.Dialector {
			return sqlite.Open(path + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
		}
	}},
	{"postgres", func(t *testing.T) func() gorm.Dialector {
		t.Helper()
		dsn := testenv.Postgres(t)
		return func() gorm.Dialector { return postgres.Open(dsn) }
	}},
	{"sqlserver", func(t *testing.T) func() gorm.Dialector {
		t.Helper()
		dsn := testenv.SQLServer(t)
		return func() gorm.Dialector { return sqlserver.Open(dsn) }
	}},
	{"mysql", onMySQL("?parseTime=true")},
	{"mysql, found rows", onMySQL("?clientFoundRows=true&interpolateParams=true&loc=Asia%2FTokyo")},
}

func onMySQL(parameters string) func(t *testing.T) func() gorm.Dialector {
	return func(t *testing.T) func() gorm.Dialector {
		t.Helper()
		dsn := testenv.MySQL(t) + parameters
		return func() gorm.Dialector { return mysql.Open(dsn) }
	}
}

func (d database) String() string { return d.name }

// onEach runs a test on every database that can be had, or on the one whose turn it is.
func onEach(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	testenv.OnEach(t, databases, database.String, func(t *testing.T, on database) {
		test(t, newPlace(t, on.dial(t)))
	})
}

// on is a place on one kind of database.
func on(t *testing.T, name string) *place {
	t.Helper()
	for _, database := range databases {
		if database.name == name {
			return newPlace(t, database.dial(t))
		}
	}
	t.Fatalf("there is no database %q", name)
	return nil
}

func newPlace(t *testing.T, dial func() gorm.Dialector) *place {
	t.Helper()
	p := &place{t: t, dial: dial, dsn: dsnOf(dial()), table: "inbox_" + strings.ToLower(rand.Text()[:8])} // on SQL Server tests share a database
	p.db = p.open(&gorm.Config{})
	applied, err := inbox.Migrate(t.Context(), p.db, p.at())
	require.NoError(t, err)
	require.Equal(t, []string{"0001_inbox"}, applied)
	require.NoError(t, p.db.Exec("CREATE TABLE "+p.effects()+" (message_id varchar(36) NOT NULL, what varchar(100) NOT NULL)").Error)
	t.Cleanup(func() {
		for _, table := range []string{p.table, p.table + "_migrations", p.effects()} {
			p.exec("DROP TABLE " + table)
		}
	})
	return p
}

func dsnOf(dialector gorm.Dialector) string {
	if d, ok := dialector.(*postgres.Dialector); ok {
		return d.DSN
	}
	return ""
}

// open is another handle on the same database.
func (p *place) open(config *gorm.Config) *gorm.DB {
	p.t.Helper()
	config.Logger = logger.Discard
	db, err := gorm.Open(p.dial(), config)
	require.NoError(p.t, err)
	pool, err := db.DB()
	require.NoError(p.t, err)
	p.t.Cleanup(func() {
		// Where a context was cancelled database/sql rolls back on its own time.
		require.Eventually(p.t, func() bool { return pool.Stats().InUse == 0 }, 30*time.Second, time.Millisecond, "a connection stays in use")
		require.NoError(p.t, pool.Close())
	})
	return db
}

// at is the option for this place's table.
func (p *place) at() inbox.Option { return inbox.WithTable(p.table) }

func (p *place) effects() string { return p.table + "_effects" }

// id is a message's key as the table has it.
func (p *place) id(m *inbox.Message) any {
	if p.db.Name() == "mysql" {
		return m.Key[:]
	}
	return m.Key.String()
}

// plain is a handle for what tests look at.
func (p *place) plain() *gorm.DB {
	return p.db.Session(&gorm.Session{NewDB: true, Context: context.Background()})
}

func (p *place) exec(text string, args ...any) {
	p.t.Helper()
	require.NoError(p.t, p.plain().Exec(text, args...).Error)
}

// message is a fresh one.
func (p *place) message() *inbox.Message {
	p.t.Helper()
	id := uuid.Must(uuid.NewV7())
	payload := `{"specversion":"1.0","id":"` + id.String() + `","source":"/test","type":"Test.Happened.v1","data":{"n":1}}`
	m, err := inbox.Decode([]byte(payload), map[string]string{"tenant": "t1"})
	require.NoError(p.t, err)
	require.Equal(p.t, id, m.Key)
	require.Equal(p.t, envelope.FormatCloudEvents, m.Format)
	m.Consumer, m.Source, m.MaxAttempts = consumer, "orders", 2
	return m
}

// effect is a handler that writes a row.
func (p *place) effect(m *inbox.Message) func(tx *gorm.DB) error {
	return func(tx *gorm.DB) error {
		return tx.Exec("INSERT INTO "+p.effects()+" (message_id, what) VALUES (?, ?)", m.Key.String(), "done").Error
	}
}

// handle hands a message to Handle with the effect as its handler.
func (p *place) handle(m *inbox.Message, opts ...inbox.Option) (inbox.Outcome, error) {
	return p.handleWith(p.effect(m), m, opts...)
}

func (p *place) handleWith(f func(tx *gorm.DB) error, m *inbox.Message, opts ...inbox.Option) (inbox.Outcome, error) {
	return inbox.Handle(p.t.Context(), p.db, m, f, append([]inbox.Option{p.at()}, opts...)...)
}

// row is a message in the table.
type row struct {
	Status     string
	Attempts   int
	Type       string
	Source     string
	LastError  string
	Attributes string
	Payload    []byte
}

// row reads a message; nil where there is none.
func (p *place) row(m *inbox.Message) *row {
	p.t.Helper()
	var rows []row
	require.NoError(p.t, p.plain().Raw("SELECT status, attempts, coalesce(type, '') AS type, coalesce(source, '') AS source, "+
		"coalesce(last_error, '') AS last_error, coalesce(attributes, '') AS attributes, payload FROM "+p.table+
		" WHERE consumer = ? AND message_id = ? AND source = ?", m.Consumer, p.id(m), m.Source).Scan(&rows).Error)
	if len(rows) == 0 {
		return nil
	}
	return &rows[0]
}

// done is how often a message's effect has happened.
func (p *place) done(m *inbox.Message) int {
	p.t.Helper()
	return p.count("SELECT count(*) FROM "+p.effects()+" WHERE message_id = ?", m.Key.String())
}

func (p *place) count(text string, args ...any) int {
	p.t.Helper()
	var n sql.NullInt64
	require.NoError(p.t, p.plain().Raw(text, args...).Scan(&n).Error)
	return int(n.Int64)
}
