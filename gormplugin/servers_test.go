package gormplugin_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/glebarez/sqlite"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	pgstore "github.com/gorm-fanout/fanout/outbox/postgres"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
	mssqlstore "github.com/gorm-fanout/fanout/outbox/sqlserver"
)

// A place holds the tables of one case. Their names start with its prefix, so that many cases share
// a database.
type place struct {
	prefix  string
	changed *atomic.Bool // the case has changed the tables themselves
	dial    func(readOnly bool) gorm.Dialector
	silent  bool // INSERT and DELETE return nothing, as on MySQL, unlike on MariaDB
	refuses bool // MySQL refuses to prepare savepoints (error 1295), unlike MariaDB
}

// A database is a kind that the cases run on. start gets the test of the whole group and returns
// what makes a place for one case.
type database struct {
	name  string
	start func(t *testing.T) func(t *testing.T) place
}

func (d database) String() string { return d.name }

var databases = []database{
	{"sqlite", startSQLite},
	{"postgres", startPostgres},
	{"sqlserver", startSQLServer},
	{"mysql", startMySQL},
	{"mysql without RETURNING", startMySQLWithoutReturning},
}

// onEach runs a test on every database that can be had, or on the one whose turn it is.
func onEach(t *testing.T, test func(b *bench), opts ...gormplugin.Option) {
	t.Helper()
	testenv.OnEach(t, databases, database.String, func(t *testing.T, on database) {
		run(t, on.start(t)(t), test, opts)
	})
}

// runCases runs each case on every database that can be had, or on the one whose turn it is.
func runCases(t *testing.T, cases map[string]func(b *bench), opts ...gormplugin.Option) {
	t.Helper()
	if !testenv.Long() {
		for name, test := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				onEach(t, test, opts...)
			})
		}
		return
	}
	testenv.OnEach(t, databases, database.String, func(t *testing.T, on database) {
		settle := on.start(t)
		for name, test := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				run(t, settle(t), test, opts)
			})
		}
	})
}

// run is one case, with what holds after every case: it leaves no connection in use.
func run(t *testing.T, at place, test func(b *bench), options []gormplugin.Option) {
	t.Helper()
	b := newBench(t, at, options)
	defer b.settled()
	test(b)
}

// The tables are the same for every case: they are made once, and each case gets a copy of the
// file.
var sqliteTemplate = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "fanout")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "template.db")
	at := place{prefix: "shop_", changed: new(atomic.Bool), dial: func(bool) gorm.Dialector { return sqlite.Open(path) }}
	db, err := gorm.Open(at.dial(false), at.config(nil))
	if err != nil {
		return nil, err
	}
	sqlDB, err := db.DB()
	if err != nil {
		return nil, err
	}
	defer sqlDB.Close()
	if err := migrate(db, at, func(sqlDB *sql.DB, table string) (migrator, error) { return sqlitestore.New(sqlDB, table) }); err != nil {
		return nil, err
	}
	if err := sqlDB.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func startSQLite(*testing.T) func(t *testing.T) place {
	return func(t *testing.T) place {
		t.Helper()
		template, err := sqliteTemplate()
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "test.db")
		require.NoError(t, os.WriteFile(path, template, 0o600))
		return place{prefix: "shop_", changed: new(atomic.Bool), dial: func(readOnly bool) gorm.Dialector {
			dsn := path + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
			if readOnly {
				dsn += "&_pragma=query_only(1)"
			}
			return sqlite.Open(dsn)
		}}
	}
}

// postgresPlaces are the places of all tests, in one database: making a database or tables takes
// longer than a case. Places are emptied and used again, unless a case has failed or changed them.
var postgresPlaces struct {
	sync.Mutex

	dsn   string
	admin *sql.DB
	drop  func() error
	made  int
	free  []place
}

