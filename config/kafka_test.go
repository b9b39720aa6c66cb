package config_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/config"
)

func TestKafkaSettings(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `outbox: {external_brokers: [a]}
brokers:
  default: {type: kafka, bootstrap_servers: "x:9092,y"}
  a: {type: kafka, bootstrap_servers: z, sasl: {mechanism: SCRAM-SHA-256, username: relay, password: hush}, tls: {ca_file: ca.pem},
      create_destinations: true, max_message_bytes: 100000, topics: {partitions: 6, replicas: 3}}
`)
	assert.Equal(t, config.Broker{Type: config.TypeKafka, Kafka: config.Kafka{BootstrapServers: "x:9092,y"}}, cfg.Brokers["default"])
	assert.Equal(t, config.Broker{
		Type: config.TypeKafka, TLS: config.TLS{Enabled: true, CAFile: "ca.pem"}, CreateDestinations: true, MaxMessageBytes: 100000,
		Kafka: config.Kafka{
			BootstrapServers: "z", SASL: config.KafkaSASL{Mechanism: config.SASLScram256, Username: "relay", Password: "hush"},
			Topics: config.KafkaTopics{Partitions: 6, Replicas: 3},
		},
	}, cfg.Brokers["a"])
}

func TestKafkaTokens(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `brokers:
  default: {type: kafka, bootstrap_servers: x, tls: {},
    sasl: {mechanism: OAUTHBEARER, token_url: "https://login/token", client_id: relay, client_secret: hush, scopes: [kafka]}}
`)
	assert.Equal(t, config.KafkaSASL{
		Mechanism: config.SASLOAuthBearer, TokenURL: "https://login/token", ClientID: "relay", ClientSecret: "hush", Scopes: []string{"kafka"},
	}, cfg.Brokers["default"].Kafka.SASL)
	checkBadInputs(t, []badInput{
		{"wrong values", `outbox: {external_brokers: [a]}
brokers:
  default: {type: kafka, bootstrap_servers: x, sasl: {mechanism: OAUTHBEARER, token_url: "http://login", client_id: relay, password: p}}
  a: {type: kafka, bootstrap_servers: y, sasl: {mechanism: PLAIN, username: u, password: p, scopes: [kafka]}}
`, []string{
			"3:48: brokers.default.sasl: mechanism, token_url, client_id and client_secret are all required",
			`3:90: brokers.default.sasl.token_url: must begin with https://`,
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
  default: {type: kafka, url: kafka://x, bootstrap_servers: 5, sasl: {mechanism: plain, username: u, password: p}}
  a: {type: kafka, sasl: {mechanism: PLAIN}, topics: {partitions: 0, replicas: 101, compact: true}}
  b: {type: redis, url: redis://x, bootstrap_servers: x, sasl: {mechanism: PLAIN, username: u, password: p}, topics: {}}
`, []string{
			"3:26: brokers.default.url: does nothing for a broker of type kafka: remove it",
			"3:61: brokers.default.bootstrap_servers: is a number: put it in quotes to use it as text",
			`3:82: brokers.default.sasl.mechanism: "plain" is not known: did you mean "PLAIN"?`,
			"4:3: brokers.a: bootstrap_servers is missing: use kafka-1:9092,kafka-2:9092",
			"4:20: brokers.a.sasl: mechanism, username and password are all required",
			"4:46: brokers.a.topics: does nothing without create_destinations: true",
			`4:67: brokers.a.topics.partitions: is "0": use 1 to 100000`,
			`4:80: brokers.a.topics.replicas: is "101": use 1 to 100`,
			`4:85: brokers.a.topics: unknown key "compact": use partitions or replicas`,
			"5:36: brokers.b.bootstrap_servers: does nothing for a broker of type redis: remove it",
			"5:58: brokers.b.sasl: does nothing for a broker of type redis: remove it",
			"5:110: brokers.b.topics: does nothing for a broker of type redis: remove it",
		}},
	})
}

// Any server of a cluster says which one it is.
func TestKafkaPlaces(t *testing.T) {
	t.Parallel()
	for other, same := range map[string]bool{"b:9092, A": true, "a": true, "b:9093,a:9092": true, "a:9093": false, "c": false} {
		_, err := config.Parse([]byte("outbox: {external_brokers: [x]}\nbrokers: {default: {type: kafka, bootstrap_servers: 'a,b'}, x: {type: kafka, bootstrap_servers: '"+other+"'}}\n"), "f")
		if same {
			require.ErrorContains(t, err, `brokers.x: is the same place as broker "default"`, other)
		} else {
			require.NoError(t, err, other)
		}
	}
}
