package config_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

var referenceEnv = env("DATABASE_URL", "postgres://db", "REPORTING_DSN", "sqlserver://db", "REDIS_URL", "redis://cache:6379/0",
	"RABBITMQ_URL", "amqps://relay@rabbit.internal/shop", "NATS_URL", "nats://one:4222,nats://two:4222",
	"KAFKA_SERVERS", "one:9092,two:9092", "KAFKA_PASSWORD", "hush", "SHOP_SECRET", "whsec_hush",
	"VIEWER_TOKEN", "viewer-0123456789", "OPERATOR_TOKEN", "operator-0123456789")

func TestReferenceLoads(t *testing.T) {
	t.Parallel()
	cfg := parse(t, config.Reference(), referenceEnv)

	assert.Equal(t, &config.Config{
		Databases: map[string]config.Database{
			"default":   {Driver: outbox.Postgres, DSN: "postgres://db", Notify: true},
			"reporting": {Driver: outbox.SQLServer, DSN: "sqlserver://db"},
		},
		Outbox: config.Outbox{
			Table: "outbox_messages", InternalBroker: "default", ExternalBrokers: []string{"partner", "audit", "warehouse", "analytics", "lake", "shop"},
			MaxPayloadBytes: 1_000_000,
			Policy: outbox.Policy{
				Workers: 2, BatchSize: 500, BatchBytes: 16 << 20, Lease: time.Minute, PublishTimeout: 30 * time.Second,
				ShutdownTimeout: 20 * time.Second, PollMin: 20 * time.Millisecond, PollMax: time.Second,
				Retry:   outbox.Retry{MaxAttempts: 5, BaseDelay: time.Minute, Multiplier: 2, MaxDelay: time.Hour, Jitter: 0.25},
				Breaker: outbox.Breaker{TripAfter: 3, MinDelay: 250 * time.Millisecond, MaxDelay: 15 * time.Second},
			},
		},
		Brokers: map[string]config.Broker{
			"default": {
				Type: config.TypeRedis, URL: "redis://cache:6379/0",
				Redis: config.Redis{Backfill: true},
			},
			"partner": {
				Type: config.TypePubSub, Project: "acme-production", Endpoint: "us-east1-pubsub.googleapis.com:443",
				Compression: 1024,
				Format:      envelope.FormatCloudEvents, Source: "/acme/ordering", Extensions: []string{"tenant_id"}, Filter: []string{"Ordering.*"},
				Overrides: outbox.Overrides{
					Destination: "shop.{aggregate}", TTL: 24 * time.Hour, Attributes: map[string]string{"environment": "production"},
				},
				Rate: 200, Breaker: outbox.Breaker{TripAfter: 5, MinDelay: time.Second, MaxDelay: time.Minute},
				Workers: 1, BatchSize: 100, BatchBytes: 4 << 20, PublishTimeout: 10 * time.Second, Ordering: config.OrderingPerKey,
				OnAbandon: config.OnAbandonBlock,
				Retry:     outbox.Retry{MaxAttempts: 20, BaseDelay: 10 * time.Second, Multiplier: 1.5, MaxDelay: 30 * time.Minute, Jitter: 0.5},
				Retention: cleanup.Retention{Published: 30 * 24 * time.Hour, Abandoned: 90 * 24 * time.Hour},
			},
			"audit": {
				Type: config.TypeRedis, URL: "rediss://audit.internal:6380/2",
				Overrides: outbox.Overrides{ContentType: "application/vnd.acme.audit+json"},
				Redis:     config.Redis{MaxLen: 1_000_000, Replicas: 1, ReplicaTimeout: time.Second},
			},
			"warehouse": {
				Type: config.TypeRabbitMQ, URL: "amqps://relay@rabbit.internal/shop", CreateDestinations: true, MaxMessageBytes: 1 << 20,
				TLS: config.TLS{
					Enabled: true,
					CAFile:  "/etc/fanout/ca.pem", CertFile: "/etc/fanout/relay.pem", KeyFile: "/etc/fanout/relay.key", ServerName: "rabbit.internal",
				},
				RabbitMQ: config.RabbitMQ{Exchange: "fanout", Expiration: 72 * time.Hour},
			},
			"analytics": {
				Type: config.TypeNATS, URL: "nats://one:4222,nats://two:4222", CreateDestinations: true,
				NATS: config.NATS{
					SubjectPrefix: "shop.", CredentialsFile: "/etc/fanout/relay.creds",
					Stream: config.NATSStream{Replicas: 3, MaxAge: 30 * 24 * time.Hour, DuplicateWindow: 2 * time.Minute},
				},
			},
			"lake": {
				Type: config.TypeKafka, TLS: config.TLS{Enabled: true}, CreateDestinations: true, MaxMessageBytes: 1_048_588,
				Kafka: config.Kafka{
					BootstrapServers: "one:9092,two:9092",
					SASL:             config.KafkaSASL{Mechanism: config.SASLScram512, Username: "relay", Password: "hush"},
					Topics:           config.KafkaTopics{Partitions: 12, Replicas: 3},
				},
			},
			"shop": {
				Type: config.TypeWebhook, URL: "https://shop.example/hooks",
				Webhook: config.Webhook{Secrets: []config.Secret{"whsec_hush"}, Concurrency: 8, RequestTimeout: 15 * time.Second},
			},
		},
		Cleanup: config.DefaultCleanup(),
		Monitor: config.Monitor{
			Listen: "127.0.0.1:8088", Metrics: true, ViewerTokens: map[string]config.Secret{"grafana": "viewer-0123456789"},
			OperatorTokens: map[string]config.Secret{"oncall": "operator-0123456789"},
		},
	}, cfg)
}

