package config_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/memory"
	"github.com/gorm-fanout/fanout/brokers/rabbitmq"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/cleanup"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/envelope"
	"github.com/gorm-fanout/fanout/outbox"
)

// env is an environment with these variables and no others.
func env(pairs ...string) config.Option {
	return config.WithEnv(func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	})
}

// linked are the types of brokers of the root module, and one of a stranger's.
var linked = config.WithBrokerTypes(redisstreams.Type(), rabbitmq.Type(), webhook.Type(), memory.Type(), strange)

// strange is a type whose settings have a field of each kind.
var strange = adapter.Type{Name: "strange", New: func() adapter.Settings { return &strangeSettings{Retries: 3, Exact: true} }}

type strangeSettings struct {
	URL     adapter.Secret   `config:"url"`
	Secrets []adapter.Secret `config:"tokens"`
	Region  string           `config:"region"`
	Acks    string           `config:"acks,one=all|none"`
	Retries int              `config:"retries,max=9"`
	Offset  *int             `config:"offset,min=-5,max=5"`
	Ratio   float64          `config:"ratio"`
	Exact   bool             `config:"approximate,not"`
	Wait    time.Duration    `config:"wait,min=1s"`
	Hosts   []string         `config:"hosts"`
	Queue   struct {
		Name string `config:"name"`
	} `config:"queue"`
	Login *struct {
		User string `config:"user"`
	} `config:"login"`
	Count int    `config:"limits.count"`
	Go    func() `json:"-"              yaml:"-"`
}

func (s *strangeSettings) Check(section adapter.Section) {
	section.Require("url", "strange://host")
	if section.Has("queue") {
		section.Require("queue.name", "orders")
	}
}

func (s *strangeSettings) Open(context.Context, string) (brokers.Broker, error) {
	return memory.New(), nil
}

func parsed(source []byte, name string, opts ...config.Option) (*config.Config, error) {
	return config.Parse(source, name, append([]config.Option{linked}, opts...)...)
}

func parse(t *testing.T, source string, opts ...config.Option) *config.Config {
	t.Helper()
	cfg, err := parsed([]byte(source), "fanout.yaml", append([]config.Option{env()}, opts...)...)
	require.NoError(t, err)
	return cfg
}

// minimal is the smallest useful configuration.
const minimal = `
databases: {default: {driver: sqlite}}
brokers:
  default: {type: redis, url: "redis://localhost:6379"}
`

func TestMinimalHasEveryDefault(t *testing.T) {
	t.Parallel()
	cfg := parse(t, minimal)

	assert.Equal(t, map[string]config.Database{"default": {Driver: outbox.SQLite}}, cfg.Databases)
	assert.Equal(t, outbox.Routing{}.WithDefaults(), cfg.Routing())
	assert.Equal(t, outbox.Policy{}.WithDefaults(), cfg.Policy("default"))
	assert.Equal(t, []string{"default"}, cfg.BrokerNames())
	assert.Equal(t, config.Cleanup{
		Interval: time.Hour, PublishedRetention: 168 * time.Hour, AbandonedRetention: 720 * time.Hour, BatchSize: 5000, MaxLag: 10 * time.Second,
	}, cfg.Cleanup)
	assert.Equal(t, cleanup.Retention{Published: 168 * time.Hour, Abandoned: 720 * time.Hour}, cfg.Retention("default"))
}

// Writers tell other processes, and relays listen, wherever the database can, unless the file says
// otherwise.
func TestNotify(t *testing.T) {
	t.Parallel()
	for databases, want := range map[string][2]bool{ // notify of the database x, and whether writers notify
		"{x: {driver: postgres}}":                                                  {true, true},
		"{x: {driver: postgres, notify: true}}":                                    {true, true},
		"{x: {driver: postgres, notify: false}}":                                   {false, false},
		"{x: {driver: sqlite}}":                                                    {false, false},
		"{x: {driver: postgres, notify: false}, y: {driver: postgres}}":            {false, true},
		"{x: {driver: postgres, notify: false}, y: {driver: sqlserver, dsn: 'a'}}": {false, false},
	} {
		cfg := parse(t, "databases: "+databases+"\nbrokers: {default: {type: memory}}")
		assert.Equal(t, want, [2]bool{cfg.Databases["x"].Notify, cfg.Routing().Notify}, databases)
	}
	for _, driver := range []string{"sqlite", "sqlserver"} {
		_, err := parsed([]byte("databases:\n  x:\n    driver: "+driver+"\n    notify: true\nbrokers: {default: {type: memory}}"), "f", env())
		require.ErrorContains(t, err, "f:4:5: databases.x.notify: does nothing for driver "+driver)
	}
	_, err := parsed([]byte("databases: {x: {driver: postgres, notify: often}}\nbrokers: {default: {type: memory}}"), "f", env())
	require.ErrorContains(t, err, "databases.x.notify: must be true or false")
}

