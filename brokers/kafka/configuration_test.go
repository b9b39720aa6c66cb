package kafka_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/brokers/memory"
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
	return config.Parse([]byte(source), "fanout.yaml", config.WithBrokerTypes(kafka.Type(), memory.Type()))
}

func parse(t *testing.T, source string) *config.Config {
	t.Helper()
	cfg, err := parsed(source)
	require.NoError(t, err)
	return cfg
}

func TestKafkaSettings(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `outbox: {external_brokers: [a]}
brokers:
  default: {type: kafka, bootstrap_servers: "x:9092,y"}
  a: {type: kafka, bootstrap_servers: z, sasl: {mechanism: SCRAM-SHA-256, username: relay, password: hush}, tls: {ca_file: ca.pem},
      create_destinations: true, max_message_bytes: 100000, topics: {partitions: 6, replicas: 3}}
`)
	assert.Equal(t, &kafka.Settings{BootstrapServers: "x:9092,y"}, cfg.Brokers["default"].Settings)
	assert.Equal(t, &kafka.Settings{
		BootstrapServers: "z", TLS: &adapter.TLS{CAFile: "ca.pem"}, CreateDestinations: true, MaxMessageBytes: 100000,
		SASL: kafka.SASL{Mechanism: "SCRAM-SHA-256", Username: "relay", Password: "hush"}, Topics: kafka.TopicSettings{Partitions: 6, Replicas: 3},
	}, cfg.Brokers["a"].Settings)
}

func TestKafkaTokens(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `brokers:
  default: {type: kafka, bootstrap_servers: x, tls: {},
    sasl: {mechanism: OAUTHBEARER, token_url: "https://login/token", client_id: relay, client_secret: hush, scopes: [kafka]}}
`)
	assert.Equal(t, kafka.SASL{
		Mechanism: "OAUTHBEARER", TokenURL: "https://login/token", ClientID: "relay", ClientSecret: "hush", Scopes: []string{"kafka"},
	}, cfg.Brokers["default"].Settings.(*kafka.Settings).SASL)
	checkBadInputs(t, []badInput{
		{"wrong values", `outbox: {external_brokers: [a]}
brokers:
  default: {type: kafka, bootstrap_servers: x, sasl: {mechanism: OAUTHBEARER, token_url: "http://login", client_id: relay, password: p}}
  a: {type: kafka, bootstrap_servers: y, sasl: {mechanism: PLAIN, username: u, password: p, scopes: [kafka]}}
`, []string{
			"3:54: brokers.default.sasl: mechanism, token_url, client_id and client_secret are all required",
			"3:90: brokers.default.sasl.token_url: must begin with https://",
			"3:124: brokers.default.sasl.password: does nothing with mechanism OAUTHBEARER: remove it",
			"4:93: brokers.a.sasl.scopes: does nothing with mechanism PLAIN: remove it",
		}},
	})
}

func TestProblemsInKafkaSettings(t *testing.T) {
	t.Parallel()
	checkBadInputs(t, []badInput{
		{"wrong values", `outbox: {external_brokers: [a, b]}
brokers:
  default: {type: kafka, uri: kafka://x, bootstrap_servers: 5, sasl: {mechanism: plain, username: u, password: p}}
  a: {type: kafka, sasl: {mechanism: PLAIN}, topics: {partitions: 0, replicas: 101, compact: true}}
  b: {type: memory, bootstrap_servers: x, sasl: {mechanism: PLAIN, username: u, password: p}, topics: {}}
`, []string{
			`3:26: brokers.default: unknown key "uri": use type, bootstrap_servers, sasl, tls, create_destinations, topics, max_message_bytes, format, encoding, source, extensions, include, filter, destination, ttl, content_type, attributes, sign, workers, batch_size, batch_bytes, publish_timeout, rate, breaker, ordering, on_abandon, keep, retry or retention`,
			"3:61: brokers.default.bootstrap_servers: is a number: put it in quotes to use it as text",
			`3:82: brokers.default.sasl.mechanism: "plain" is not known: did you mean "PLAIN"?`,
			"4:3: brokers.a: bootstrap_servers is missing: use kafka-1:9092,kafka-2:9092",
			"4:26: brokers.a.sasl: mechanism, username and password are all required",
			"4:46: brokers.a.topics: does nothing without create_destinations: true",
			`4:67: brokers.a.topics.partitions: is "0": use 1 to 100000`,
			`4:80: brokers.a.topics.replicas: is "101": use 1 to 100`,
			`4:85: brokers.a.topics: unknown key "compact": use partitions or replicas`,
			"5:21: brokers.b.bootstrap_servers: does nothing for a broker of type memory: remove it",
			"5:43: brokers.b.sasl: does nothing for a broker of type memory: remove it",
			"5:95: brokers.b.topics: does nothing for a broker of type memory: remove it",
		}},
	})
}

// Any server of a cluster says which one it is.
func TestKafkaPlaces(t *testing.T) {
	t.Parallel()
	for other, same := range map[string]bool{"b:9092, A": true, "a": true, "b:9093,a:9092": true, "a:9093": false, "c": false} {
		_, err := parsed("outbox: {external_brokers: [x]}\nbrokers: {default: {type: kafka, bootstrap_servers: 'a,b'}, x: {type: kafka, bootstrap_servers: '" + other + "'}}\n")
		if same {
			require.ErrorContains(t, err, `brokers.x: is the same place as broker "default"`, other)
		} else {
			require.NoError(t, err, other)
		}
	}
}
