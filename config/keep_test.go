package config_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/cleanup"
)

// A broker can differ from the outbox in both directions; what it leaves out holds as there.
func TestKeep(t *testing.T) {
	t.Parallel()
	file := `
databases: {main: {driver: sqlite, dsn: "file:x"}}
outbox: {external_brokers: [a, b, c]%s}
brokers:
  default: {type: redis, url: redis://a}
  a: {type: redis, url: redis://a/1, keep: false}
  b: {type: redis, url: redis://a/2, keep: true}
  c: {type: redis, url: redis://a/3}
`
	for more, want := range map[string][]string{
		"": {"a"}, ", keep: true": {"a"}, ", keep: false": {"default", "a", "c"},
	} {
		cfg, err := parsed(fmt.Appendf(nil, file, more), "fanout.yaml")
		require.NoError(t, err, more)
		assert.Equal(t, want, cfg.NotKept(), more)
		assert.Equal(t, cleanup.DefaultPublishedRetention, cfg.Retention("a").Published, "for rows of before")
	}
	_, err := parsed(fmt.Appendf(nil, file, ", keep: 7d"), "fanout.yaml")
	require.ErrorContains(t, err, "outbox.keep: must be true or false: how long published rows are kept is cleanup.published_retention, or retention.published of a broker")
	_, err = parsed(fmt.Appendf(nil, file, ", keep: maybe"), "fanout.yaml")
	require.ErrorContains(t, err, "outbox.keep: must be true or false")
	require.NotContains(t, err.Error(), "retention")
	_, err = parsed(bytes.Replace(fmt.Appendf(nil, file, ""), []byte("keep: true"), []byte("keep: 24h"), 1), "fanout.yaml")
	require.ErrorContains(t, err, "brokers.b.keep: must be true or false: how long")
	for text, warned := range map[string]bool{"keep: false, retention: {published: 2h}": true, "retention: {published: 2h}": false, "keep: false, retention: {abandoned: 2h}": false} {
		cfg, err := parsed(bytes.Replace(fmt.Appendf(nil, file, ""), []byte("keep: true"), []byte(text), 1), "fanout.yaml")
		require.NoError(t, err)
		assert.Equal(t, warned, strings.Contains(fmt.Sprint(cfg.Warnings), "brokers.b.retention.published: is for rows of before: what is delivered is not kept (keep: false)"), "%s: %s", text, cfg.Warnings)
	}
}
