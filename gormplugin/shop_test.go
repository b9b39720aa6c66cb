package gormplugin_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
)

// openShop opens an SQLite database with an outbox, for a test that brings its own events. The log
// is that of the plugin, and err why it refuses to start.
func openShop(t *testing.T, events *envelope.Catalog, routing outbox.Routing, models ...any) (db *gorm.DB, log *logs, err error) {
	t.Helper()
	db, err = gorm.Open(sqlite.Open(filepath.Join(t.TempDir(), "shop.db")), &gorm.Config{})
	require.NoError(t, err)
	pool, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, pool.Close()) })
	store, err := sqlitestore.New(pool, "")
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, db.AutoMigrate(models...))
	log = new(logs)
	return db, log, db.Use(gormplugin.New(events, routing, gormplugin.WithLogger(slog.New(slog.NewTextHandler(log, nil)))))
}

// countRows counts the rows of a table, or of a model's.
func countRows(t *testing.T, db *gorm.DB) (n int64) {
	t.Helper()
	require.NoError(t, db.Count(&n).Error)
	return n
}
