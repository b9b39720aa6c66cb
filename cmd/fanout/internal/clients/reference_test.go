package clients_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
	"github.com/gorm-fanout/fanout/brokers/kafka"
	"github.com/gorm-fanout/fanout/brokers/nats"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/cmd/fanout/internal/clients"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

var referenceEnv = config.WithEnv(env("DATABASE_URL", "postgres://db", "REPORTING_DSN", "sqlserver://db", "BILLING_DSN", "postgres://billing", "REDIS_URL", "redis://cache:6379/0",
	"RABBITMQ_URL", "amqps://relay@rabbit.internal/shop", "NATS_URL", "nats://one:4222,nats://two:4222",
	"KAFKA_SERVERS", "one:9092,two:9092", "KAFKA_PASSWORD", "hush", "SHOP_SECRET", shopSecret,
	"VIEWER_TOKEN", "viewer-0123456789", "OPERATOR_TOKEN", "operator-0123456789"))

const shopSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func env(pairs ...string) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func reference(t *testing.T) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(config.Reference()), "fanout.example.yaml", referenceEnv, config.WithBrokerTypes(clients.Types()...))
	require.NoError(t, err)
	return cfg
}

func TestReferenceLoads(t *testing.T) {
	t.Parallel()
	cfg := reference(t)

	keep := true
	want := config.Config{
		Databases: map[string]config.Database{
			"default":   {Driver: outbox.Postgres, DSN: "postgres://db", Notify: true},
			"reporting": {Driver: outbox.SQLServer, DSN: "sqlserver://db"},
		},
		Consumers: map[string]config.Consumer{"billing": {Driver: outbox.Postgres, DSN: "postgres://billing", Table: "inbox_messages", Broker: "default"}},
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
			"default": {Type: "redis", Settings: &redisstreams.Settings{URL: "redis://cache:6379/0", BackfillBelow: new(int)}},
			"partner": {
				Type: "pubsub", Settings: &gcppubsub.Settings{Project: "acme-production", Endpoint: "us-east1-pubsub.googleapis.com:443", Compression: 1024},
				MessageFormat: envelope.FormatCloudEvents, JSON: true, Source: "/acme/ordering", Extensions: []string{"tenant_id"}, Include: envelope.Include{TraceState: true}, Filter: []string{"Ordering.*"},
				Overrides: outbox.Overrides{
					Destination: "shop.{aggregate}", TTL: 24 * time.Hour, Attributes: map[string]string{"environment": "production"},
				},
				Rate: 200, Breaker: outbox.Breaker{TripAfter: 5, MinDelay: time.Second, MaxDelay: time.Minute},
				Workers: 1, BatchSize: 100, BatchBytes: 4 << 20, PublishTimeout: 10 * time.Second, Ordering: config.OrderingPerKey,
				OnAbandon: config.OnAbandonBlock, Keep: &keep,
				Retry:     outbox.Retry{MaxAttempts: 20, BaseDelay: 10 * time.Second, Multiplier: 1.5, MaxDelay: 30 * time.Minute, Jitter: 0.5},
				Retention: cleanup.Retention{Published: 30 * 24 * time.Hour, Abandoned: 90 * 24 * time.Hour},
			},
			"audit": {
				Type: "redis", Overrides: outbox.Overrides{ContentType: "application/vnd.acme.audit+json"},
				Settings: &redisstreams.Settings{URL: "rediss://audit.internal:6380/2", MaxLen: 1_000_000, Replicas: 1, ReplicaTimeout: time.Second},
			},
			"warehouse": {Type: "rabbitmq", Settings: &rabbitmq.Settings{
				URL: "amqps://relay@rabbit.internal/shop", CreateDestinations: true, MaxMessageBytes: 1 << 20, Exchange: "fanout", Unroutable: "wait",
				Expiration: 72 * time.Hour,
				TLS:        &adapter.TLS{CAFile: "/etc/fanout/ca.pem", CertFile: "/etc/fanout/relay.pem", KeyFile: "/etc/fanout/relay.key", ServerName: "rabbit.internal"},
			}},
			"analytics": {Type: "nats", Settings: &nats.Settings{
				MessageTTL: true,
				URL:        "nats://one:4222,nats://two:4222", CreateDestinations: true, SubjectPrefix: "shop.", CredentialsFile: "/etc/fanout/relay.creds",
				Stream: nats.StreamSettings{Replicas: 3, MaxAge: 30 * 24 * time.Hour, DuplicateWindow: 2 * time.Minute},
			}},
			"lake": {Type: "kafka", Settings: &kafka.Settings{
				BootstrapServers: "one:9092,two:9092", TLS: &adapter.TLS{}, CreateDestinations: true, MaxMessageBytes: 1_048_588,
				SASL: kafka.SASL{Mechanism: "SCRAM-SHA-512", Username: "relay", Password: "hush"}, Topics: kafka.TopicSettings{Partitions: 12, Replicas: 3},
			}},
			"shop": {Type: "webhook", Settings: &webhook.Settings{
				URL: "https://shop.example/hooks", Secrets: []config.Secret{shopSecret}, Concurrency: 8, RequestTimeout: 15 * time.Second,
			}},
		},
		Tenants: config.Tenants{
			File: "tenants.yaml", Every: 10 * time.Second, Driver: outbox.Postgres, MaxConns: 4, IdleAfter: time.Minute, VisitEvery: 30 * time.Second, Visits: 4, MaxAwake: 20,
		},
		Cleanup: config.DefaultCleanup(),
		Monitor: config.Monitor{
			Listen: "127.0.0.1:8088", Metrics: true, ViewerTokens: map[string]config.Secret{"grafana": "viewer-0123456789"},
			OperatorTokens: map[string]config.Secret{"oncall": "operator-0123456789"},
		},
	}
	require.NoError(t, cfg.Validate(), "what a file may say, a program may, too")
	got := reflect.ValueOf(*cfg)
	for i := range got.NumField() {
		if field := got.Type().Field(i); field.IsExported() {
			assert.Equal(t, reflect.ValueOf(want).Field(i).Interface(), got.Field(i).Interface(), field.Name)
		}
	}
}

