package rabbitmq_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// configured is the broker of a section of the file.
func configured(t *testing.T, settings string) (brokers.Broker, error) {
	t.Helper()
	cfg, err := config.Parse([]byte("brokers: {default: {type: rabbitmq, "+settings+"}}\n"), "fanout.yaml", config.WithBrokerTypes(rabbitmq.Type()))
	require.NoError(t, err)
	return cfg.Brokers["default"].Settings.Open(t.Context(), "default")
}

// What the file says reaches the server.
func TestSettings(t *testing.T) {
	t.Parallel()
	url, exchange := testenv.RabbitMQ(t), testenv.RabbitMQPrefix(t)+"settings"
	c := &consumer{url: url, exchange: exchange, seen: map[string][]brokers.Message{}}
	t.Cleanup(func() { c.close(t) })
	for _, test := range []struct{ settings, want string }{ // in this order: the first one finds no exchange
		{"", "404"},
		{", create_destinations: true", "NO_ROUTE"},
		{", unroutable: drop, expiration: 1m", ""},
		{", unroutable: drop, max_message_bytes: 2", "at most 2"},
		{", unroutable: wait, max_message_bytes: 1048576", "NO_ROUTE"},
	} {
		b, err := configured(t, fmt.Sprintf("url: %q, exchange: %q%s", url, exchange, test.settings))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close(context.Background())) })
		result := b.Publish(t.Context(), []brokers.Message{{ID: "1", Destination: "d", Type: "T.v1", Payload: []byte("{ }")}})[0]
		if test.want == "" {
			require.NoError(t, result.Err, test.settings)
		} else {
			require.ErrorContains(t, result.Err, test.want, test.settings)
		}
	}
	c.do(t, func(ch *amqp.Channel) error { return ch.ExchangeDelete(exchange, false, false) })
}

func TestSettingsOfTLS(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.pem")
	_, err := configured(t, fmt.Sprintf("url: 'amqps://ada:hush@h', tls: {ca_file: %q}", missing))
	require.ErrorContains(t, err, `rabbitmq: open: tls: ca_file: open `+missing)
	assert.NotContains(t, err.Error(), "hush")
}

// The configuration tells by it whether two brokers are one place.
func TestDefaultExchangeOfConfigurations(t *testing.T) {
	t.Parallel()
	_, err := config.Parse([]byte("outbox: {external_brokers: [x]}\nbrokers: {default: {type: rabbitmq, url: amqp://h}, x: {type: rabbitmq, url: amqp://h, exchange: "+
		rabbitmq.DefaultExchange+"}}\n"), "f", config.WithBrokerTypes(rabbitmq.Type()))
	require.ErrorContains(t, err, "is the same place")
}
