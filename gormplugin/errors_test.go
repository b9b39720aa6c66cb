package gormplugin_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestStrict(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		order := placed("1")
		err := b.db.Transaction(func(tx *gorm.DB) error {
			require.NoError(b.t, tx.Create(&Plain{Name: "x"}).Error)
			return tx.Model(order).Where("status = ?", "other").Updates(map[string]any{"status": "x"}).Error
		})
		var left *gormplugin.PendingError
		require.ErrorAs(b.t, err, &left)
		assert.Equal(b.t, map[string]int{"Order": 1}, left.Aggregates)
		var plains int64
		require.NoError(b.t, b.db.Model(&Plain{}).Count(&plains).Error)
		assert.Zero(b.t, plains)
	}, gormplugin.Strict())
}

// What was flushed after all, and what a savepoint took back, is not left behind.
func TestStrictLetsCorrectTransactionsPass(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		order, other := placed("1"), placed("2")
		require.NoError(b.t, b.db.Transaction(func(tx *gorm.DB) error {
			require.NoError(b.t, tx.Create(order).Error)
			require.ErrorIs(b.t, tx.Transaction(func(tx *gorm.DB) error {
				require.NoError(b.t, tx.Model(other).Where("status = ?", "no").Updates(map[string]any{"status": "x"}).Error)
				return errRefused
			}), errRefused)
			return tx.Model(order).Where("status = ?", "no").Updates(map[string]any{"status": "x"}).Error
		}))
		b.want("OrderPlaced 1", "OrderPlaced 1>partner")
		assert.Empty(b.t, b.log.String())
	}, gormplugin.Strict())
}

func TestUseReportsEverything(t *testing.T) {
	t.Parallel()
	onEach(t, func(b *bench) {
		events := envelope.NewCatalog("ordering")
		envelope.Register[*OrderPlaced](events)
		bad := outbox.Routing{Table: "a b", External: []outbox.Route{{Broker: "default"}, {Broker: "x"}, {Broker: "x"}}}
		err := b.open(&gorm.Config{}).Use(gormplugin.New(events, bad))
		for _, text := range []string{"pointer", `"a b"`, "also listed as external", "duplicate external broker"} {
			require.ErrorContains(b.t, err, text)
		}
	})
}
