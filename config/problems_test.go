package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/config"
)

// problemsIn returns one line per problem, without the file's name.
func problemsIn(t *testing.T, source string, opts ...config.Option) []string {
	t.Helper()
	cfg, err := parsed([]byte(source), "fanout.yaml", append([]config.Option{env()}, opts...)...)
	require.Error(t, err)
	assert.Nil(t, cfg)
	var report *config.Error
	require.ErrorAs(t, err, &report)
	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, len(report.Problems))
	for i := range lines {
		var found bool
		lines[i], found = strings.CutPrefix(lines[i], "fanout.yaml:")
		require.True(t, found, lines[i])
	}
	return lines
}

type badInput struct {
	name, source string
	want         []string
}

func checkBadInputs(t *testing.T, inputs []badInput) {
	t.Helper()
	for _, input := range inputs {
		t.Run(input.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, input.want, problemsIn(t, input.source))
		})
	}
}

// brokersSection makes what a test is not about complete.
const brokersSection = "\nbrokers: {default: {type: memory}, partner: {type: memory}}\n"

func TestProblemsInDatabases(t *testing.T) {
	t.Parallel()
	checkBadInputs(t, []badInput{{"all at once", `databases:
  a: 1
  b: {dsn: x}
  c:
  "p@ss word": {driver: sqlite}
  d: {driver: oracle}
  D: {driver: postgre, dsn: 5}
  e: {driver: ~, dsn: ""}
  f: {driver: [sqlite], dsn: "a\nb", DSN: x}
` + brokersSection, []string{
		"2:6: databases.a: must be a mapping of keys, but is a number",
		"3:3: databases.b: driver is missing: use postgres, sqlserver, mysql or sqlite",
		"4:3: databases.c: driver is missing: use postgres, sqlserver, mysql or sqlite",
		"5:3: databases: name (not shown: it may be a secret): use letters, digits, _ and -, at most 63",
		`6:15: databases.d.driver: "oracle" is not known: use postgres, sqlserver, mysql or sqlite`,
		`7:3: databases.D: differs from "d" in line 6 only in capitals, which some databases do not tell apart`,
		`7:15: databases.D.driver: "postgre" is not known: did you mean "postgres"?`,
		"7:29: databases.D.dsn: is a number: put it in quotes to use it as text",
		"8:7: databases.e.driver: has no value: give it one, or remove it",
		"8:23: databases.e.dsn: is empty: give it a value, or remove it",
		"9:15: databases.f.driver: must be a single value, but is a list",
		"9:30: databases.f.dsn: contains a line break or another control character",
		`9:38: databases.f: unknown key "DSN": did you mean "dsn"?`,
	}}})
}

