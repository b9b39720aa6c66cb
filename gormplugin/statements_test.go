package gormplugin_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	sqlitestore "github.com/gorm-fanout/fanout/outbox/sqlite"
)

// onEachSpied runs a test on each database with a spy before its driver, and a commitPath on it, of
// two handles: one with GORM alone and one with the plugin.
func onEachSpied(t *testing.T, config gorm.Config, test func(t *testing.T, c *commitPath, s *spy)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		pool, s := openSpied(t, sqlite.DriverName, filepath.Join(t.TempDir(), "test.db"))
		store, err := sqlitestore.New(pool, "")
		require.NoError(t, err)
		_, err = store.Migrate(t.Context())
		require.NoError(t, err)
		createBusinessTable(t, pool)
		test(t, newCommitPath(t, &sqlite.Dialector{Conn: pool}, config), s)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		pool, s := openSpied(t, "pgx", postgresTable(t))
		createBusinessTable(t, pool)
		test(t, newCommitPath(t, postgres.New(postgres.Config{Conn: pool}), config), s)
	})
}

// The plugin adds one statement for all brokers of all events up to 500 rows, and none where
// nothing was raised.
func TestStatementsOfACommit(t *testing.T) {
	t.Parallel()
	business := []string{"INSERT commit_rows"}
	for name, test := range map[string]struct {
		config   gorm.Config
		business []string
		byHand   []string
	}{
		"direct":                      {gorm.Config{}, business, []string{"INSERT outbox_messages"}},
		"without default transaction": {gorm.Config{SkipDefaultTransaction: true}, business, []string{"INSERT outbox_messages"}},
		// database/sql prepares a statement of GORM's cache again in every transaction. The
		// plugin's text, one for each number of rows, goes past that cache.
		"prepared": {
			gorm.Config{PrepareStmt: true},
			[]string{"PREPARE INSERT commit_rows", "INSERT commit_rows"},
			[]string{"PREPARE INSERT outbox_messages", "INSERT outbox_messages"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transaction := func(statements ...string) []string {
				return slices.Concat([]string{"BEGIN"}, test.business, statements, []string{"COMMIT"})
			}
			onEachSpied(t, test.config, func(t *testing.T, c *commitPath, s *spy) {
				for _, kind := range c.kinds { // fills GORM's cache
					require.NoError(t, kind.run())
				}
				want := map[string][]string{
					"plain": transaction(), "other-model": transaction(), "no-event": transaction(),
					"by-hand": transaction(test.byHand...), "event": transaction("INSERT outbox_messages"),
				}
				for _, kind := range c.kinds {
					require.Equal(t, want[kind.name], s.during(func() { require.NoError(t, kind.run()) }), kind.name)
				}
				require.Equal(t, want["event"], s.during(func() {
					order := &commitOrder{ID: c.nextID()}
					order.Raise(OrderPlaced{OrderID: order.ID})
					require.NoError(t, c.plugin.Create(order).Error)
				}), "a statement outside a transaction, which it gets")
			})
		})
	}
}