func TestOnAbandon(t *testing.T) {
	t.Parallel()
	for choice, defers := range map[string]bool{"continue": false, "block": true} {
		cfg := parse(t, `
databases: {default: {driver: postgres}}
outbox: {on_abandon: `+choice+`}
brokers: {default: {type: memory}}`)
		assert.Equal(t, defers, cfg.Policy("default").BlockAbandoned)
	}
	for shared, want := range map[string][2]bool{"continue": {true, false}, "block": {true, true}} {
		cfg := parse(t, `
databases: {default: {driver: postgres}}
outbox: {on_abandon: `+shared+`, external_brokers: [goes_on, silent]}
brokers:
  default: {type: memory, on_abandon: block}
  goes_on: {type: memory, on_abandon: continue}
  silent: {type: memory}`)
		assert.Equal(t, want, [2]bool{cfg.Policy("default").BlockAbandoned, cfg.Policy("silent").BlockAbandoned}, shared)
		assert.False(t, cfg.Policy("goes_on").BlockAbandoned, shared)
	}
}

func TestRoutingFollowsTheFile(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
databases: {default: {driver: postgres}}
outbox: {table: app.events_out, internal_broker: main, external_brokers: [b, a], max_payload_bytes: 1000, serialize_keys: true}
brokers:
  a: {type: redis, url: redis://a, format: cloudevents, source: /acme, filter: ["Ordering.*", Billing.Paid.v1]}
  b: {type: redis, url: rediss://b}
  main: {type: redis, url: unix:///tmp/redis.sock}
`)
	assert.Equal(t, outbox.Routing{
		Table: "app.events_out", InternalBroker: "main", MaxPayloadBytes: 1000, SerializeKeys: true, Notify: true,
		External: []outbox.Route{
			{Broker: "b", Format: envelope.FormatNative},
			{Broker: "a", Format: envelope.FormatCloudEvents, Source: "/acme", Types: []string{"Ordering.*", "Billing.Paid.v1"}},
		},
	}, cfg.Routing())
	require.NoError(t, cfg.Routing().Validate())
	assert.Equal(t, []string{"main", "b", "a"}, cfg.BrokerNames())
	assert.Empty(t, cfg.Warnings)
}

const overriding = `
databases: {default: {driver: sqlite}}
outbox:
  external_brokers: [other, plain]
  ordering: none
  workers: 3
  batch_size: 100
  batch_bytes: 5000000
  lease: 1m
  publish_timeout: 20s
  shutdown_timeout: 3s
  poll: {min: 50ms, max: 2s}
  retry: {max_attempts: 7, base_delay: 2s, multiplier: 3, max_delay: 1m, jitter: 0}
brokers:
  default: {type: redis, url: redis://x, workers: 1, batch_size: 10, batch_bytes: 70000, publish_timeout: 5s, ordering: per_key,
            retry: {max_attempts: 2, base_delay: 1s, multiplier: 1.5, max_delay: 5s, jitter: 0.5},
            retention: {published: 1h, abandoned: 2d}}
  other: {type: redis, url: redis://y, retry: {max_delay: 30s}, retention: {abandoned: 1d12h}}
  plain: {type: redis, url: redis://z}
cleanup: {interval: 10m, published_retention: 2h, abandoned_retention: 3h, batch_size: 10, max_lag: 2m}
`

func TestPolicyAddsOverridesAndDefaults(t *testing.T) {
	t.Parallel()
	cfg := parse(t, overriding)

	shared := outbox.Policy{
		Workers: 3, BatchSize: 100, BatchBytes: 5_000_000, MaxPayloadBytes: 16 << 20, Lease: time.Minute, PublishTimeout: 20 * time.Second, Unordered: true,
		Retry:           outbox.Retry{MaxAttempts: 7, BaseDelay: 2 * time.Second, Multiplier: 3, MaxDelay: time.Minute, Jitter: -1},
		ShutdownTimeout: 3 * time.Second, PollMin: 50 * time.Millisecond, PollMax: 2 * time.Second,
		Breaker: outbox.Breaker{TripAfter: 3, MinDelay: 250 * time.Millisecond, MaxDelay: 15 * time.Second},
	}
	assert.Equal(t, shared, cfg.Policy("plain"))
	assert.Equal(t, shared, cfg.Policy("not declared"))

	own := shared
	own.Workers, own.BatchSize, own.BatchBytes, own.PublishTimeout, own.Unordered = 1, 10, 70_000, 5*time.Second, false
	own.Retry = outbox.Retry{MaxAttempts: 2, BaseDelay: time.Second, Multiplier: 1.5, MaxDelay: 5 * time.Second, Jitter: 0.5}
	assert.Equal(t, own, cfg.Policy("default"))

	other := shared
	other.Retry.MaxDelay = 30 * time.Second
	assert.Equal(t, other, cfg.Policy("other"))
}

func TestRetentionAddsOverrides(t *testing.T) {
	t.Parallel()
	cfg := parse(t, overriding)
	assert.Equal(t, cleanup.Retention{Published: time.Hour, Abandoned: 48 * time.Hour}, cfg.Retention("default"))
	assert.Equal(t, cleanup.Retention{Published: 2 * time.Hour, Abandoned: 36 * time.Hour}, cfg.Retention("other"))
	assert.Equal(t, cleanup.Retention{Published: 2 * time.Hour, Abandoned: 3 * time.Hour}, cfg.Retention("removed"))
	assert.Equal(t, config.Cleanup{
		Interval: 10 * time.Minute, PublishedRetention: 2 * time.Hour, AbandonedRetention: 3 * time.Hour, BatchSize: 10, MaxLag: 2 * time.Minute,
	}, cfg.Cleanup)
}

// "jitter: 0" is no jitter, and stays so when the processor fills in the defaults once more.
func TestNoJitterSurvivesTheDefaults(t *testing.T) {
	t.Parallel()
	retry := parse(t, overriding).Policy("plain").WithDefaults().Retry
	assert.Equal(t, 6*time.Second, retry.Delay(2))
}

// A relay reads whatever payload a writer, or a batch, may have.
func TestPayloadsOfWritersAreRead(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]int{
		"{}": 16 << 20, "{max_payload_bytes: 1000}": 16 << 20, "{max_payload_bytes: 50000000}": 50_000_000, "{batch_bytes: 40000000}": 40_000_000,
	} {
		cfg := parse(t, "databases: {default: {driver: sqlite}}\noutbox: "+settings+"\nbrokers: {default: {type: redis, url: redis://x}}")
		assert.Equal(t, want, cfg.Policy("default").MaxPayloadBytes, settings)
	}
}

// A default that depends on another setting follows the broker's value of it.
func TestDefaultsFollowOverrides(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
databases: {default: {driver: sqlite}}
outbox: {lease: 10s, poll: {min: 5s}}
brokers: {default: {type: redis, url: redis://x, retry: {base_delay: 3h}}}
`)
	policy := cfg.Policy("default")
	assert.Equal(t, 5*time.Second, policy.PublishTimeout)
	assert.Equal(t, 5*time.Second, policy.PollMax)
	assert.Equal(t, 3*time.Hour, policy.Retry.MaxDelay)
	require.NoError(t, policy.Validate())
}

func TestSettingsOfAStranger(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
databases: {default: {driver: sqlite}}
outbox: {external_brokers: [b]}
brokers:
  default:
    type: strange
    url: strange://${USER}@host
    tokens: [one, "${USER}"]
    region: "${USER}-1"
    acks: all
    retries: 5
    offset: -5
    ratio: 0.5
    approximate: true
    wait: 1m
    hosts: [a, b]
    queue: {name: q}
    login: {}
    limits: {count: 2}
  b: {type: strange, url: x}
`, env("USER", "me"))
	minus5 := -5
	want := &strangeSettings{
		URL: "strange://me@host", Secrets: []adapter.Secret{"one", "me"}, Region: "me-1", Acks: "all", Retries: 5, Offset: &minus5, Ratio: 0.5,
		Wait: time.Minute, Hosts: []string{"a", "b"}, Count: 2,
	}
	want.Queue.Name = "q"
	want.Login = &struct {
		User string `config:"user"`
	}{}
	assert.Equal(t, want, cfg.Brokers["default"].Settings)
	assert.Equal(t, &strangeSettings{URL: "x", Retries: 3, Exact: true}, cfg.Brokers["b"].Settings, "what is not there is as it was")
	checkBadInputs(t, []badInput{{"wrong values", `outbox: {external_brokers: [b]}
brokers:
  default: {type: strange, tokens: x, region: 5, acks: some, retries: 10, offset: 6, ratio: -1, approximate: 1, wait: 1ms, hosts: [5], queue: {}, login: x, limits: {counts: 1}}
  b: {type: redis, url: redis://x, region: x}
`, []string{
		"3:3: brokers.default: url is missing: use strange://host",
		"3:36: brokers.default.tokens: must be a list, as in [a, b], but is a text",
		"3:47: brokers.default.region: is a number: put it in quotes to use it as text",
		`3:56: brokers.default.acks: "some" is not known: use all or none`,
		`3:71: brokers.default.retries: is "10": use 1 to 9`,
		`3:83: brokers.default.offset: is "6": use -5 to 5`,
		`3:93: brokers.default.ratio: is "-1": use at least 0`,
		"3:110: brokers.default.approximate: must be true or false",
		`3:119: brokers.default.wait: is "1ms": use at least 1s`,
		"3:132: brokers.default.hosts[0]: is a number: put it in quotes to use it as text",
		"3:136: brokers.default.queue: name is missing: use orders",
		"3:154: brokers.default.login: must be a mapping of keys, but is a text",
		`3:166: brokers.default.limits: unknown key "counts": did you mean "count"?`,
		"4:36: brokers.b.region: does nothing for a broker of type redis: remove it",
	}}})
}

// A program that links no adapter checks what all brokers have, and Link the rest.
func TestLink(t *testing.T) {
	t.Parallel()
	source := []byte("outbox: {external_brokers: [x, y]}\nbrokers:\n  default: {type: redis, url: redis://h}\n" +
		"  x: {type: strange, destination: x, urll: 5}\n  y: {type: other, retry: {max_attempts: 2}, anything: {at: all}}\n")
	cfg, err := config.Parse(source, "f")
	require.NoError(t, err)
	assert.Empty(t, cfg.Brokers["default"].Settings)
	assert.Equal(t, 2, cfg.Policy("y").Retry.MaxAttempts)
	_, err = cfg.Link(redisstreams.Type(), strange)
	require.EqualError(t, err, "f:4:3: brokers.x: url is missing: use strange://host\nf:4:38: brokers.x: unknown key \"urll\": did you mean \"url\"?\n"+
		"f:5:13: brokers.y.type: \"other\" is not linked by this program, so the settings of the connection are not checked; linked are redis or strange")
	linked, err := cfg.Link(redisstreams.Type())
	require.NoError(t, err)
	assert.Equal(t, &redisstreams.Settings{URL: "redis://h"}, linked.Brokers["default"].Settings)
	assert.Nil(t, cfg.Brokers["default"].Settings, "the one that was loaded is as it was")

	cfg, err = config.Parse(source, "f", config.WithBrokerTypes(redisstreams.Type()))
	require.NoError(t, err)
	assert.Equal(t, "f:4:13: brokers.x.type: \"strange\" is not linked by this program, so the settings of the connection are not checked; linked are redis", cfg.Warnings[1].String())
	_, err = config.Parse([]byte("brokers: {default: {type: rediss}}\n"), "f", config.WithBrokerTypes(redisstreams.Type()))
	require.EqualError(t, err, `f:1:27: brokers.default.type: "rediss" is not known: did you mean "redis"?`)
	_, err = config.Parse([]byte("brokers: {default: {type: 'mqtt://u:s3cret@h'}}\n"), "f")
	require.EqualError(t, err, "f:1:27: brokers.default.type: (not shown: it may be a secret) is not known")
}

// What an adapter has done wrong is said, and does not panic.
func TestWrongAdapters(t *testing.T) {
	t.Parallel()
	for says, kind := range map[string]adapter.Type{
		"but returns <nil>": {Name: "x"},
		"New must return a pointer to a struct, but returns": {Name: "x", New: func() adapter.Settings { return byValue{} }},
		`field Kind has the unknown word "most" in its tag`:  {Name: "x", New: func() adapter.Settings { return new(odd) }},
		"field Map is of type map[string]string":             {Name: "x", New: func() adapter.Settings { return new(odd) }},
		"field Bound has no number behind min or max":        {Name: "x", New: func() adapter.Settings { return new(odd) }},
		"field Spaced has no key in its tag":                 {Name: "x", New: func() adapter.Settings { return new(odd) }},
	} {
		_, err := config.Parse([]byte("brokers: {default: {type: x, a: 1, b: {c: d}, e: 1}}\n"), "f", config.WithBrokerTypes(kind))
		require.ErrorContains(t, err, says)
	}
}

type byValue struct{ strangeSettings }

func (byValue) Check(adapter.Section)                                {}
func (byValue) Open(context.Context, string) (brokers.Broker, error) { return memory.New(), nil }

type odd struct {
	Kind   string            `config:"a,most=5"`
	Map    map[string]string `config:"b"`
	Bound  int               `config:"e,max=x"`
	Spaced string            `config:"a b"`
}

func (*odd) Check(adapter.Section)                                {}
func (*odd) Open(context.Context, string) (brokers.Broker, error) { return memory.New(), nil }

func TestYAMLThatIsFine(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"byte order mark":    "\ufeff" + minimal[1:],
		"windows lines":      "databases:\r\n  default:\r\n    driver: sqlite\r\nbrokers:\r\n  default:\r\n    type: memory\r\n",
		"start and end mark": "# ours\n---\n" + minimal + "...\n",
		"version":            "%YAML 1.2\n---\n" + minimal,
		"commented sections": minimal + "outbox:\n  # lease: 5m\ncleanup:\n",
		"anchors":            "databases: {a: &d {driver: sqlite}, b: *d}\nbrokers: {default: {type: &t memory, retry: &r {max_delay: 2h}}}\noutbox: {retry: *r}\n",
		"quoted keys":        "\"databases\": {'default': {driver: 'sqlite'}}\nbrokers: {default: {type: memory}}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := parse(t, source)
			assert.Contains(t, cfg.BrokerNames(), "default")
			for _, database := range cfg.Databases {
				assert.Equal(t, outbox.SQLite, database.Driver)
			}
		})
	}
}

func TestLoadReadsAFile(t *testing.T) {
	t.Setenv("FANOUT_CONFIG_TEST_URL", "redis://from-the-environment")
	path := filepath.Join(t.TempDir(), "fanout.yaml")
	source := "databases: {default: {driver: sqlite, dsn: file.db}}\nbrokers:\n  default: {type: redis, url: \"${FANOUT_CONFIG_TEST_URL}\"}\n"
	require.NoError(t, os.WriteFile(path, []byte(source), 0o600))
	cfg, err := config.Load(path, linked)
	require.NoError(t, err)
	assert.Equal(t, "redis://from-the-environment", cfg.Brokers["default"].Settings.(*redisstreams.Settings).URL.Reveal())
	assert.Equal(t, "file.db", cfg.Databases["default"].DSN.Reveal())

	require.NoError(t, os.WriteFile(path, []byte("monitor: {listen: x}\n"), 0o600))
	_, err = config.Load(path, linked)
	var problems *config.Error
	require.ErrorAs(t, err, &problems)
	assert.Equal(t, path, problems.Problems[0].File)
	assert.Contains(t, err.Error(), path+":1:19: monitor.listen: \"x\" is no address")
}

func TestLoadSaysWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	_, err := config.Load(filepath.Join(t.TempDir(), "absent.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "absent.yaml")
	assert.NotErrorAs(t, err, new(*config.Error))
}

// Lines are counted right behind everything that spans several of them.
func TestLinesBehindMultilineValues(t *testing.T) {
	t.Parallel()
	for i, value := range []string{
		"\"x\n  y\n\n  z\"\n", "'x\n\n  y'\n", "x\n  y\n", "|\n  x\n\n  y\n\n", ">-\n  x\n  y\n", "# c\n  b: 1 # d\n", "\n  - x # c\n  # d\n  - y\n",
		"[a,\n  b, # d\n  c\n ]\n", "{b: c,\n d: e}\n", "\n\n  x: 1\n", "|\n\n  x\n # c\n", "\"\\\n  x\"\n", "\n- a\n- b: c\n  d: e\n",
	} {
		for _, newline := range []string{"\n", "\r\n"} {
			source := strings.ReplaceAll("other: "+value+"last: 1\n", "\n", newline)
			_, err := parsed([]byte(source), "f", env())
			require.ErrorContains(t, err, fmt.Sprintf("f:%d:1: unknown key \"last\"", strings.Count(source, "\n")), "%d: %q", i, source)
		}
	}
}