// The defaults that the comments name are those in force: outside of brokers, the reference sets
// each key to its default.
func TestReferenceNamesTheDefaults(t *testing.T) {
	t.Parallel()
	_, shared, _ := strings.Cut(config.Reference(), "\noutbox:")
	shared, rest, _ := strings.Cut(shared, "\nbrokers:")
	_, schedule, _ := strings.Cut(rest, "\ncleanup:")

	line := regexp.MustCompile(`(?m)^ +([a-z_]+): (\S.*?) +# default ([^;,\n]+)`)
	lines := line.FindAllStringSubmatch(shared+"\n"+schedule, -1)
	for _, match := range lines {
		if match[1] != "external_brokers" {
			assert.Equal(t, match[2], match[3], "the default of %s", match[1])
		}
	}
	assert.Len(t, lines, 31)

	cfg := reference(t)
	assert.Equal(t, outbox.Policy{}.WithDefaults(), cfg.Policy("default"))
	routing := cfg.Routing()
	routing.External = nil
	assert.Equal(t, outbox.Routing{Notify: true}.WithDefaults(), routing)
}

// contract is every key, by section. Configurations in the field rely on it: keys may be added,
// never removed.
var contract = map[string][]string{
	"":          {"databases", "tenants", "consumers", "outbox", "brokers", "cleanup", "monitor"},
	"tenants":   {"file", "query", "every", "driver", "notify", "max_conns", "idle_after", "visit_every", "visits", "max_awake"},
	"consumers": {"driver", "dsn", "table", "broker"},
	"databases": {"driver", "dsn", "notify"},
	"outbox": {
		"table", "internal_broker", "external_brokers", "ordering", "on_abandon", "keep", "partition", "serialize_keys", "max_payload_bytes",
		"workers", "batch_size", "batch_bytes", "lease", "publish_timeout", "shutdown_timeout", "poll", "retry", "breaker",
	},
	"outbox.poll":  {"min", "max"},
	"outbox.retry": {"max_attempts", "base_delay", "multiplier", "max_delay", "jitter"},
	"brokers": {
		"type", "format", "encoding", "source", "extensions", "include", "filter", "workers", "batch_size", "batch_bytes", "publish_timeout", "ordering", "on_abandon", "keep", "retry",
		"retention", "rate", "breaker", "destination", "ttl", "content_type", "attributes", "sign",
	},
	"brokers.retry":     {"max_attempts", "base_delay", "multiplier", "max_delay", "jitter"},
	"outbox.breaker":    {"trip_after", "min_delay", "max_delay"},
	"brokers.breaker":   {"trip_after", "min_delay", "max_delay"},
	"brokers.retention": {"published", "abandoned"},
	"cleanup":           {"interval", "published_retention", "abandoned_retention", "batch_size", "max_lag"},
	"monitor":           {"listen", "metrics", "viewer_tokens", "operator_tokens", "csrf_key"},
}

