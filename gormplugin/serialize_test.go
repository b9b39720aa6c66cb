package gormplugin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/internal/testenv"
	"github.com/gorm-fanout/fanout/outbox"
	pgstore "github.com/gorm-fanout/fanout/outbox/postgres"
	"github.com/gorm-fanout/fanout/uow"
)

// Counted is an event without an aggregate: its writers share nothing but the key.
type Counted struct{ Meter, Reading string }

// meters is a handle whose events are serialised by key, or not.
func meters(t *testing.T, dialector gorm.Dialector, config *gorm.Config, serialize bool) *gorm.DB {
	t.Helper()
	events := envelope.NewCatalog("metering")
	envelope.Register[Counted](events, envelope.Key(func(c Counted) string { return c.Meter }))
	config.Logger = logger.Discard
	db, err := gorm.Open(dialector, config)
	require.NoError(t, err)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	t.Cleanup(func() { _ = sqlDB.Close() })
	require.NoError(t, db.Use(gormplugin.New(events, outbox.Routing{SerializeKeys: serialize})))
	return db
}

// foreign begins a transaction outside GORM, whose rows are written at the statement and stand
// uncommitted until it ends.
func foreign(t *testing.T, db *gorm.DB) (handle *gorm.DB, commit func()) {
	t.Helper()
	sqlDB, err := db.DB()
	require.NoError(t, err)
	own, err := sqlDB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = own.Rollback() })
	handle = db.Session(&gorm.Session{NewDB: true, Context: t.Context()})
	handle.Statement.ConnPool = own
	return handle, func() { require.NoError(t, own.Commit()) }
}

// readings lists what is committed, in the order of the rows' ids.
func readings(t *testing.T, db *gorm.DB) []string {
	t.Helper()
	var found []string
	require.NoError(t, db.Raw("SELECT convert_from(payload, 'UTF8')::json #>> '{data,Reading}' FROM outbox_messages ORDER BY id").Scan(&found).Error)
	return found
}

// postgresTable returns the DSN of a database with an outbox table.
func postgresTable(t testing.TB) string {
	t.Helper()
	dsn := testenv.Postgres(t)
	store, err := pgstore.Open(t.Context(), dsn, "", pgstore.WithMaxConns(1))
	require.NoError(t, err)
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Close())
	return dsn
}

// A transaction waits at its commit for the one that has written the same key before, and its rows
// come after.
func TestSerializeKeys(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]struct {
		simple bool
		config gorm.Config
	}{
		"plain": {}, "prepared statements": {config: gorm.Config{PrepareStmt: true}}, "simple protocol": {simple: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dialector := postgres.New(postgres.Config{DSN: postgresTable(t), PreferSimpleProtocol: open.simple})
			db := meters(t, dialector, &open.config, true)
			own, commit := foreign(t, db)
			require.NoError(t, uow.Publish(own, Counted{"m", "first"}))

			publish := func(event Counted) error {
				return db.Transaction(func(tx *gorm.DB) error { return uow.Publish(tx, event) })
			}
			require.NoError(t, publish(Counted{"another", "unhindered"}))
			done := make(chan error, 1)
			go func() { done <- publish(Counted{"m", "second"}) }()
			require.Eventually(t, func() bool {
				var waiting int64
				err := db.Raw("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted" +
					" AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&waiting).Error
				return assert.NoError(t, err) && waiting == 1
			}, 30*time.Second, 2*time.Millisecond)
			assert.Equal(t, []string{"unhindered"}, readings(t, db))
			commit()
			require.NoError(t, <-done)
			assert.Equal(t, []string{"first", "unhindered", "second"}, readings(t, db))
		})
	}
}

// Without the option the second is there, and may be delivered, before the first, whose id is
// lower.
func TestKeysAreNotSerializedByDefault(t *testing.T) {
	t.Parallel()
	db := meters(t, postgres.Open(postgresTable(t)), &gorm.Config{}, false)
	own, commit := foreign(t, db)
	require.NoError(t, uow.Publish(own, Counted{"m", "first"}))
	require.NoError(t, db.Transaction(func(tx *gorm.DB) error { return uow.Publish(tx, Counted{"m", "second"}) }))
	assert.Equal(t, []string{"second"}, readings(t, db))
	commit()
	assert.Equal(t, []string{"first", "second"}, readings(t, db))
}

// Where the lock cannot be had, the transaction fails as a whole and the events stay for the next
// attempt.
func TestSerializeKeysFails(t *testing.T) {
	t.Parallel()
	dsn := postgresTable(t)
	db := meters(t, postgres.Open(dsn), &gorm.Config{}, true)
	own, commit := foreign(t, db)
	require.NoError(t, uow.Publish(own, Counted{"m", "first"}))
	impatient := meters(t, postgres.Open(dsn+"&lock_timeout=1"), &gorm.Config{}, true)
	publish := func() error {
		return impatient.Transaction(func(tx *gorm.DB) error { return uow.Publish(tx, Counted{"m", "second"}) })
	}
	require.ErrorContains(t, publish(), "lock the ordering keys")
	commit()
	require.NoError(t, publish())
	assert.Equal(t, []string{"first", "second"}, readings(t, db))
}
