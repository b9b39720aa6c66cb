package fanout_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
)

// What partners know of an order, in two versions.
type (
	PublicOrder   struct{ Order string }
	PublicOrderV2 struct{ Number, Buyer string }
)

func publicOrder(e OrderPlaced) PublicOrder { return PublicOrder{e.OrderID} }

func publicOrderV2(e OrderPlaced) PublicOrderV2 { return PublicOrderV2{e.OrderID, e.Customer} }

// A partner goes from version 1 of a contract to version 2 when it wants to: while both leave, one consumer reads the old
// one and another the new one, each by its type, and neither misses an order or sees one twice.
func TestPartnerMigrates(t *testing.T) {
	t.Parallel()
	dsn := filepath.Join(t.TempDir(), "shop.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"
	cfg := &config.Config{Outbox: config.Outbox{ExternalBrokers: []string{"partner"}}}
	order := 0
	var arrived []brokers.Message // at the partner
	// release is the application with these contracts, for three orders.
	release := func(contracts ...envelope.Contract) {
		events := envelope.NewCatalog("ordering")
		envelope.Register[OrderPlaced](events, envelope.Published(contracts...))
		db, err := gorm.Open(sqlite.Open(dsn), &gorm.Config{})
		require.NoError(t, err)
		pool, err := db.DB()
		require.NoError(t, err)
		defer pool.Close()
		require.NoError(t, db.AutoMigrate(&Order{}))
		require.NoError(t, db.Use(gormplugin.New(events, cfg.Routing())))
		require.NoError(t, fanout.Migrate(t.Context(), cfg, fanout.WithDB("default", db)))
		partner := memory.New()
		relay, err := fanout.Open(t.Context(), cfg, fanout.WithDB("default", db), fanout.WithBroker("default", memory.New()), fanout.WithBroker("partner", partner),
			fanout.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- relay.Run(ctx) }()
		for range 3 {
			order++
			placed := &Order{ID: fmt.Sprint(order), Customer: "ada"}
			placed.Raise(OrderPlaced{placed.ID, placed.Customer})
			require.NoError(t, db.Create(placed).Error)
		}
		messages, err := partner.Wait(t.Context(), "ordering::order", 3*len(contracts))
		require.NoError(t, err)
		arrived = append(arrived, messages...)
		stop()
		require.NoError(t, <-done)
	}
	v1 := envelope.As(publicOrder)
	v2 := envelope.As(publicOrderV2, envelope.Version(2))
	release(v1)
	release(v1, v2)
	release(v2)

	var old, fresh []string // what the partner's two consumers handle
	seen := map[string]bool{}
	for _, m := range arrived {
		_, message, err := envelope.Decode(m.Payload)
		require.NoError(t, err)
		assert.False(t, seen[m.ID], "each has an id of its own")
		seen[m.ID] = true
		assert.Equal(t, m.Type, message.Metadata.Headers.Type)
		switch m.Type {
		case "Ordering.OrderPlaced.v1":
			data, err := envelope.DataAs[PublicOrder](message.Data)
			require.NoError(t, err)
			old = append(old, data.Order)
		case "Ordering.OrderPlaced.v2":
			data, err := envelope.DataAs[PublicOrderV2](message.Data)
			require.NoError(t, err)
			fresh = append(fresh, data.Number+" "+data.Buyer)
		}
	}
	assert.Equal(t, []string{"1", "2", "3", "4", "5", "6"}, old)
	assert.Equal(t, []string{"4 ada", "5 ada", "6 ada", "7 ada", "8 ada", "9 ada"}, fresh)
	assert.Len(t, seen, 12)
}
