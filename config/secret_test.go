package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/config"
)

const hunter = "hunter2"

// everywhere prints a value in all the ways in which it could end up in a log.
func everywhere(t *testing.T, value any) []string {
	t.Helper()
	var printed []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%c", "%10.3s"} {
		printed = append(printed, fmt.Sprintf(verb, value))
	}
	asJSON, err := json.Marshal(value)
	require.NoError(t, err)
	asYAML, err := yaml.Marshal(value)
	require.NoError(t, err)
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "value", value)
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "value", value)
	return append(printed, string(asJSON), string(asYAML), logged.String())
}

func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	secret := config.Secret(hunter)
	assert.Equal(t, hunter, secret.Reveal())
	assert.Equal(t, "[redacted]", secret.String())
	assert.Equal(t, "[redacted]", secret.GoString())

	cfg := parse(t, `
databases: {default: {driver: postgres, dsn: "postgres://u:hunter2@h"}}
brokers:
  default: {type: redis, url: "redis://u:hunter2@h"}
  other: {type: strange, url: "hunter2", tokens: [hunter2]}
  unknown: {type: unknown, password: hunter2}
`)
	assert.Equal(t, hunter, cfg.Brokers["other"].Settings.(*strangeSettings).URL.Reveal())

	hexed := fmt.Sprintf("%x", hunter)
	for _, value := range []any{
		secret, &secret, []config.Secret{secret}, map[string]config.Secret{"x": secret}, cfg, *cfg, cfg.Databases["default"], cfg.Brokers, cfg.Brokers["other"].Settings, *cfg.Brokers["other"].Settings.(*strangeSettings),
	} {
		for _, printed := range everywhere(t, value) {
			assert.NotContains(t, printed, hunter, "%T", value)
			assert.NotContains(t, printed, hexed, "%T", value)
		}
	}
}

// Whatever is wrong with the value of a variable, or with a connection string, the message quotes
// neither.
func TestErrorsKeepSecrets(t *testing.T) {
	t.Parallel()
	for _, value := range []string{hunter, "postgres://u:hunter2@h", "a\nhunter2: {", "hunter2\x00", "${hunter2}", "hunter2 + hunter2"} {
		for _, source := range []string{
			"databases: {d: {driver: '${X}', dsn: '${X}'}}",
			"outbox: {table: '${X}', internal_broker: '${X}', external_brokers: ['${X}', '${X}', 'a${X}'], ordering: '${X}', on_abandon: '${X}'}",
			"outbox: {serialize_keys: '${X}', workers: '${X}', batch_size: '${X}', lease: '${X}', poll: {min: '${X}', max: '5${X}'}}",
			"outbox: {retry: {max_attempts: '${X}', base_delay: '${X}d', multiplier: '${X}', max_delay: '${X}', jitter: '${X}'}}",
			"brokers: {default: {type: '${X}'}, a: {type: redis, url: '${X}'}, b: {type: strange, region: \"${X}\\n\", acks: \"${X}\\0\"}}",
			"brokers: {a: {type: memory, url: '${X}', format: '${X}', source: '${X}', filter: ['[${X}']}}",
			"brokers: {a: {type: strange, url: '${X}', tokens: '${X}', retries: '${X}', ratio: '${X}', wait: '${X}', offset: '${X}'}, b: {type: strange, queue: {a: !x '${X}'}}}",
			"monitor: {listen: '${X}', metrics: '${X}', viewer_tokens: {a: 'x${X}', '${X}': y}, operator_tokens: {a: '${X}', b: '${X}'}}",
			"cleanup: {interval: '${X}', batch_size: '${X}'}\n${X}: 1",
		} {
			_, err := parsed([]byte(source), "f", env("X", value))
			require.Error(t, err)
			assert.NotContains(t, err.Error(), hunter)
		}
	}
	for _, source := range []string{
		"databases: {d: {driver: 'postgres://u:hunter2@h'}}",
		"databases: {d: {driver: 'host=h password=hunter2'}}",
		"databases: {'postgres://u:hunter2@h': {}}",
		"databases: {d: {dsn: [hunter2]}}",
		"databases: {d: {dsn: {hunter2@h: 1}}}",
		"databases: {d: {dsn: *hunter2}}",
		"databases: {d: {dsn: !hunter2 x}}",
		"databases:\n  d:\n    dsn: |hunter2\n      x",
		"databases:\n  d:\n    dsn: \"hunter2\n  x",
		"databases:\n  d:\n    dsn: postgres: hunter2",
		"databases:\n  d:\n    dsn\n    hunter2@h",
		"databases: {d: {dsn: \"hunter2\\x01\"}}",
		"databases: {d: {dsn: '${hunter2 x}'}}",
		"brokers: {default: {type: redis, url: hunter2}}",
		"brokers: {default: {type: redis, url: 'http://hunter2'}}",
		"brokers: {'u:hunter2@h': {type: memory}}\noutbox: {internal_broker: x}",
		"%YAML hunter2\n---\na: 1",
	} {
		_, err := parsed([]byte(source), "f", env())
		require.Error(t, err)
		assert.NotContains(t, err.Error(), hunter, source)
	}
}

// A value cannot become YAML: neither the variable's content nor its place decides what the
// document is.
func TestVariablesCannotAddYAML(t *testing.T) {
	t.Parallel()
	cfg := parse(t, minimal+"  extra: {type: redis, url: 'redis://h/?x=${X}'}\n", env("X", "h\", type: memory, # ' }\\ ~ *x &y !z"))
	assert.Equal(t, "redis", cfg.Brokers["extra"].Type)
	assert.Equal(t, "redis://h/?x=h\", type: memory, # ' }\\ ~ *x &y !z", redisURL(cfg, "extra"))
	assert.Len(t, cfg.Brokers, 2)
}
