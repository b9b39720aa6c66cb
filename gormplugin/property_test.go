package gormplugin_test

import (
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"flag"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"
	"pgregory.net/rapid"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	pgstore "github.com/gorm-fanout/fanout/outbox/postgres"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
	mssqlstore "github.com/gorm-fanout/fanout/outbox/sqlserver"
)

// site is a database on which programs run one after the other.
type site struct {
	t       *testing.T
	dialect outbox.Dialect
	prefix  string // of the tables
	strict  bool
	mysql   bool // and not MariaDB: its DELETE returns nothing, and it refuses to prepare savepoints (error 1295)
	open    func() gorm.Dialector
	migrate func(sqlDB *sql.DB)

	db     *gorm.DB
	sqlDB  *sql.DB
	plugin *gormplugin.Plugin
	dirty  bool // a program has failed, and may have kept a connection
}

type kind struct {
	start  func(t *testing.T, s *site)
	strict bool
}

// sites are the databases that programs run on.
var sites = map[string]kind{
	"sqlite":             {start: siteOnSQLite},
	"sqlite, strict":     {start: siteOnSQLite, strict: true},
	"postgres":           {start: siteOnPostgres},
	"sql server, strict": {start: siteOnSQLServer, strict: true},
	"mysql":              {start: func(t *testing.T, s *site) { siteOnMySQL(t, s, "parseTime=true") }},
	"mysql, strict":      {start: func(t *testing.T, s *site) { siteOnMySQL(t, s, "parseTime=true&interpolateParams=true") }, strict: true},
}

// manyPrograms is how many each site runs with FANOUT_TEST_LONG=1, unless -rapid.checks says otherwise; without, it runs
// rapid's 100.
const manyPrograms = "2000"

func init() { //nolint:gochecknoinits // a default must be in place before the flags are read
	if testenv.Long() {
		_ = flag.Set("rapid.checks", manyPrograms)
	}
}

// Whatever a program does with transactions, savepoints, statements that fail and events raised at
// any time: the outbox, the pending events, the rows and the functions after the commit are those of
// the model.
func TestProgramsDoWhatTheModelSays(t *testing.T) {
	t.Parallel()
	for name, at := range sites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &site{t: t, strict: at.strict}
			at.start(t, s)
			programs := programs(s.dialect, s.mysql)
			rapid.Check(t, func(t *rapid.T) { s.compare(t, programs.Draw(t, "program")) })
		})
	}
}

// compare runs a program, for real and in the model, and returns the outbox.
func (s *site) compare(t require.TestingT, program []op) []string {
	s.clean()
	s.dirty = true
	m := newModel(s.dialect, s.strict)
	require.Equal(t, m.run(program), newRunner(s).run(t, program))
	s.dirty = false
	var rows []string
	for _, r := range m.committed.outbox {
		rows = append(rows, r.String())
	}
	return rows
}

