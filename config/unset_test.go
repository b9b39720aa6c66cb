package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/brokers/redisstreams"
	"github.com/gorm-fanout/fanout/config"
)

// A command that only reads the tables needs no credentials of brokers.
const unsetBrokers = `
databases: {default: {driver: sqlite, dsn: "a.db"}}
outbox: {external_brokers: [partner, audit, other]}
brokers:
  default: {type: redis, url: "${REDIS_URL}"}
  partner: {type: redis, url: "redis://${USER}:${PASSWORD}@h:6379/0", workers: "${WORKERS}", filter: ["${FILTER}"]}
  audit: {type: redis, url: "redis://h:6379/1", destination: "${A}.{stream}", rate: "${RATE:-5}"}
  other: {type: redis, url: "redis://h:6379/1", destination: "${B}.{stream}"}
`

func TestUnsetVariables(t *testing.T) {
	t.Parallel()
	cfg := parse(t, unsetBrokers, config.WithUnsetVariables("brokers"))
	assert.Equal(t, []string{"default", "partner", "audit", "other"}, cfg.BrokerNames())
	assert.Empty(t, redisURL(cfg, "default"))
	assert.Empty(t, redisURL(cfg, "partner"))
	assert.Equal(t, "redis://h:6379/1", redisURL(cfg, "audit"), "what can be read is read")
	assert.InDelta(t, 5, cfg.Brokers["audit"].Rate, 0, "defaults count")

	assert.Len(t, problemsIn(t, unsetBrokers), 7, "a relay needs all of them")
	assert.Len(t, problemsIn(t, unsetBrokers, config.WithUnsetVariables("databases")), 7)
}

func TestUnsetVariablesKeepOtherProblems(t *testing.T) {
	t.Parallel()
	source := strings.NewReplacer("a.db", "${DSN}", "${WORKERS}", "${WORK", "${FILTER}", "${FILTER}${1}", "audit: {", "audit: {urll: x, ").Replace(unsetBrokers)
	assert.Equal(t, []string{
		`2:44: databases.default.dsn: environment variable DSN is not set: set it, or write ${DSN:-default}`,
		`6:80: brokers.partner.workers: has a "${" without "}": write ${NAME}, or $$ for a plain $`,
		`6:99: brokers.partner.filter[0]: environment variable FILTER is not set: set it, or write ${FILTER:-default}`,
		`6:99: brokers.partner.filter[0]: has a ${...} that names no environment variable: write ${NAME} or ${NAME:-default}, or $$ for a plain $`,
		`7:11: brokers.audit: unknown key "urll": did you mean "url"?`,
	}, problemsIn(t, source, config.WithUnsetVariables("brokers")))
}

func redisURL(cfg *config.Config, broker string) string {
	return cfg.Brokers[broker].Settings.(*redisstreams.Settings).URL.Reveal()
}
