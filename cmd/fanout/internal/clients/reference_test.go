package clients_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/cmd/fanout/internal/clients"
	"github.com/gorm-fanout/fanout/config"
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
	assert.Len(t, lines, 30)

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
	"tenants":   {"file", "every", "driver", "notify", "max_conns", "idle_after", "visit_every", "visits", "max_awake"},
	"consumers": {"driver", "dsn", "table", "broker"},
	"databases": {"driver", "dsn", "notify"},
	"outbox": {
		"table", "internal_broker", "external_brokers", "ordering", "on_abandon", "keep", "serialize_keys", "max_payload_bytes",
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
