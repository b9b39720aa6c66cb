package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/uow"
)

func TestUnits(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"a unit inside a unit with a context of its own": func(b *bench) {
			b.ok(uow.Do(envelope.WithCorrelationID(b.t.Context(), "outer"), b.db, func(u *uow.Unit) error {
				b.ok(u.Publish(Happened{"a"}))
				return uow.Do(envelope.WithCorrelationID(b.t.Context(), "inner"), u.DB, func(u *uow.Unit) error {
					return u.Publish(Happened{"b"})
				})
			}))
			b.want(": a", ": b")
			assert.Equal(b.t, "outer", *b.rows()[0].CorrelationID)
			assert.Equal(b.t, "inner", *b.rows()[1].CorrelationID)
		},
		"publish outside a transaction": func(b *bench) {
			require.ErrorIs(b.t, uow.Publish(b.db, StockReserved{"x"}), uow.ErrNoTransaction)
			b.want()
		},
		"publish without the plugin": func(b *bench) {
			require.ErrorIs(b.t, uow.Publish(b.open(&gorm.Config{}), StockReserved{"x"}), uow.ErrNoPlugin)
			b.want()
		},
		"a function after the commit outside a transaction": func(b *bench) {
			require.ErrorIs(b.t, b.plugin.AfterCommit(b.db, func() {}), uow.ErrNoTransaction)
		},
	})
}
