package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/outbox"
)

// A trigger on the outbox that makes an INSERT store nothing, and report no error, fails the
// transaction: it must not commit without its event.
func TestDiscardedRowsFailTheTransaction(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		b.not(outbox.MySQL, "a trigger can refuse a row there, and discard none")
		b.not(outbox.SQLServer, "not tried: it would need an INSTEAD OF trigger with all columns")
		b.at.changed.Store(true)
		table := b.at.outbox()
		statements := map[outbox.Dialect][]string{
			outbox.SQLite: {"CREATE TRIGGER discard BEFORE INSERT ON " + table + " BEGIN SELECT RAISE(IGNORE); END"},
			outbox.Postgres: {
				"CREATE FUNCTION discard_" + table + "() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
				"CREATE TRIGGER discard BEFORE INSERT ON " + table + " FOR EACH ROW EXECUTE FUNCTION discard_" + table + "()",
			},
		}[b.dialect]
		for _, text := range statements {
			_, err := b.pool().ExecContext(b.t.Context(), text)
			require.NoError(b.t, err)
		}
		order := placed("1")
		err := b.db.Create(order).Error
		require.ErrorIs(b.t, err, outbox.ErrDiscarded)
		assert.ErrorContains(b.t, err, "trigger")
		assert.Zero(b.t, b.orders(), "nothing was committed")
		b.want()
	})
}