// The defaults that the comments name are those in force: outside of brokers, the reference sets
// each key to its default.
func TestReferenceNamesTheDefaults(t *testing.T) {
	t.Parallel()
	_, shared, _ := strings.Cut(config.Reference(), "\noutbox:\n")
	shared, rest, _ := strings.Cut(shared, "\nbrokers:")
	_, schedule, _ := strings.Cut(rest, "\ncleanup:")

	line := regexp.MustCompile(`(?m)^ +([a-z_]+): (\S.*?) +# default ([^;,\n]+)`)
	lines := line.FindAllStringSubmatch(shared+"\n"+schedule, -1)
	for _, match := range lines {
		if match[1] != "external_brokers" {
			assert.Equal(t, match[2], match[3], "the default of %s", match[1])
		}
	}
	assert.Len(t, lines, 29)

	cfg := parse(t, config.Reference(), referenceEnv)
	assert.Equal(t, outbox.Policy{}.WithDefaults(), cfg.Policy("default"))
	routing := cfg.Routing()
	routing.External = nil
	assert.Equal(t, outbox.Routing{Notify: true}.WithDefaults(), routing)
}

// contract is every key, by section. Configurations in the field rely on it: keys may be added,
// never removed.
var contract = map[string][]string{
	"":          {"databases", "outbox", "brokers", "cleanup", "monitor"},
	"databases": {"driver", "dsn", "notify"},
	"outbox": {
		"table", "internal_broker", "external_brokers", "ordering", "on_abandon", "serialize_keys", "max_payload_bytes",
		"workers", "batch_size", "batch_bytes", "lease", "publish_timeout", "shutdown_timeout", "poll", "retry", "breaker",
	},
	"outbox.poll":  {"min", "max"},
	"outbox.retry": {"max_attempts", "base_delay", "multiplier", "max_delay", "jitter"},
	"brokers": {
		"type", "url", "tls", "create_destinations", "max_message_bytes", "exchange", "unroutable", "expiration",
		"subject_prefix", "credentials_file", "stream", "bootstrap_servers", "sasl", "topics", "secrets", "concurrency", "request_timeout", "allow_http", "allow_private_networks", "urls", "master", "cluster", "max_len", "max_age", "approximate", "replicas", "backfill", "project", "endpoint", "compression", "options", "format", "source", "extensions", "filter", "workers", "batch_size", "batch_bytes",
		"publish_timeout", "ordering", "on_abandon", "retry", "retention", "rate", "breaker", "destination", "ttl", "content_type", "attributes",
	},
	"brokers.tls":       {"ca_file", "cert_file", "key_file", "server_name"},
	"brokers.stream":    {"replicas", "max_age", "duplicate_window"},
	"brokers.replicas":  {"count", "timeout"},
	"brokers.backfill":  {"below"},
	"brokers.retry":     {"max_attempts", "base_delay", "multiplier", "max_delay", "jitter"},
	"outbox.breaker":    {"trip_after", "min_delay", "max_delay"},
	"brokers.breaker":   {"trip_after", "min_delay", "max_delay"},
	"brokers.retention": {"published", "abandoned"},
	"cleanup":           {"interval", "published_retention", "abandoned_retention", "batch_size", "max_lag"},
	"monitor":           {"listen", "metrics", "viewer_tokens", "operator_tokens", "csrf_key"},
}

// What a section knows is what it lists when it meets a key that is like no other.
func TestSectionsKnowExactlyTheContract(t *testing.T) {
	t.Parallel()
	for section, keys := range contract {
		source := "zzzzzzzz: 1\n"
		if section != "" {
			parts := strings.Split(section, ".")
			if parts[0] == "databases" || parts[0] == "brokers" {
				parts = slices.Insert(parts, 1, "x")
			}
			source = strings.Join(parts, ": {") + ": {" + source[:len(source)-1] + strings.Repeat("}", len(parts)) + "\n"
		}
		_, err := config.Parse([]byte(source), "f", env())
		require.Error(t, err)
		match := regexp.MustCompile(`unknown key "zzzzzzzz": use (.*)`).FindStringSubmatch(err.Error())
		require.NotNil(t, match, "%s\n%s", source, err)
		assert.ElementsMatch(t, keys, strings.Split(strings.ReplaceAll(match[1], " or ", ", "), ", "), section)
	}
}

func TestReferenceShowsEveryKey(t *testing.T) {
	t.Parallel()
	for section, keys := range contract {
		for _, key := range keys {
			shown := fmt.Sprintf(`(?m)^[ #]*%s:`, key)
			assert.Regexp(t, shown, config.Reference(), "%s.%s", section, key)
		}
	}
}
