package fanouttest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/schema"

	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/fanouttest"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/outbox"
	"github.com/gorm-fanout/fanout/uow"
)

func background() context.Context { return context.Background() }

// By default there are the external brokers that event types name, and one more for those that name
// none.
func TestDefaultRouting(t *testing.T) {
	t.Parallel()
	brokersOf := func(events *envelope.Catalog, event any) []string {
		emitted := fanouttest.Emits(t, fanouttest.Open(t, events), func(tx *gorm.DB) error { return uow.Publish(tx, event) })
		return emitted[0].Brokers
	}
	assert.Equal(t, []string{"default", "accounting"}, brokersOf(catalog(), InvoiceSent{"1"}))
	assert.Equal(t, []string{"default", "accounting", "partner"}, brokersOf(catalog(), OrderPlaced{"1"}), "published to all")
	assert.Equal(t, []string{"default"}, brokersOf(catalog(), OrderShipped{"1"}))

	named := envelope.NewCatalog("ordering")
	envelope.Register[InvoiceSent](named, envelope.Published(), envelope.To("b", "a"))
	assert.Equal(t, []string{"default", "a", "b"}, brokersOf(named, InvoiceSent{"1"}), "nothing is made up where names are given")
}

func TestOpenConfig(t *testing.T) {
	t.Parallel()
	db := fanouttest.OpenConfig(t, fanouttest.Config{
		Routing: &outbox.Routing{
			Table: "my_outbox", InternalBroker: "inside",
			External: []outbox.Route{{Broker: "accounting", Format: envelope.FormatCloudEvents}},
		},
		Plugin: []gormplugin.Option{gormplugin.WithEnricher(func(ctx context.Context) context.Context {
			return envelope.WithCorrelationID(ctx, "enriched")
		})},
		GORM: gorm.Config{NamingStrategy: schema.NamingStrategy{TablePrefix: "shop_"}},
	}, catalog(), &Order{})
	assert.True(t, db.Migrator().HasTable("my_outbox"))
	assert.True(t, db.Migrator().HasTable("shop_orders"))
	events := fanouttest.Emits(t, db, save(placed("1")))
	assert.Equal(t, []string{"inside", "accounting"}, events[0].Brokers)
	assert.Equal(t, "enriched", events[0].CorrelationID)
	assert.Contains(t, string(events[0].Payload("accounting")), `"specversion":"1.0"`)
	assert.Equal(t, events[0].ID, events[0].Message("accounting").Metadata.Headers.ID)
}

// A transaction in progress is no wall for code beside it, be it in its own goroutine or in another
// one.
func TestReadingBesideATransaction(t *testing.T) {
	t.Parallel()
	db := open(t)
	require.NoError(t, db.Create(&Order{ID: "0"}).Error)
	fanouttest.Emits(t, db, func(tx *gorm.DB) error {
		require.NoError(t, tx.Create(placed("1")).Error)
		count := func() (n int64, err error) { return n, db.Model(&Order{}).Count(&n).Error }
		n, err := count()
		require.NoError(t, err)
		assert.EqualValues(t, 1, n, "what was committed before")
		var beside sync.WaitGroup
		beside.Go(func() {
			_, err := count()
			assert.NoError(t, err)
		})
		beside.Wait()
		return nil
	})
}

func TestConcurrentTransactions(t *testing.T) {
	t.Parallel()
	db := open(t)
	require.NoError(t, db.Create(&Order{ID: "0"}).Error)
	var workers sync.WaitGroup
	for _, id := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		workers.Go(func() {
			assert.NoError(t, db.Transaction(func(tx *gorm.DB) error {
				var first Order
				if err := tx.First(&first, "id = ?", "0").Error; err != nil { // reads, then writes
					return err
				}
				return tx.Create(placed(id)).Error
			}))
			assert.Len(t, fanouttest.Emits(t, db, save(placed("e"+id))), 1)
		})
	}
	workers.Wait()
	assert.EqualValues(t, 24, rowsIn(t, db))
}

func TestInExample(t *testing.T) {
	t.Parallel()
	var db *gorm.DB
	fanouttest.InExample(func(t fanouttest.TB) { db = fanouttest.Open(t, catalog()) })
	sqlDB, err := db.DB()
	require.NoError(t, err)
	require.ErrorContains(t, sqlDB.PingContext(background()), "closed")

	assert.Panics(t, func() {
		fanouttest.InExample(func(t fanouttest.TB) { fanouttest.Open(t, nil) })
	})
}
