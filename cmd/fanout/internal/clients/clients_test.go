package clients_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/cmd/fanout/internal/clients"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

// A configuration may name any of these types: the command has the client of each.
func TestEveryTypeIsLinked(t *testing.T) {
	t.Parallel()
	urls := map[string]config.Secret{
		config.TypeRedis: "redis://127.0.0.1:1/0", config.TypeRabbitMQ: "amqp://127.0.0.1:1/", config.TypeNATS: "nats://127.0.0.1:1",
		config.TypeWebhook: "https://partner.example/hooks",
	}
	settings := config.Broker{Project: "acme", Endpoint: "127.0.0.1:1", Kafka: config.Kafka{BootstrapServers: "127.0.0.1:1"}, Webhook: config.Webhook{Secrets: []config.Secret{config.Secret(webhook.NewSecret())}}}
	for _, name := range config.BrokerTypes() {
		settings.Type, settings.URL = name, urls[name]
		cfg := &config.Config{Brokers: map[string]config.Broker{"default": settings}}
		broker, err := fanout.OpenBroker(t.Context(), cfg, "default", clients.Options()...)
		require.NoError(t, err, name)
		assert.NoError(t, broker.Close(t.Context()), name)
	}
}

// And these drivers.
func TestEveryDriverIsLinked(t *testing.T) {
	t.Parallel()
	for driver, dsn := range map[outbox.Dialect]string{
		outbox.Postgres: "postgres://127.0.0.1:1/x", outbox.SQLServer: "sqlserver://127.0.0.1:1", outbox.MySQL: "tcp(127.0.0.1:1)/",
	} {
		cfg := &config.Config{Databases: map[string]config.Database{"main": {Driver: driver, DSN: config.Secret(dsn)}}}
		_, err := fanout.OpenStore(t.Context(), cfg, "main", clients.Options()...)
		assert.ErrorContains(t, err, "cannot reach the database", driver)
	}
}
