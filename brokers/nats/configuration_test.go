package nats_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/config"
)

type badInput struct {
	name, source string
	want         []string
}

// checkBadInputs compares what is wrong with configurations, without the file's name.
func checkBadInputs(t *testing.T, inputs []badInput) {
	t.Helper()
	for _, input := range inputs {
		_, err := parsed(input.source)
		require.Error(t, err, input.name)
		assert.Equal(t, input.want, strings.Split(strings.ReplaceAll(err.Error(), "fanout.yaml:", ""), "\n"), input.name)
	}
}

func parsed(source string) (*config.Config, error) {
	return config.Parse([]byte(source), "fanout.yaml", config.WithBrokerTypes(nats.Type(), memory.Type()))
}

func parse(t *testing.T, source string) *config.Config {
	t.Helper()
	cfg, err := parsed(source)
	require.NoError(t, err)
	return cfg
}

func TestNATSSettings(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `outbox: {external_brokers: [a]}
brokers:
  default: {type: nats, url: "nats://u:p@x:4222,nats://y"}
  a: {type: nats, url: tls://z, subject_prefix: shop., credentials_file: relay.creds, create_destinations: true, max_message_bytes: 100000,
      tls: {ca_file: ca.pem}, stream: {replicas: 3, max_age: 30d, duplicate_window: 10m}}
`)
	assert.Equal(t, &nats.Settings{URL: "nats://u:p@x:4222,nats://y"}, cfg.Brokers["default"].Settings)
	assert.Equal(t, &nats.Settings{
		URL: "tls://z", TLS: &adapter.TLS{CAFile: "ca.pem"}, CreateDestinations: true, MaxMessageBytes: 100000,
		SubjectPrefix: "shop.", CredentialsFile: "relay.creds",
		Stream: nats.StreamSettings{Replicas: 3, MaxAge: 30 * 24 * time.Hour, DuplicateWindow: 10 * time.Minute},
	}, cfg.Brokers["a"].Settings)
}

func TestProblemsInNATSSettings(t *testing.T) {
	t.Parallel()
	checkBadInputs(t, []badInput{
		{"wrong values", `outbox: {external_brokers: [a, b, c]}
brokers:
  default: {type: nats, url: http://x, subject_prefix: 5, credentials_file: "", stream: {replicas: 6, max_age: 1ms, duplicates: 1m}}
  a: {type: nats, exchange: x, create_destinations: true, stream: 3}
  b: {type: memory, subject_prefix: x, credentials_file: y, stream: {}}
  c: {type: nats, url: "nats://b:4222, nats://A:4222"}
`, []string{
			"3:30: brokers.default.url: must begin with nats://, tls://, ws:// or wss://",
			"3:56: brokers.default.subject_prefix: is a number: put it in quotes to use it as text",
			"3:77: brokers.default.credentials_file: is empty: give it a value, or remove it",
			"3:81: brokers.default.stream: does nothing without create_destinations: true",
			`3:100: brokers.default.stream.replicas: is "6": use 1 to 5`,
			`3:112: brokers.default.stream.max_age: is "1ms": use at least 1s`,
			`3:117: brokers.default.stream: unknown key "duplicates": use replicas, max_age or duplicate_window`,
			"4:3: brokers.a: url is missing: use nats://user:password@host:4222",
			`4:19: brokers.a: unknown key "exchange": use type, url, subject_prefix, credentials_file, tls, create_destinations, stream, message_ttl, max_message_bytes, format, encoding, source, extensions, include, filter, destination, ttl, content_type, attributes, sign, workers, batch_size, batch_bytes, publish_timeout, rate, breaker, ordering, on_abandon, keep, retry or retention`,
			"4:67: brokers.a.stream: must be a mapping of keys, but is a number",
			"5:21: brokers.b.subject_prefix: does nothing for a broker of type memory: remove it",
			"5:40: brokers.b.credentials_file: does nothing for a broker of type memory: remove it",
			"5:61: brokers.b.stream: does nothing for a broker of type memory: remove it",
		}},
	})
}

// Any server of a cluster says which one it is.
func TestNATSPlaces(t *testing.T) {
	t.Parallel()
	for other, same := range map[string]bool{
		"url: 'nats://b:4222, nats://u:p@A'":             true,
		"url: 'tls://b'":                                 true,
		"url: 'nats://c'":                                false,
		"url: 'nats://a,nats://b', subject_prefix: out.": false,
	} {
		_, err := parsed("outbox: {external_brokers: [x]}\nbrokers: {default: {type: nats, url: 'nats://a,nats://b'}, x: {type: nats, " + other + "}}\n")
		if same {
			require.ErrorContains(t, err, `brokers.x: is the same place as broker "default"`, other)
		} else {
			require.NoError(t, err, other)
		}
	}
}
