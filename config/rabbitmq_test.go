package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
)

func TestRabbitMQSettings(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `outbox: {external_brokers: [a, b]}
brokers:
  default: {type: rabbitmq, url: amqp://x}
  a: {type: rabbitmq, url: "amqps://y/shop", tls: {ca_file: ca.pem}, exchange: out, unroutable: drop, expiration: 90m, max_message_bytes: 5, create_destinations: true}
  b: {type: rabbitmq, url: amqp://x, exchange: out, unroutable: wait}
`)
	assert.Equal(t, &rabbitmq.Settings{URL: "amqp://x"}, cfg.Brokers["default"].Settings)
	assert.Equal(t, &rabbitmq.Settings{
		URL: "amqps://y/shop", TLS: &adapter.TLS{CAFile: "ca.pem"}, CreateDestinations: true, MaxMessageBytes: 5,
		Exchange: "out", Unroutable: "drop", Expiration: 90 * time.Minute,
	}, cfg.Brokers["a"].Settings)
	assert.Equal(t, &rabbitmq.Settings{URL: "amqp://x", Exchange: "out", Unroutable: "wait"}, cfg.Brokers["b"].Settings)
}

func TestProblemsInRabbitMQSettings(t *testing.T) {
	t.Parallel()
	checkBadInputs(t, []badInput{
		{"wrong values", `outbox: {external_brokers: [a, b, c]}
brokers:
  default: {type: rabbitmq, url: http://x, exchange: 5, unroutable: maybe, expiration: 1us, max_message_bytes: 0, create_destinations: 1}
  a: {type: rabbitmq, tls: {cert_file: x, file: y}}
  b: {type: rabbitmq, url: amqp://x, tls: {ca_file: x}, compression: 5}
  c: {type: redis, url: redis://x, tls: {key_file: z}, exchange: x, unroutable: drop, expiration: 1s, max_message_bytes: 1, create_destinations: true}
`, []string{
			"3:34: brokers.default.url: must begin with amqp:// or amqps://",
			"3:54: brokers.default.exchange: is a number: put it in quotes to use it as text",
			`3:69: brokers.default.unroutable: "maybe" is not known: use wait or drop`,
			`3:88: brokers.default.expiration: is "1us": use at least 1ms`,
			`3:112: brokers.default.max_message_bytes: is "0": use 1 to 536870912`,
			"3:136: brokers.default.create_destinations: must be true or false",
			"4:3: brokers.a: url is missing: use amqp://user:password@host:5672/vhost",
			"4:28: brokers.a.tls: cert_file and key_file go together: the certificate, and the private key that belongs to it",
			`4:43: brokers.a.tls: unknown key "file": did you mean "ca_file"?`,
			"5:38: brokers.b.tls: does nothing without TLS: let url begin with amqps://, or remove it",
			`5:57: brokers.b: unknown key "compression": use type, url, exchange, unroutable, expiration, create_destinations, max_message_bytes, tls, format, encoding, source, extensions, include, filter, destination, ttl, content_type, attributes, sign, workers, batch_size, batch_bytes, publish_timeout, rate, breaker, ordering, on_abandon, keep, retry or retention`,
			"6:36: brokers.c.tls: does nothing for a broker of type redis: remove it",
			"6:56: brokers.c.exchange: does nothing for a broker of type redis: remove it",
			"6:69: brokers.c.unroutable: does nothing for a broker of type redis: remove it",
			"6:87: brokers.c.expiration: does nothing for a broker of type redis: remove it",
			"6:103: brokers.c.max_message_bytes: does nothing for a broker of type redis: remove it",
			"6:125: brokers.c.create_destinations: does nothing for a broker of type redis: remove it",
		}},
	})
}

// One exchange of one virtual host is one place, however its URL is written.
func TestRabbitMQPlaces(t *testing.T) {
	t.Parallel()
	for other, same := range map[string]bool{
		"url: amqp://h/": true,
		"url: 'amqp://ada:secret@H:5672', exchange: fanout": true,
		"url: amqp://h/shop":                                       false,
		"url: amqp://h:5673":                                       false,
		"url: amqps://h":                                           true,
		"url: amqp://h, exchange: other":                           false,
		"url: amqp://h, destination: 'partner.{stream}'":           false,
		"url: amqp://h, destination: '{stream}', unroutable: drop": true,
	} {
		source := "outbox: {external_brokers: [x]}\nbrokers: {default: {type: rabbitmq, url: amqp://h}, x: {type: rabbitmq, " + other + "}}\n"
		_, err := parsed([]byte(source), "f")
		if same {
			require.ErrorContains(t, err, `brokers.x: is the same place as broker "default"`, other)
		} else {
			require.NoError(t, err, other)
		}
	}
}
