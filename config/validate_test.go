package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers/adapter"
	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

// A configuration made in Go is checked as a file is, by the names that a file has.
func TestValidate(t *testing.T) {
	t.Parallel()
	below := 5
	cfg := &config.Config{
		Databases: map[string]config.Database{"main": {Driver: "oracle"}, "my db": {Driver: outbox.SQLite}},
		Outbox:    config.Outbox{ExternalBrokers: []string{"a", "defalt", "a", "default"}},
		Brokers: map[string]config.Broker{
			"default": {Settings: &redisstreams.Settings{URL: "http://:hush@h", MaxLen: 5, MaxAge: time.Hour}},
			"a": {
				Settings:       &redisstreams.Settings{Replicas: 1, ReplicaTimeout: time.Minute, BackfillBelow: &below, URLs: []config.Secret{"redis://h"}},
				PublishTimeout: 10 * time.Second,
			},
			"b": {Settings: &webhook.Settings{URL: "https://h", TLS: &adapter.TLS{CertFile: "x"}}},
			"c": {Type: "kafka"},
			"d": {Settings: &redisstreams.Settings{URL: "redis://h:6379/0"}},
			"e": {Settings: &redisstreams.Settings{URL: "rediss://h"}, Workers: -1},
		},
	}
	err := cfg.Validate()
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hush")
	assert.Equal(t, []string{
		`databases.main.driver: is "oracle": use postgres, sqlserver, mysql or sqlite`,
		"databases: name \"my db\": use letters, digits, _ and -, at most 63",
		`outbox.external_brokers[1]: brokers has no entry "defalt": did you mean "default"?`,
		`outbox.external_brokers[2]: duplicate external broker "a"`,
		`outbox.external_brokers[3]: internal broker "default" is also listed as external: its rows would collide; remove it here`,
	}, strings.Split(err.Error(), "\n")[:5])
	for _, want := range []string{
		"\nbrokers.a.urls: needs master, the name by which Sentinels know the primary, or cluster: true\n",
		"\nbrokers.a.replicas.timeout: is 1m0s, but must be below publish_timeout (10s): a publish waits for the replicas\n",
		"\nbrokers.a.backfill: is for the internal broker alone",
		"\nbrokers.b: secrets is missing: use [whsec_...]\n",
		"\nbrokers.b.tls: cert_file and key_file go together",
		"\nbrokers.d: is the same place as broker \"a\": both would write to the same streams",
		"\nbrokers.default.url: must begin with redis://, rediss:// or unix://\n",
		"\nbrokers.default.max_age: does not go with max_len",
		"\nbrokers.e: ",
	} {
		assert.Contains(t, err.Error(), want)
	}
	require.EqualError(t, new(config.Config).Validate(), `outbox.internal_broker: brokers has no entry "default"`)
	require.NoError(t, (&config.Config{Brokers: map[string]config.Broker{"default": {Settings: &redisstreams.Settings{URL: "redis://h"}}}}).Validate())
}
