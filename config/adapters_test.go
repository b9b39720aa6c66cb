package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/config"
)

const (
	whsecA = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	whsecB = "whsec_AfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// The settings of real adapters have the forms that no other adapter has: negated flags, nested keys, pointers
// and lists of secrets.
func TestSettingsOfAdapters(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `outbox: {external_brokers: [a, b]}
brokers:
  default: {type: redis, url: redis://x, max_len: "${LENGTH}", approximate: false, replicas: {count: 2, timeout: 250ms}, backfill: {below: -50}}
  a: {type: redis, urls: ["redis://:${PASSWORD}@s1:26379", "redis://s2:26379"], master: main}
  b: {type: webhook, url: "https://u:p@y:8080", secrets: [`+whsecB+`, `+whsecA+`], allow_http: true, request_timeout: 3s, tls: {ca_file: ca.pem}}
`, env("LENGTH", "5", "PASSWORD", "hush"))
	below := -50
	assert.Equal(t, &redisstreams.Settings{URL: "redis://x", MaxLen: 5, Exact: true, Replicas: 2, ReplicaTimeout: 250 * time.Millisecond, BackfillBelow: &below},
		cfg.Brokers["default"].Settings)
	assert.Equal(t, &redisstreams.Settings{URLs: []config.Secret{"redis://:hush@s1:26379", "redis://s2:26379"}, Master: "main"}, cfg.Brokers["a"].Settings)
	assert.Equal(t, &webhook.Settings{
		URL: "https://u:p@y:8080", Secrets: []config.Secret{whsecB, whsecA}, AllowHTTP: true, RequestTimeout: 3 * time.Second, TLS: &adapter.TLS{CAFile: "ca.pem"},
	}, cfg.Brokers["b"].Settings)
}

// Each adapter reports the settings that do not fit together, with their places, all at once.
func TestProblemsInSettingsOfAdapters(t *testing.T) {
	t.Parallel()
	checkBadInputs(t, []badInput{
		{"redis", `outbox: {external_brokers: [a, b, c, d, e, f, g]}
brokers:
  default: {type: redis, url: redis://x, urls: [redis://y], master: main, backfill: {below: 500}}
  a: {type: redis, url: redis://y, max_age: 10ms, backfill: {below: 0}}
  b: {type: redis, url: redis://z, approximate: false, replicas: {timeout: 1s, number: 2}}
  c: {type: redis, url: redis://w, max_len: 3, max_age: 7d, publish_timeout: 2s, replicas: {count: 1, timeout: 2s}}
  d: {type: redis, urls: [], cluster: true}
  e: {type: redis, urls: [redis://v]}
  f: {type: redis, urls: [redis://w, "http://:hush@z", "redis://:hu/sh@z:99999"], master: main, cluster: true}
  g: {type: redis, master: main}
`, []string{
			"3:42: brokers.default.urls: does not go with url: remove one of them",
			`3:93: brokers.default.backfill.below: is "500": use -99 to 100`,
			`4:45: brokers.a.max_age: is "10ms": use at least 1s`,
			"4:51: brokers.a.backfill: is for the internal broker alone: consumers outside know one stream for each destination; remove it",
			"5:36: brokers.b.approximate: does nothing without max_len or max_age",
			"5:56: brokers.b.replicas: count is missing: use 1, or however many replicas have to acknowledge a message",
			`5:80: brokers.b.replicas: unknown key "number": use count or timeout`,
			"6:48: brokers.c.max_age: does not go with max_len: Redis trims a stream by one of them; remove the other",
			"6:112: brokers.c.replicas.timeout: is 2s, but must be below publish_timeout (2s): a publish waits for the replicas",
			"7:26: brokers.d.urls: is empty: name Sentinels, with master, or nodes of a cluster, with cluster: true",
			"8:26: brokers.e.urls: needs master, the name by which Sentinels know the primary, or cluster: true",
			`9:26: brokers.f.urls: must begin with redis:// or rediss://`,
			"9:83: brokers.f.master: does not go with cluster: Sentinels watch servers that are not in a cluster; remove one of them",
			"10:3: brokers.g: url is missing: use redis://user:password@host:6379/0",
		}},
		{"rabbitmq", `outbox: {external_brokers: [a, b]}
brokers:
  default: {type: rabbitmq, url: http://x, unroutable: maybe, expiration: 1us, max_message_bytes: 0}
  a: {type: rabbitmq, tls: {cert_file: x, file: y}}
  b: {type: rabbitmq, url: amqp://x, tls: {ca_file: x}}
`, []string{
			"3:34: brokers.default.url: must begin with amqp:// or amqps://",
			`3:56: brokers.default.unroutable: "maybe" is not known: use wait or drop`,
			`3:75: brokers.default.expiration: is "1us": use at least 1ms`,
			`3:99: brokers.default.max_message_bytes: is "0": use 1 to 536870912`,
			"4:3: brokers.a: url is missing: use amqp://user:password@host:5672/vhost",
			"4:28: brokers.a.tls: cert_file and key_file go together: the certificate, and the private key that belongs to it",
			`4:43: brokers.a.tls: unknown key "file": did you mean "ca_file"?`,
			"5:38: brokers.b.tls: does nothing without TLS: let url begin with amqps://, or remove it",
		}},
		{"webhook", `outbox: {external_brokers: [a, b, c, d]}
brokers:
  default: {type: webhook, url: http://x, secrets: whsec_hush, concurrency: 300, request_timeout: 0s}
  a: {type: webhook, allow_http: 1}
  b: {type: webhook, url: ftp://x/hooks, secrets: [hunter2]}
  c: {type: webhook, url: http://x/hooks, secrets: [5], allow_http: true, tls: {}}
  d: {type: webhook, url: https://x/hooks/d, secrets: [` + whsecA + `], request_timeout: 15001ms, publish_timeout: 15s}
`, []string{
			"3:33: brokers.default.url: the URL begins with http://, so that anyone on the path could read what is sent: use https://, or allow it (allow_http)",
			"3:52: brokers.default.secrets: must be a list, as in [a, b], but is a text",
			`3:77: brokers.default.concurrency: is "300": use 1 to 256`,
			`3:99: brokers.default.request_timeout: is "0s": use a positive duration`,
			"4:3: brokers.a: url is missing: use https://partner.example/hooks",
			"4:3: brokers.a: secrets is missing: use [whsec_...]",
			"4:34: brokers.a.allow_http: must be true or false",
			"5:27: brokers.b.url: must begin with https://",
			`5:51: brokers.b.secrets: secret 1 is not "whsec_" and 24 to 64 bytes in base64: make one with "echo whsec_$(openssl rand -base64 32)"`,
			"6:53: brokers.c.secrets[0]: is a number: put it in quotes to use it as text",
			"6:75: brokers.c.tls: does nothing without TLS: let url begin with https://, or remove it",
			"7:114: brokers.d.request_timeout: is 15.001s, longer than publish_timeout (15s), which ends the request before",
		}},
	})
}