func siteOnSQLite(t *testing.T, s *site) {
	t.Helper()
	n := 0
	directory := t.TempDir()
	s.dialect = outbox.SQLite
	s.open = func() gorm.Dialector {
		n++ // a connection that a failed program has kept locks its file, and not the next one
		return sqlite.Open(filepath.Join(directory, strconv.Itoa(n)) + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
	}
	s.migrate = func(sqlDB *sql.DB) {
		store, err := sqlitestore.New(sqlDB, s.prefix+"outbox")
		require.NoError(t, err)
		_, err = store.Migrate(t.Context())
		require.NoError(t, err)
	}
}

func siteOnPostgres(t *testing.T, s *site) {
	t.Helper()
	dsn := testenv.Postgres(t) + "&synchronous_commit=off&lock_timeout=2000"
	s.dialect = outbox.Postgres
	s.open = func() gorm.Dialector {
		s.prefix = "p" + strings.ToLower(rand.Text()[:8]) + "_"
		return postgres.Open(dsn)
	}
	s.migrate = func(*sql.DB) {
		store, err := pgstore.Open(t.Context(), dsn, s.prefix+"outbox", pgstore.WithMaxConns(1))
		require.NoError(t, err)
		_, err = store.Migrate(t.Context())
		require.NoError(t, err)
		require.NoError(t, store.Close())
	}
}

func siteOnSQLServer(t *testing.T, s *site) {
	t.Helper()
	dsn := testenv.SQLServer(t)
	s.dialect = outbox.SQLServer
	s.open = func() gorm.Dialector {
		s.prefix = "fanout_test_" + strings.ToLower(rand.Text()[:8]) + "_"
		return sqlserver.Open(dsn)
	}
	s.migrate = func(sqlDB *sql.DB) {
		store, err := mssqlstore.New(sqlDB, s.prefix+"outbox")
		require.NoError(t, err)
		_, err = store.Migrate(t.Context())
		require.NoError(t, err)
		db, prefix := s.db, s.prefix
		t.Cleanup(func() {
			for _, table := range []string{
				"outbox", "outbox_key_blocks", "outbox_pauses", "outbox_instances", "outbox_audit", "outbox_migrations", "crates", "items", "purses", "seals",
			} {
				_ = db.Exec("DROP TABLE " + prefix + table)
			}
		})
	}
}

// clean makes the database as new.
func (s *site) clean() {
	if s.db != nil && (!s.dirty || s.sqlDB.Stats().InUse == 0) {
		for _, table := range []string{"outbox", "crates", "items", "purses", "seals"} {
			require.NoError(s.t, s.db.Exec("DELETE FROM "+s.prefix+table).Error)
		}
		return
	}
	if s.db != nil {
		_ = s.sqlDB.Close()
	}
	db, err := gorm.Open(s.open(), &gorm.Config{
		PrepareStmt: s.strict, // one more way to run the same programs
		Logger:      logger.Discard, NamingStrategy: schema.NamingStrategy{TablePrefix: s.prefix}, DisableForeignKeyConstraintWhenMigrating: true,
	})
	require.NoError(s.t, err)
	s.db = db
	s.sqlDB, err = db.DB()
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = s.sqlDB.Close() })
	s.migrate(s.sqlDB)
	require.NoError(s.t, db.AutoMigrate(&Crate{}, &Item{}, &Purse{}, &Seal{}))
	if s.dialect == outbox.Postgres {
		require.NoError(s.t, db.Exec("CREATE TABLE "+s.prefix+"doubts (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)").Error)
	}
	events := envelope.NewCatalog("ordering")
	envelope.Register[Rung](events, envelope.Published())
	envelope.Register[Ticked](events)
	envelope.Register[Choked](events)
	options := []gormplugin.Option{gormplugin.WithLogger(slog.New(slog.DiscardHandler))}
	if s.strict {
		options = append(options, gormplugin.WithStrict())
	}
	s.plugin = gormplugin.New(events, outbox.Routing{Table: s.prefix + "outbox", External: []outbox.Route{{Broker: "partner"}}}, options...)
	require.NoError(s.t, db.Use(s.plugin))
}

// describe reads what the model describes, and checks what holds always.
func (r *runner) describe(t require.TestingT) string {
	s := r.site
	idle := func() bool { return s.sqlDB.Stats().InUse == 0 }
	if !idle() { // where a context was cancelled database/sql rolls back on its own time
		require.Eventually(t, idle, time.Minute, time.Millisecond, "a connection is still in use")
	}
	rows := map[string]string{}
	var (
		crates   []Crate
		items    []Item
		purses   []Purse
		seals    []Seal
		messages []struct {
			MessageID, TargetBroker string
			Payload                 []byte
		}
	)
	require.NoError(t, s.db.Find(&crates).Error)
	require.NoError(t, s.db.Find(&items).Error)
	require.NoError(t, s.db.Find(&purses).Error)
	require.NoError(t, s.db.Find(&seals).Error)
	require.NoError(t, s.db.Table(s.prefix+"outbox").Order("id").Find(&messages).Error)
	for i := range crates {
		rows["crate "+crates[i].ID] = crates[i].Note
	}
	for i := range items {
		rows["item "+items[i].ID] = ""
	}
	for i := range purses {
		rows["purse"] = purses[i].Note
	}
	for i := range seals {
		rows["seal "+seals[i].ID] = ""
	}
	var outboxRows []stored
	for _, message := range messages {
		var body struct{ Data struct{ N int } }
		require.NoError(t, json.Unmarshal(message.Payload, &body))
		id, known := r.ids[messageID(message.MessageID)]
		if !known { // published, with the same id for both brokers
			id = body.Data.N
			r.ids[messageID(message.MessageID)] = id
		}
		outboxRows = append(outboxRows, stored{id, message.TargetBroker, body.Data.N})
	}
	return describe(rows, outboxRows, r.pending(), r.ran, int(s.plugin.EventsLeftPending()-r.leftBefore))
}