func TestProblemsInOutbox(t *testing.T) {
	t.Parallel()
	checkBadInputs(t, []badInput{
		{"wrong values", `outbox:
  table: a-b
  internal_broker: dflt
  external_brokers: [partnr, partner, 'partner', dflt, 5, [], ~]
  ordering: perkey
  on_abandon: stop
  serialize_keys: "true"
  max_payload_bytes: -1
  workers: 0
  batch_size: 5000
  lease: 5
  publish_timeout: 10m
  shutdown_timeout: -1s
  poll: {min: 5s, max: 1s}
  retry:
    max_attempts: 0
    base_delay: 2h
    multiplier: 0.5
    max_delay: 1h
    jitter: 2
  serialise_keys: true
  leese: 1m
  frequency: 1
monitor: {listen: x}
` + brokersSection, []string{
			`2:10: outbox.table: "a-b" is no table name: use letters, digits and underscores (at most 48), with an optional schema as in "app.outbox_messages"`,
			`3:20: outbox.internal_broker: brokers has no entry "dflt": use default or partner`,
			`4:22: outbox.external_brokers[0]: brokers has no entry "partnr": did you mean "partner"?`,
			`4:39: outbox.external_brokers[2]: duplicate external broker "partner": it is listed in line 4 already`,
			`4:50: outbox.external_brokers[3]: brokers has no entry "dflt": use default or partner`,
			"4:56: outbox.external_brokers[4]: is a number: put it in quotes to use it as text",
			"4:59: outbox.external_brokers[5]: must be a single value, but is a list",
			"4:63: outbox.external_brokers[6]: has no value: give it one, or remove it",
			`5:13: outbox.ordering: "perkey" is not known: did you mean "per_key"?`,
			`6:15: outbox.on_abandon: "stop" is not known: use continue or block`,
			"7:19: outbox.serialize_keys: must be true or false",
			`8:22: outbox.max_payload_bytes: is "-1": use at least 1`,
			`9:12: outbox.workers: is "0": use at least 1`,
			`10:15: outbox.batch_size: is "5000": use 1 to 2000`,
			`11:10: outbox.lease: "5" has no unit: use a unit as in 5s`,
			`13:21: outbox.shutdown_timeout: is "-1s": use a positive duration`,
			"14:24: outbox.poll.max: is 1s, below poll.min (5s)",
			`16:19: outbox.retry.max_attempts: is "0": use at least 1`,
			`18:17: outbox.retry.multiplier: is "0.5": use at least 1`,
			"19:16: outbox.retry.max_delay: is 1h, below base_delay (2h)",
			`20:13: outbox.retry.jitter: is "2": use a fraction from 0 to 1`,
			"21:3: outbox: unknown key \"serialise_keys\": did you mean \"serialize_keys\"?",
			`22:3: outbox: unknown key "leese": did you mean "lease"?`,
			`23:3: outbox: unknown key "frequency": use table, internal_broker, external_brokers, max_payload_bytes, ordering, workers, ` +
				"batch_size, batch_bytes, lease, publish_timeout, shutdown_timeout, poll, retry, breaker, on_abandon, keep or serialize_keys",
			`24:19: monitor.listen: "x" is no address to listen on: use a host and a port, as in 127.0.0.1:8088`,
		}},
		{"wrong types", `outbox:
  workers: "5"
  max_payload_bytes: 99999999999999999999
  lease: 100ms
  publish_timeout: 5 s
  poll: {min: ~, max: {}}
  retry: {max_attempts: 0x10, multiplier: .inf, max_delay: 010}
  table: 5
  external_brokers: partner
` + brokersSection, []string{
			"2:12: outbox.workers: must be a whole number in plain digits, without quotes",
			`3:22: outbox.max_payload_bytes: is "99999999999999999999": use at most 2147483647`,
			`4:10: outbox.lease: is "100ms": use at least 1s`,
			`5:20: outbox.publish_timeout: "5 s" is not a duration: write one such as 500ms, 30s, 5m, 24h or 30d`,
			"6:10: outbox.poll.min: has no value: give it one, or remove it",
			"6:23: outbox.poll.max: must be a single value, but is a mapping",
			"7:25: outbox.retry.max_attempts: must be a whole number in plain digits, without quotes",
			"7:43: outbox.retry.multiplier: must be a number, without quotes",
			`7:60: outbox.retry.max_delay: "010" has no unit: use a unit as in 5s`,
			"8:10: outbox.table: is a number: put it in quotes to use it as text",
			"9:21: outbox.external_brokers: must be a list, as in [a, b], but is a text",
		}},
		{"timeout as long as the lease", "outbox: {publish_timeout: 1m, lease: 60s}" + brokersSection, []string{
			"1:27: outbox.publish_timeout: is 1m, but must be below outbox.lease (1m): a publish must end before others can claim its rows",
		}},
		{"poll.max below the default", "outbox: {poll: {max: 10ms}}" + brokersSection, []string{
			"1:22: outbox.poll.max: is 10ms, below poll.min (20ms)",
		}},
		{"no brokers", "outbox: {lease: 1m}\n", []string{
			`1:1: outbox.internal_broker: brokers has no entry "default", which is the default: declare it, or name another one`,
		}},
	})
}

