package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/config"
)

func TestErrorIsFoundAndHasItsParts(t *testing.T) {
	t.Parallel()
	_, err := parsed([]byte("outbox:\n  lease: 5"+brokersSection), "conf/fanout.yaml", env())
	var report *config.Error
	require.ErrorAs(t, err, &report)
	assert.Equal(t, []config.Problem{{
		File: "conf/fanout.yaml", Line: 2, Column: 10, Path: "outbox.lease", Message: `"5" has no unit: use a unit as in 5s`,
	}}, report.Problems)
	require.EqualError(t, err, `conf/fanout.yaml:2:10: outbox.lease: "5" has no unit: use a unit as in 5s`)
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	warnings := func(source string) []string {
		var lines []string
		for _, warning := range parse(t, source).Warnings {
			lines = append(lines, strings.TrimPrefix(warning.String(), "fanout.yaml:"))
		}
		return lines
	}
	assert.Equal(t, []string{
		"1:1: databases: no database is declared: the commands have none to open, and an application must pass its own",
		"1:1: outbox.external_brokers: there are no external brokers: published events go to the internal broker alone; say external_brokers: [] if that is meant",
		"3:9: outbox.poll.max: is 1h30m: a row of another process may wait that long",
		"5:11: outbox.workers: is 5: more than 4, the number of shards, bring nothing",
		"7:19: brokers.default.type: a memory broker keeps messages in one process and loses them with it: it is for tests",
		"8:3: brokers.idle: is neither the internal broker nor an external one: nothing is sent there",
		"8:16: brokers.idle.type: a memory broker keeps messages in one process and loses them with it: it is for tests",
		"8:33: brokers.idle.workers: is 6: more than 4, the number of shards, bring nothing",
	}, warnings("outbox:\n poll:\n   max: 90m\n\n workers: 5\nbrokers:\n  default: {type: memory}\n  idle: {type: memory, workers: 6}\n"))
	assert.Empty(t, warnings("databases: {x: {driver: sqlite}}\noutbox: {external_brokers: []}\nbrokers: {default: {type: redis, url: redis://x}}\n"))
}

func TestConnectionStrings(t *testing.T) {
	t.Parallel()
	source := "databases:\n  a: {driver: postgres, dsn: \"postgres://u:s3cr%et@h/db\"}\n  b: {driver: sqlite, dsn: \"50%.db\"}\n" +
		"outbox: {external_brokers: [x, y]}\nbrokers:\n  default: {type: redis, url: \"redis://h:1/0\"}\n" +
		"  x: {type: redis, url: \"redis://h:1/0\"}\n  y: {type: redis, url: \"redis://:s3cr%et@h:1/0\"}\n"
	_, err := parsed([]byte(source), "fanout.yaml")
	require.ErrorContains(t, err, "fanout.yaml:2:30: databases.a.dsn: cannot be read as a URL")
	require.ErrorContains(t, err, "fanout.yaml:8:25: brokers.y.url: cannot be read as a URL")
	assert.NotContains(t, err.Error(), "s3cr")
	assert.NotContains(t, err.Error(), "databases.b")

	apart := strings.Replace(strings.ReplaceAll(source, "s3cr%et@h:1/0", "s3@h:1/1"), "s3cr%et", "s3", 1)
	apart = strings.Replace(apart, `x: {type: redis,`, `x: {type: redis, destination: "partner.{stream}",`, 1)
	_, err = parsed([]byte(apart), "fanout.yaml")
	require.NoError(t, err, "other streams on the same server")
}
