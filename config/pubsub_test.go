package config_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPubSubSettings(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `outbox: {external_brokers: [a]}
brokers:
  default: {type: pubsub, project: acme, compression: 240}
  a: {type: pubsub, project: else, compression: "${BYTES}"}
`, env("BYTES", "1"))
	assert.Equal(t, 240, cfg.Brokers["default"].Compression)
	assert.Equal(t, 1, cfg.Brokers["a"].Compression)
	assert.Zero(t, parse(t, "brokers: {default: {type: pubsub, project: acme}}\n").Brokers["default"].Compression)
}

func TestProblemsInPubSubSettings(t *testing.T) {
	t.Parallel()
	checkBadInputs(t, []badInput{
		{"wrong values", `outbox: {external_brokers: [a, b]}
brokers:
  default: {type: pubsub, project: acme, compression: 0}
  a: {type: pubsub, project: else, compression: gzip}
  b: {type: redis, url: redis://x, compression: 240}
`, []string{
			`3:55: brokers.default.compression: is "0": use at least 1`,
			"4:49: brokers.a.compression: must be a whole number in plain digits, without quotes",
			"5:36: brokers.b.compression: does nothing for a broker of type redis: remove it",
		}},
	})
}