// byType is every key that brokers of a type have beside those, by section.
var byType = map[string]map[string][]string{
	"redis": {
		"":         {"url", "urls", "master", "cluster", "max_len", "max_age", "approximate", "replicas", "backfill"},
		"replicas": {"count", "timeout"}, "backfill": {"below"},
	},
	"pubsub":   {"": {"project", "endpoint", "compression", "create_destinations"}},
	"rabbitmq": {"": {"url", "tls", "create_destinations", "max_message_bytes", "exchange", "unroutable", "expiration"}, "tls": tlsKeys},
	"nats": {
		"":       {"url", "tls", "create_destinations", "max_message_bytes", "subject_prefix", "credentials_file", "message_ttl", "stream"},
		"stream": {"replicas", "max_age", "duplicate_window"}, "tls": tlsKeys,
	},
	"kafka": {
		"":       {"bootstrap_servers", "sasl", "tls", "create_destinations", "max_message_bytes", "topics"},
		"topics": {"partitions", "replicas"}, "tls": tlsKeys,
		"sasl": {"mechanism", "username", "password", "token_url", "client_id", "client_secret", "scopes"},
	},
	"webhook": {
		"":    {"url", "secrets", "tls", "max_message_bytes", "concurrency", "request_timeout", "allow_http", "allow_private_networks"},
		"tls": tlsKeys,
	},
	"memory": {"": {}},
}

var tlsKeys = []string{"ca_file", "cert_file", "key_file", "server_name"}

// What a section knows is what it lists when it meets a key that is like no other.
func TestSectionsKnowExactlyTheContract(t *testing.T) {
	t.Parallel()
	knows := func(keys []string, source string) {
		_, err := config.Parse([]byte(source), "f", config.WithBrokerTypes(clients.Types()...))
		require.Error(t, err)
		match := regexp.MustCompile(`unknown key "zzzzzzzz": use (.*)`).FindStringSubmatch(err.Error())
		require.NotNil(t, match, "%s\n%s", source, err)
		assert.ElementsMatch(t, keys, strings.Split(strings.ReplaceAll(match[1], " or ", ", "), ", "), source)
	}
	inside := func(section string) string {
		if section == "" {
			return "zzzzzzzz: 1"
		}
		return section + ": {zzzzzzzz: 1}"
	}
	for section, keys := range contract {
		first, rest, _ := strings.Cut(section, ".")
		switch first {
		case "":
			knows(keys, inside("")+"\n")
		case "databases", "consumers":
			knows(keys, first+": {x: {"+inside(rest)+"}}\n")
		case "brokers":
			knows(keys, "brokers: {x: {type: memory, "+inside(rest)+"}}\n")
		default:
			knows(keys, first+": {"+inside(rest)+"}\n")
		}
	}
	for kind, sections := range byType {
		for section, keys := range sections {
			if section == "" {
				keys = slices.Concat(keys, contract["brokers"])
			}
			knows(keys, "brokers: {x: {type: "+kind+", "+inside(section)+"}}\n")
		}
	}
}

func TestReferenceShowsEveryKey(t *testing.T) {
	t.Parallel()
	shows := func(key string) { assert.Regexp(t, `(?m)^[ #]*`+key+`:`, config.Reference()) }
	for _, keys := range contract {
		for _, key := range keys {
			shows(key)
		}
	}
	for _, sections := range byType {
		for _, keys := range sections {
			for _, key := range keys {
				shows(key)
			}
		}
	}
}