func TestProblemsInBrokers(t *testing.T) {
	t.Parallel()
	checkBadInputs(t, []badInput{
		{"wrong values", `brokers:
  default: {type: redis, format: native, source: x, filter: [], rate: 0, destination: "{x", url: "http://u:hunter2@x"}
  a: {}
  A: {type: rdis}
  b: {type: strange, urls: [x], format: xml, source: s, filter: ['[', 5, '']}
  c: {type: redis, region: x, source: s, ordering: per-key, on_abandon: blok,
      retry: {base_delay: 2h, max_delay: 1h}, publish_timeout: 5m, retention: {published: -1h, abandon: 5}}
  d: {type: "redis://u:hunter2@h"}
  e: {type: memory, region: x, topic: x, workers: 0, batch_size: 0, batch_bytes: 0}
  f: 7
  f: {type: strange}
  g: {type: cassandra}
  h: {type: strange, url: x, queue: [1]}
  i: {type: strange, url: x, queue: {a: 1, a: 2, name: "${UNSET}"}, hosts: ["${UNSET}"], login: {<<: {}}, region: !x 5}
`, []string{
			"2:26: brokers.default.format: does nothing for the internal broker, which gets every event in its internal form: remove it",
			"2:42: brokers.default.source: does nothing for the internal broker, which gets every event in its internal form: remove it",
			"2:53: brokers.default.filter: does nothing for the internal broker, which gets every event in its internal form: remove it",
			"2:61: brokers.default.filter: is empty: name a pattern, or remove it to let every event pass",
			`2:71: brokers.default.rate: is "0": use at least 0.001`,
			"2:87: brokers.default.destination: { is no placeholder: use {stream}, {context}, {aggregate}, {type}",
			"2:98: brokers.default.url: must begin with redis://, rediss:// or unix://",
			"3:3: brokers.a: type is missing: use redis, rabbitmq, webhook, memory or strange",
			`4:3: brokers.A: differs from "a" in line 3 only in capitals, which some databases do not tell apart`,
			`4:13: brokers.A.type: "rdis" is not known: did you mean "redis"?`,
			"5:3: brokers.b: url is missing: use strange://host",
			"5:22: brokers.b.urls: does nothing for a broker of type strange: remove it",
			`5:41: brokers.b.format: "xml" is not known: use native or cloudevents`,
			`5:66: brokers.b.filter[0]: "[" is not a pattern such as "Ordering.*"`,
			"5:71: brokers.b.filter[1]: is a number: put it in quotes to use it as text",
			"5:74: brokers.b.filter[2]: is empty: give it a value, or remove it",
			"6:3: brokers.c: url is missing: use redis://user:password@host:6379/0",
			"6:20: brokers.c.region: does nothing for a broker of type redis: remove it",
			"6:31: brokers.c.source: does nothing without format: cloudevents",
			`6:52: brokers.c.ordering: "per-key" is not known: did you mean "per_key"?`,
			`6:73: brokers.c.on_abandon: "blok" is not known: did you mean "block"?`,
			"7:42: brokers.c.retry.max_delay: is 1h, below base_delay (2h)",
			"7:64: brokers.c.publish_timeout: is 5m, but must be below outbox.lease (1m): a publish must end before others can claim its rows",
			`7:91: brokers.c.retention.published: is "-1h": use a positive duration`,
			`7:96: brokers.c.retention: unknown key "abandon": did you mean "abandoned"?`,
			"8:13: brokers.d.type: (not shown: it may be a secret) is not known: use redis, rabbitmq, webhook, memory or strange",
			"9:21: brokers.e.region: does nothing for a broker of type memory: remove it",
			`9:32: brokers.e: unknown key "topic": use type, format, encoding, source, extensions, include, filter, destination, ttl, content_type, attributes, sign, workers, batch_size, batch_bytes, publish_timeout, rate, breaker, ordering, on_abandon, keep, retry or retention`,
			`9:51: brokers.e.workers: is "0": use at least 1`,
			`9:66: brokers.e.batch_size: is "0": use 1 to 2000`,
			`9:82: brokers.e.batch_bytes: is "0": use at least 1`,
			"10:6: brokers.f: must be a mapping of keys, but is a number",
			`11:3: brokers: duplicate key "f": the first one is in line 10`,
			`12:13: brokers.g.type: "cassandra" is not linked by this program, so the settings of the connection are not checked; linked are redis, rabbitmq, webhook, memory or strange`,
			"13:37: brokers.h.queue: must be a mapping of keys, but is a list",
			`14:38: brokers.i.queue: unknown key "a": use name`,
			`14:44: brokers.i.queue: duplicate key "a": the first one is in line 14`,
			"14:56: brokers.i.queue.name: environment variable UNSET is not set: set it, or write ${UNSET:-default}",
			"14:77: brokers.i.hosts[0]: environment variable UNSET is not set: set it, or write ${UNSET:-default}",
			"14:98: brokers.i.login: merge keys (<<) are not supported: write the keys out",
			"14:115: brokers.i.region: tags (!) are not supported: write the value without one",
		}},
		{"overrides against the outbox", "outbox: {retry: {max_delay: 2m}, lease: 20s}\nbrokers: {default: {type: memory, publish_timeout: 20s, retry: {base_delay: 3m}}}\n", []string{
			"2:52: brokers.default.publish_timeout: is 20s, but must be below outbox.lease (20s): a publish must end before others can claim its rows",
			"2:77: brokers.default.retry.base_delay: is 3m, above max_delay (2m)",
		}},
		{"what messages have", `outbox: {breaker: {max_delay: 2s}}
brokers:
  default: {type: memory, attributes: {id: "1", googx: y, ok: z, "": a, n: 5, l: [1]}, ttl: 0s, content_type: json, breaker: {min_delay: 3s}}
  x: {type: memory, format: cloudevents, content_type: a/b, destination: "{tenant}-{stream}", breaker: {trip_after: 0, min_delay: 2s, max_delay: 1s}}
`, []string{
			`3:44: brokers.default.attributes.id: "id" is a field that each message has by itself: choose another name`,
			`3:56: brokers.default.attributes.googx: "googx" begins with goog, which Google Cloud Pub/Sub keeps for itself`,
			"3:70: brokers.default.attributes.: has an empty name",
			"3:76: brokers.default.attributes.n: is a number: put it in quotes to use it as text",
			"3:82: brokers.default.attributes.l: must be a single value, but is a list",
			`3:93: brokers.default.ttl: is "0s": use a positive duration`,
			`3:111: brokers.default.content_type: "json" is not a media type such as application/json`,
			"3:138: brokers.default.breaker.min_delay: is 3s, above max_delay (2s)",
			"4:42: brokers.x.content_type: does not go together with format: cloudevents, whose messages are application/cloudevents+json: remove it",
			"4:74: brokers.x.destination: {tenant} is no placeholder: use {stream}, {context}, {aggregate}, {type}",
			`4:117: brokers.x.breaker.trip_after: is "0": use at least 1`,
			"4:146: brokers.x.breaker.max_delay: is 1s, below min_delay (2s)",
		}},
		{"what leaves", `outbox: {external_brokers: [n, c]}
brokers:
  default: {type: memory, extensions: [tenant_id]}
  n: {type: memory, extensions: [tenant_id, Any_Name, tenant_id, ""]}
  c: {type: memory, format: cloudevents, extensions: [tenant_id, request_id, data, tenantid, actor]}
`, []string{
			"3:27: brokers.default.extensions: does nothing for the internal broker, which gets every event in its internal form: remove it",
			`4:55: brokers.n.extensions[2]: "tenant_id" is listed twice: list it once`,
			"4:66: brokers.n.extensions[3]: is empty: give it a value, or remove it",
			`5:66: brokers.c.extensions[1]: envelope: check extensions for CloudEvents: extension "request_id" cannot be the name of an attribute: rename the extension to 1 to 20 characters a-z and 0-9 not taken by CloudEvents, make its value a string, a number or a boolean, or set format: native for the broker`,
			`5:78: brokers.c.extensions[2]: envelope: check extensions for CloudEvents: extension "data" has the name of another attribute: rename the extension to 1 to 20 characters a-z and 0-9 not taken by CloudEvents, make its value a string, a number or a boolean, or set format: native for the broker`,
			`5:84: brokers.c.extensions[3]: envelope: check extensions for CloudEvents: extensions "tenant_id" and "tenantid" become one attribute: rename the extension to 1 to 20 characters a-z and 0-9 not taken by CloudEvents, make its value a string, a number or a boolean, or set format: native for the broker`,
		}},
		{"what else leaves", `outbox: {external_brokers: [n, c]}
brokers:
  default: {type: memory, include: [fqn]}
  n: {type: memory, include: [fqn, nulls, origin_stream, idempotency_key, tracestate, nulls, fqdn, "", x]}
  c: {type: memory, format: cloudevents, include: [tracestate, fqn, nulls]}
`, []string{
			"3:27: brokers.default.include: does nothing for the internal broker, which gets every event in its internal form: remove it",
			`4:87: brokers.n.include[5]: "nulls" is listed twice: list it once`,
			`4:94: brokers.n.include[6]: "fqdn" is not known: did you mean "fqn"?`,
			"4:100: brokers.n.include[7]: is empty: give it a value, or remove it",
			`4:104: brokers.n.include[8]: "x" is not known: use fqn, origin_stream, idempotency_key, nulls or tracestate`,
			`5:64: brokers.c.include[1]: "fqn" does not go together with format: cloudevents, which has no such attribute: remove it`,
			`5:69: brokers.c.include[2]: "nulls" does not go together with format: cloudevents, which has no such attribute: remove it`,
		}},
		{"an alias within itself", "brokers: {default: {type: strange, url: x, hosts: &x [*x]}}\n", []string{
			"1:55: brokers.default.hosts[0]: must be a single value, but is a list",
		}},
	})
}

func TestProblemsInCleanup(t *testing.T) {
	t.Parallel()
	checkBadInputs(t, []badInput{{"all at once", `cleanup:
  interval: 0s
  published_retention: 7
  abandoned_retention: 30 days
  batch_size: 0
  max_lag: -1s
  retention: 5d
` + brokersSection, []string{
		`2:13: cleanup.interval: is "0s": use a positive duration`,
		`3:24: cleanup.published_retention: "7" has no unit: use a unit as in 5s`,
		`4:24: cleanup.abandoned_retention: "30 days" is not a duration: write one such as 500ms, 30s, 5m, 24h or 30d`,
		`5:15: cleanup.batch_size: is "0": use at least 1`,
		`6:12: cleanup.max_lag: is "-1s": use a positive duration`,
		`7:3: cleanup: unknown key "retention": use interval, published_retention, abandoned_retention, batch_size or max_lag`,
	}}})
}
