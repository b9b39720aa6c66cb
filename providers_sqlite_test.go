package fanout_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
	"github.com/gorm-fanout/fanout/uow"
)

type sqlitePlaced struct{}

func configOf(t *testing.T, file string) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte("databases: {main: {driver: sqlite, dsn: 'file:"+file+"?_pragma=busy_timeout(9000)'}}\nbrokers: {default: {type: memory}}\n"), "fanout.yaml")
	require.NoError(t, err)
	return cfg
}

func handleOf(t *testing.T, file string) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(sqlite.Open(file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(9000)"), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	store, err := sqlitestore.New(pool, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	return db
}

// The relay works with the application's handle, not with a second library on the same file, and with no
// more connections than it has.
func TestGivenSQLiteHandle(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shop.db")
	db, cfg := handleOf(t, file), configOf(t, file)
	pool, err := db.DB()
	require.NoError(t, err)
	pool.SetMaxOpenConns(1)
	events := envelope.NewCatalog("shop")
	envelope.Register[sqlitePlaced](events)
	require.NoError(t, db.Use(gormplugin.New(events, cfg.Routing())))
	broker := memory.New()
	relay, err := fanout.Open(t.Context(), cfg, fanout.WithDB("main", db), fanout.WithBroker("default", broker), fanout.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	for range 5 {
		require.NoError(t, db.Transaction(func(tx *gorm.DB) error { return uow.Publish(tx, sqlitePlaced{}) }))
	}
	require.Eventually(t, func() bool {
		var n int64
		require.NoError(t, db.Table("outbox_messages").Where("status = 'published'").Count(&n).Error)
		return n == 5
	}, time.Minute, time.Millisecond)
	stop()
	require.NoError(t, <-done)
	require.NoError(t, relay.Close())
	require.NoError(t, pool.PingContext(t.Context()), "it is the application's to close")

	store, err := fanout.OpenStore(t.Context(), cfg, "main", fanout.WithDB("main", db))
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	_, err = store.Backlog(t.Context())
	require.ErrorContains(t, err, "database is closed")
}

func TestSQLiteHandleOfAnotherFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, another := filepath.Join(dir, "one.db"), filepath.Join(dir, "another.db")
	db := handleOf(t, one)
	handleOf(t, another)
	_, err := fanout.OpenStore(t.Context(), configOf(t, another), "main", fanout.WithDB("main", db))
	require.ErrorContains(t, err, "another.db")
	require.ErrorContains(t, err, "one.db")
	require.NoError(t, os.Symlink(one, filepath.Join(dir, "alias.db")))
	for _, same := range []string{filepath.Join(dir, "alias.db"), filepath.Join(dir, "..", filepath.Base(dir), "one.db"), filepath.Join(dir, "nowhere.db")} {
		store, err := fanout.OpenStore(t.Context(), configOf(t, same), "main", fanout.WithDB("main", db))
		require.NoError(t, err, same)
		require.NoError(t, store.Close())
	}
}

// In a process that has another SQLite library, the relay warns before it opens a file by itself. (The name
// is registered in a process of its own, as other tests want no warning.)
func TestTwoSQLiteLibraries(t *testing.T) {
	t.Parallel()
	const file = "FANOUT_TEST_SQLITE_FILE"
	if os.Getenv(file) == "" {
		path := filepath.Join(t.TempDir(), "shop.db")
		handleOf(t, path)
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTwoSQLiteLibraries$", "-test.v")
		child.Env = append(os.Environ(), file+"="+path)
		out, err := child.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "--- PASS")
		return
	}
	library, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	sql.Register("sqlite3", library.Driver())
	require.NoError(t, library.Close())
	var log bytes.Buffer
	relay, err := fanout.Open(t.Context(), configOf(t, os.Getenv(file)), fanout.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	require.NoError(t, relay.Close())
	assert.Contains(t, log.String(), `msg="second SQLite library in this process" database=main`)
	assert.Contains(t, log.String(), "fanout.WithDB")
}
