package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/config"
)

func TestRedisSettings(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `outbox: {external_brokers: [a, b]}
brokers:
  default: {type: redis, url: redis://x, max_len: 5, approximate: false, replicas: {count: 2}, backfill: {below: -50}}
  a: {type: redis, url: redis://y, max_age: 1d12h, replicas: {count: 1, timeout: 250ms}}
  b: {type: redis, url: redis://z, max_len: "${LENGTH}", approximate: true}
`, env("LENGTH", "7"))
	below := -50
	assert.Equal(t, &redisstreams.Settings{URL: "redis://x", MaxLen: 5, Exact: true, Replicas: 2, BackfillBelow: &below}, cfg.Brokers["default"].Settings)
	assert.Equal(t, &redisstreams.Settings{URL: "redis://y", MaxAge: 36 * time.Hour, Replicas: 1, ReplicaTimeout: 250 * time.Millisecond}, cfg.Brokers["a"].Settings)
	assert.Equal(t, &redisstreams.Settings{URL: "redis://z", MaxLen: 7}, cfg.Brokers["b"].Settings)
	cfg = parse(t, `outbox: {external_brokers: [a]}
brokers:
  default: {type: redis, urls: ["redis://:${PASSWORD}@s1:26379", "redis://s2:26379"], master: main}
  a: {type: redis, urls: [redis://n1], cluster: true}
`, env("PASSWORD", "hush"))
	assert.Equal(t, &redisstreams.Settings{URLs: []config.Secret{"redis://:hush@s1:26379", "redis://s2:26379"}, Master: "main"}, cfg.Brokers["default"].Settings)
	assert.Equal(t, &redisstreams.Settings{URLs: []config.Secret{"redis://n1"}, Cluster: true}, cfg.Brokers["a"].Settings)
}

func TestProblemsInRedisSettings(t *testing.T) {
	t.Parallel()
	checkBadInputs(t, []badInput{
		{"wrong values", `outbox: {external_brokers: [a, b, c]}
brokers:
  default: {type: redis, url: redis://x, max_len: 0, max_age: 5, approximate: "no", replicas: {count: 0, timeout: 1us}, backfill: {below: 500}}
  a: {type: redis, url: redis://y, max_len: many, max_age: 10ms, replicas: 2, backfill: {below: "0"}}
  b: {type: redis, url: redis://z, approximate: false, replicas: {timeout: 1s, number: 2}, backfill: {}}
  c: {type: redis, url: redis://w, max_len: 3, max_age: 7d, publish_timeout: 2s, replicas: {count: 1, timeout: 2s}, backfill: {below: 1.5}}
`, []string{
			`3:51: brokers.default.max_len: is "0": use at least 1`,
			`3:63: brokers.default.max_age: "5" has no unit: use a unit as in 5s`,
			"3:79: brokers.default.approximate: must be true or false",
			`3:103: brokers.default.replicas.count: is "0": use at least 1`,
			`3:115: brokers.default.replicas.timeout: is "1us": use at least 1ms`,
			`3:139: brokers.default.backfill.below: is "500": use -99 to 100`,
			"4:45: brokers.a.max_len: must be a whole number in plain digits, without quotes",
			`4:60: brokers.a.max_age: is "10ms": use at least 1s`,
			"4:76: brokers.a.replicas: must be a mapping of keys, but is a number",
			"4:79: brokers.a.backfill: is for the internal broker alone: consumers outside know one stream for each destination; remove it",
			"4:97: brokers.a.backfill.below: must be a whole number in plain digits, without quotes",
			"5:36: brokers.b.approximate: does nothing without max_len or max_age",
			"5:56: brokers.b.replicas: count is missing: use 1, or however many replicas have to acknowledge a message",
			`5:80: brokers.b.replicas: unknown key "number": use count or timeout`,
			"5:92: brokers.b.backfill: below is missing: use 0, or the priority below which messages go to the backfill",
			"6:48: brokers.c.max_age: does not go with max_len: Redis trims a stream by one of them; remove the other",
			"6:112: brokers.c.replicas.timeout: is 2s, but must be below publish_timeout (2s): a publish waits for the replicas",
			"6:117: brokers.c.backfill: is for the internal broker alone: consumers outside know one stream for each destination; remove it",
			"6:135: brokers.c.backfill.below: must be a whole number in plain digits, without quotes",
		}},
		{"servers", `outbox: {external_brokers: [a, b, c, d, e]}
brokers:
  default: {type: redis, url: redis://x, urls: [redis://y], master: main}
  a: {type: redis, urls: [], cluster: true}
  b: {type: redis, urls: [redis://y]}
  c: {type: redis, urls: [redis://w, "http://:hush@z", "redis://:hu/sh@z:99999"], master: main, cluster: true}
  d: {type: redis, master: main}
  e: {type: redis, urls: redis://y, cluster: "yes"}
`, []string{
			"3:42: brokers.default.urls: does not go with url: remove one of them",
			"4:26: brokers.a.urls: is empty: name Sentinels, with master, or nodes of a cluster, with cluster: true",
			"5:26: brokers.b.urls: needs master, the name by which Sentinels know the primary, or cluster: true",
			`6:26: brokers.c.urls: must begin with redis:// or rediss://`,
			"6:83: brokers.c.master: does not go with cluster: Sentinels watch servers that are not in a cluster; remove one of them",
			"7:3: brokers.d: url is missing: use redis://user:password@host:6379/0",
			"8:26: brokers.e.urls: must be a list, as in [a, b], but is a text",
			"8:46: brokers.e.cluster: must be true or false",
		}},
		{"another type", "brokers: {default: {type: memory, max_len: 5, max_age: 1h, approximate: true, replicas: {count: 1}, backfill: {below: 0}}}\n", []string{
			"1:35: brokers.default.max_len: does nothing for a broker of type memory: remove it",
			"1:47: brokers.default.max_age: does nothing for a broker of type memory: remove it",
			"1:60: brokers.default.approximate: does nothing for a broker of type memory: remove it",
			"1:79: brokers.default.replicas: does nothing for a broker of type memory: remove it",
			"1:101: brokers.default.backfill: does nothing for a broker of type memory: remove it",
		}},
	})
}