func startPostgres(*testing.T) func(t *testing.T) place {
	return func(t *testing.T) place {
		t.Helper()
		at := takePostgresPlace(t)
		t.Cleanup(func() {
			if t.Failed() || at.changed.Load() {
				return
			}
			_, err := postgresPlaces.admin.ExecContext(context.Background(), strings.ReplaceAll(emptyPlace, "{{prefix}}", at.prefix))
			if assert.NoError(t, err) {
				postgresPlaces.Lock()
				defer postgresPlaces.Unlock()
				postgresPlaces.free = append(postgresPlaces.free, at)
			}
		})
		return at
	}
}

// takePostgresPlace returns a place that is free, or a new one.
func takePostgresPlace(t *testing.T) place {
	t.Helper()
	p := &postgresPlaces
	p.Lock()
	defer p.Unlock()
	if p.admin == nil {
		p.dsn, p.drop = testenv.PostgresUntilDropped(t)
		var err error
		p.admin, err = sql.Open("pgx", p.dsn)
		require.NoError(t, err)
	}
	if last := len(p.free) - 1; last >= 0 {
		at := p.free[last]
		p.free = p.free[:last]
		return at
	}
	p.made++
	return newPostgresPlace(t, p.dsn, fmt.Sprintf("c%d_", p.made))
}

// dropPostgresPlaces ends what the tests have shared.
func dropPostgresPlaces() error {
	if postgresPlaces.admin == nil {
		return nil
	}
	return errors.Join(postgresPlaces.admin.Close(), postgresPlaces.drop())
}

const emptyPlace = `DO $$ DECLARE r record; BEGIN
	FOR r IN SELECT tablename FROM pg_tables WHERE starts_with(tablename, '{{prefix}}') AND tablename NOT LIKE '%_migrations' LOOP
		EXECUTE format('DELETE FROM %I', r.tablename);
	END LOOP;
	PERFORM setval(format('%I', sequencename)::regclass, 1, false) FROM pg_sequences WHERE starts_with(sequencename, '{{prefix}}');
END $$`

func newPostgresPlace(t *testing.T, dsn, prefix string) place {
	t.Helper()
	at := place{prefix: prefix, changed: new(atomic.Bool), dial: func(readOnly bool) gorm.Dialector {
		if readOnly {
			return postgres.Open(dsn + "&default_transaction_read_only=on")
		}
		return postgres.Open(dsn)
	}}
	store, err := pgstore.Open(t.Context(), dsn, at.outbox(), pgstore.WithMaxConns(1))
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	migrateOpen(t, at, func(*sql.DB, string) (migrator, error) { return store, nil })
	return at
}

func startSQLServer(t *testing.T) func(t *testing.T) place {
	t.Helper()
	dsn := testenv.SQLServer(t)
	return func(t *testing.T) place {
		t.Helper()
		prefix := "fanout_test_" + strings.ToLower(rand.Text()[:8]) + "_"
		at := place{prefix: prefix, changed: new(atomic.Bool), dial: func(bool) gorm.Dialector { return sqlserver.Open(dsn) }}
		t.Cleanup(func() { dropAll(t, at) })
		migrateOpen(t, at, func(sqlDB *sql.DB, table string) (migrator, error) { return mssqlstore.New(sqlDB, table) })
		return at
	}
}

// dropAll removes the tables of a case from a server that many tests share.
func dropAll(t *testing.T, at place) {
	t.Helper()
	db, err := gorm.Open(at.dial(false), at.config(nil))
	require.NoError(t, err)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	defer sqlDB.Close()
	var tables []string
	require.NoError(t, db.Raw("SELECT name FROM sys.tables WHERE LEFT(name, ?) = ?", len(at.prefix), at.prefix).Scan(&tables).Error)
	for _, table := range tables {
		assert.NoError(t, db.Exec("DROP TABLE "+table).Error)
	}
}

func migrateOpen(t *testing.T, at place, store func(*sql.DB, string) (migrator, error)) {
	t.Helper()
	db, err := gorm.Open(at.dial(false), at.config(nil))
	require.NoError(t, err)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	defer sqlDB.Close()
	require.NoError(t, migrate(db, at, store))
}
