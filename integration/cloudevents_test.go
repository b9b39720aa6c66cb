package integration_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/glebarez/sqlite"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/brokers/watermill"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/gormplugin"
	"github.com/gorm-fanout/fanout/uow"
)

// A transaction of GORM on SQLite, delivered as CloudEvents: to a broker in memory, and through
// Watermill, whose broker the program gives. Both are read with the SDK of the
// CloudEvents project.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	dsn := filepath.Join(t.TempDir(), "shop.db")
	cfg, err := config.Parse([]byte(`
databases: {default: {driver: sqlite, dsn: "`+dsn+`"}}
outbox: {external_brokers: [partner, stream]}
brokers:
  default: {type: memory}
  partner: {type: memory, format: cloudevents, source: "https://shop.example.com/ordering", extensions: [tenant_id, region]}
  stream: {type: watermill, format: cloudevents, extensions: [region, tenant_id]}
`), "fanout.yaml")
	require.NoError(t, err)
	migrate(t, cfg, dsn)

	events := envelope.NewCatalog("ordering")
	envelope.Register[OrderPlaced](events, envelope.Published(), envelope.Extension("region", "eu"))
	envelope.Register[StockReserved](events)
	db, err := gorm.Open(sqlite.Open(dsn+"?_pragma=busy_timeout(10000)"), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	sqlDB, err := db.DB()
	require.NoError(t, err)
	defer sqlDB.Close()
	require.NoError(t, db.AutoMigrate(&Order{}))
	require.NoError(t, db.Use(gormplugin.New(events, cfg.Routing())))

	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)
	arriving, err := pubsub.Subscribe(context.Background(), "ordering::order")
	require.NoError(t, err)
	partner := memory.New()
	relay, err := fanout.Open(t.Context(), cfg,
		fanout.WithDB("default", db), fanout.WithBroker("partner", partner), fanout.WithLogger(slog.New(slog.DiscardHandler)),
		fanout.WithBroker("stream", watermill.New(pubsub)))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()

	before := time.Now().Truncate(time.Microsecond)
	request := envelope.WithCorrelationID(envelope.WithTenantID(t.Context(), "acme"), "checkout-9")
	require.NoError(t, db.WithContext(request).Transaction(func(tx *gorm.DB) error {
		order := &Order{ID: "42", Customer: "<Ada & Söhne>", Status: "placed"}
		order.Raise(OrderPlaced{order.ID, order.Customer})
		if err := tx.Save(order).Error; err != nil {
			return err
		}
		return uow.Publish(tx, StockReserved{"teapot"}) // internal
	}))

	received, err := partner.Wait(t.Context(), "ordering::order", 1)
	require.NoError(t, err)
	require.Len(t, received, 1)
	var streamed *message.Message
	select {
	case streamed = <-arriving:
		streamed.Ack()
	case <-time.After(time.Minute):
		require.Fail(t, "nothing came through Watermill")
	}
	stop()
	require.NoError(t, <-done)
	_, more := <-arriving
	assert.False(t, more, "the relay has closed its brokers, and with them the publisher")

	assert.Equal(t, "application/cloudevents+json", received[0].ContentType)
	assert.Equal(t, "application/cloudevents+json", streamed.Metadata.Get(brokers.FieldContentType))
	assert.Equal(t, "ordering::order-42", streamed.Metadata.Get(watermill.DefaultOrderingKeyMetadata))
	assert.Equal(t, received[0].ID, streamed.UUID, "the same id at every broker")
	assert.Equal(t, []string{"ordering::order"}, partner.Destinations(), "what is not published stays inside")
	for source, payload := range map[string][]byte{
		"https://shop.example.com/ordering": received[0].Payload,
		"/ordering/order":                   streamed.Payload,
	} {
		var e event.Event
		require.NoError(t, json.Unmarshal(payload, &e), "%s", payload)
		require.NoError(t, e.Validate())
		assert.Equal(t, source, e.Source())
		assert.Equal(t, received[0].ID, e.ID())
		assert.Equal(t, "Ordering.OrderPlaced.v1", e.Type())
		assert.Equal(t, "42", e.Subject())
		assert.WithinRange(t, e.Time(), before, time.Now())
		assert.Equal(t, map[string]any{
			"correlationid": "checkout-9", "tenantid": "acme", "region": "eu", "partitionkey": "ordering::order-42",
		}, e.Extensions())
		var placed OrderPlaced
		require.NoError(t, e.DataAs(&placed))
		assert.Equal(t, OrderPlaced{"42", "<Ada & Söhne>"}, placed)
	}
}
