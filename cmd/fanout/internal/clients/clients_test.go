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
	settings := map[string]string{
		"redis": "url: redis://127.0.0.1:1/0", "rabbitmq": "url: amqp://127.0.0.1:1/", "nats": "url: nats://127.0.0.1:1", "kafka": "bootstrap_servers: 127.0.0.1:1",
		"webhook": "url: https://partner.example/hooks, secrets: [" + webhook.NewSecret() + "]", "pubsub": "project: acme, endpoint: 127.0.0.1:1", "memory": "",
	}
	require.Len(t, clients.Types(), len(settings))
	for name, settings := range settings {
		cfg, err := config.Parse([]byte("brokers: {default: {type: "+name+", "+settings+"}}\n"), "fanout.yaml", config.WithBrokerTypes(clients.Types()...))
		require.NoError(t, err, name)
		broker, err := fanout.OpenBroker(t.Context(), cfg, "default")
		require.NoError(t, err, name)
		assert.NoError(t, broker.Close(t.Context()), name)
	}
}

// And every driver.
func TestEveryDriverIsLinked(t *testing.T) {
	t.Parallel()
	for driver, dsn := range map[outbox.Dialect]string{
		outbox.Postgres: "postgres://127.0.0.1:1/x", outbox.SQLServer: "sqlserver://127.0.0.1:1", outbox.MySQL: "tcp(127.0.0.1:1)/",
	} {
		cfg := &config.Config{Databases: map[string]config.Database{"main": {Driver: driver, DSN: config.Secret(dsn)}}}
		_, err := fanout.OpenStore(t.Context(), cfg, "main")
		assert.ErrorContains(t, err, "cannot reach the database", driver)
	}
}
