package gormplugins_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/plugin/dbresolver"

	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

const consumer = "billing"

// ledger is the database of a consumer: its inbox, and a table with a row for each time that a
// message took effect.
type ledger struct {
	t  *testing.T
	db *gorm.DB // without a resolver
}

func (l *ledger) message() *inbox.Message {
	l.t.Helper()
	m, err := inbox.Decode([]byte(`{"specversion":"1.0","id":"`+uuid.NewString()+`","source":"/test","type":"Test.Happened.v1","data":{"n":1}}`), nil)
	require.NoError(l.t, err)
	m.Consumer, m.Source, m.MaxAttempts = consumer, "orders", 2
	return m
}

func (*ledger) effect(m *inbox.Message) func(tx *gorm.DB) error {
	return func(tx *gorm.DB) error {
		return tx.Exec("INSERT INTO effects (message_id) VALUES (?)", m.Key.String()).Error
	}
}

// effects is how often a message took effect.
func (l *ledger) effects(m *inbox.Message) (n int) {
	l.t.Helper()
	require.NoError(l.t, l.db.Raw("SELECT count(*) FROM effects WHERE message_id = ?", m.Key.String()).Scan(&n).Error)
	return n
}

// life is what messages go through on a handle: one fails, is handled, and comes again; another one
// becomes a dead letter, and is delivered once more.
func (l *ledger) life(db *gorm.DB) {
	l.t.Helper()
	ctx := l.t.Context()
	m, poison := l.message(), l.message()
	failing := func(tx *gorm.DB) error { return errors.Join(l.effect(m)(tx), errRefused) }
	_, err := inbox.Handle(ctx, db, m, failing)
	require.ErrorIs(l.t, err, errRefused)
	var status string
	require.NoError(l.t, l.db.Table(inbox.DefaultTable).Select("status").Where("message_id = ?", m.Key.String()).Scan(&status).Error)
	require.Equal(l.t, "failed", status)
	for _, want := range []inbox.Outcome{inbox.Handled, inbox.Duplicate, inbox.Duplicate} {
		outcome, err := inbox.Handle(ctx, db, m, l.effect(m))
		require.NoError(l.t, err)
		require.Equal(l.t, want, outcome)
	}
	require.Equal(l.t, 1, l.effects(m))

	_, err = inbox.Handle(ctx, db, poison, failing)
	require.ErrorIs(l.t, err, errRefused)
	for range 2 {
		outcome, err := inbox.Handle(ctx, db, poison, failing)
		require.NoError(l.t, err)
		require.Equal(l.t, inbox.DeadLettered, outcome)
	}
	require.Equal(l.t, 1, l.effects(m))
	page, err := inbox.DeadLetters(ctx, db, inbox.DeadLetterFilter{Limit: 1})
	require.NoError(l.t, err)
	require.Len(l.t, page, 1)
	n, err := inbox.RedriveAll(ctx, db, consumer, "")
	require.NoError(l.t, err)
	require.EqualValues(l.t, 1, n)
	done, err := inbox.Redeliver(ctx, db, consumer, inbox.HandlerFunc(func(ctx context.Context, m *inbox.Message) (inbox.Outcome, error) {
		return inbox.Handle(ctx, db, m, l.effect(m))
	}))
	require.NoError(l.t, err)
	require.Equal(l.t, 1, done)
	require.Equal(l.t, 1, l.effects(poison))
}

// With a resolver the transaction of the inbox, and what is looked up beside it, goes to the
// primary: this replica has none of its tables.
func TestInboxBehindAResolver(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]func(t *testing.T) gorm.Dialector{
		"sqlite": func(t *testing.T) gorm.Dialector {
			t.Helper()
			return sqlite.Open(filepath.Join(t.TempDir(), "test.db") + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)")
		},
		"postgres": func(t *testing.T) gorm.Dialector {
			t.Helper()
			return postgres.Open(testenv.Postgres(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary, replica := database(t), database(t)
			open := func(dialector gorm.Dialector) *gorm.DB {
				db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
				require.NoError(t, err)
				pool, err := db.DB()
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, pool.Close()) })
				return db
			}
			l := &ledger{t, open(primary)}
			_, err := inbox.Migrate(t.Context(), l.db)
			require.NoError(t, err)
			require.NoError(t, l.db.Exec("CREATE TABLE effects (message_id varchar(36) NOT NULL)").Error)

			b, db := &bench{t: t}, open(primary)
			require.NoError(t, db.Use(b.resolver(dbresolver.Config{Replicas: []gorm.Dialector{replica}})))
			l.life(db)
			require.Error(t, db.Raw("SELECT count(*) FROM effects").Scan(new(int)).Error, "whoever does not ask for the primary gets the replica")
		})
	}
}