// Two brokers must not write to one place, however its URL is written. Partners' webhooks may share an endpoint.
func TestPlaces(t *testing.T) {
	t.Parallel()
	const hook = "type: webhook, secrets: [" + whsecA + "], url: "
	for _, c := range []struct {
		one, other string
		same       bool
	}{
		{"type: redis, url: 'redis://h'", "type: redis, url: 'redis://h:6379/0'", true},
		{"type: redis, url: 'redis://:s3cret@h/2'", "type: redis, url: 'redis://other:s4cret@H:6379/2?pool_size=3'", true},
		{"type: redis, url: 'redis://h/1?db=3'", "type: redis, url: 'rediss://h/3'", true},
		{"type: redis, url: 'redis://localhost'", "type: redis, url: 'redis://'", true},
		{"type: redis, url: 'unix:///run/redis.sock'", "type: redis, url: 'unix://me:s3cret@/run/redis.sock?db=0'", true},
		{"type: redis, url: 'redis://h'", "type: redis, url: 'redis://h/1'", false},
		{"type: redis, url: 'redis://h'", "type: redis, url: 'redis://h:6380'", false},
		{"type: redis, url: 'redis://h'", "type: redis, url: 'redis://i'", false},
		{"type: redis, url: 'redis://h'", "type: redis, url: 'redis://h', destination: 'partner.{stream}'", false},
		{"type: redis, url: 'unix:///run/redis.sock'", "type: redis, url: 'unix:///run/other.sock'", false},
		{"type: rabbitmq, url: amqp://h", "type: rabbitmq, url: amqp://h/", true},
		{"type: rabbitmq, url: amqp://h", "type: rabbitmq, url: 'amqp://ada:secret@H:5672', exchange: fanout", true},
		{"type: rabbitmq, url: amqp://h", "type: rabbitmq, url: amqps://h", true},
		{"type: rabbitmq, url: amqp://h", "type: rabbitmq, url: amqp://h/shop", false},
		{"type: rabbitmq, url: amqp://h", "type: rabbitmq, url: amqp://h, exchange: other", false},
		{hook + "'https://x/hooks'", hook + "'https://u:p@X:443/hooks'", true},
		{hook + "'https://x/hooks?tenant=1'", hook + "'https://x/hooks?tenant=2'", false},
	} {
		_, err := parsed([]byte("outbox: {external_brokers: [x]}\nbrokers: {default: {"+c.one+"}, x: {"+c.other+"}}\n"), "f")
		if !c.same {
			require.NoError(t, err, c)
			continue
		}
		require.ErrorContains(t, err, `brokers.x: is the same place as broker "default"`, c)
		assert.NotContains(t, err.Error(), "cret")
	}
	_, err := parsed([]byte("outbox: {external_brokers: [a, b]}\nbrokers: {default: {type: redis, url: redis://x}, "+
		"a: {"+hook+"'https://x/hooks'}, b: {"+hook+"'https://x/hooks'}}\n"), "f")
	require.NoError(t, err, "each partner has its filter and secret")
}
