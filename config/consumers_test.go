package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/outbox"
)

func TestConsumers(t *testing.T) {
	t.Parallel()
	const others = "databases: {default: {driver: sqlite}}\nbrokers: {default: {type: memory}}\n"
	cfg := parse(t, others+`consumers: {billing: {driver: postgres, dsn: "postgres://u:secret@h/billing"}, Mail-2: {driver: sqlite, dsn: mail.db, table: app.inbox, broker: default}}`)
	require.Equal(t, map[string]config.Consumer{
		"billing": {Driver: outbox.Postgres, DSN: "postgres://u:secret@h/billing"},
		"Mail-2":  {Driver: outbox.SQLite, DSN: "mail.db", Table: "app.inbox", Broker: "default"},
	}, cfg.Consumers)
	require.NoError(t, cfg.Validate())
	require.Empty(t, parse(t, others).Consumers)

	for source, want := range map[string]string{
		"consumers: {x: {dsn: y}}":                                              "3:13: consumers.x: driver is missing: use postgres, sqlserver, mysql or sqlite",
		"consumers: {x: {driver: sqlite}}":                                      "3:13: consumers.x: dsn is missing: use the connection string",
		"consumers: {x: {driver: sqlite, dsn: y, broker: defalt}}":              `3:49: consumers.x.broker: no messages are delivered to a broker "defalt": did you mean "default"?`,
		`consumers: {"a b": {driver: sqlite, dsn: y}}`:                          "consumers: name ",
		"consumers: {x: {driver: sqlite, dsn: y, table: 'a b'}}":                `consumers.x.table: "a b" is no table name`,
		"consumers: {x: {driver: sqlite, dsn: y, notify: true}}":                `3:41: consumers.x: unknown key "notify": use driver, dsn, table or broker`,
		"consumers: {x: {driver: postgres, dsn: 'postgres://a:b@%'}}":           "consumers.x.dsn: cannot be read as a URL",
		"consumers: {x: {driver: sqlite, dsn: y}, X: {driver: sqlite, dsn: y}}": `consumers.X: differs from "x" in line 3 only in capitals`,
	} {
		_, err := parsed([]byte(others+source), "f", env())
		require.ErrorContains(t, err, want, source)
	}

	cfg.Consumers = map[string]config.Consumer{"a b": {Driver: "oracle", Table: "a b", Broker: "x"}}
	err := cfg.Validate()
	for _, want := range []string{
		`consumers: name "a b"`, `consumers.a b.driver: is "oracle"`, "consumers.a b: dsn is missing", "consumers.a b.table: ", `consumers.a b.broker: no messages are delivered to a broker "x"`,
	} {
		require.ErrorContains(t, err, want)
	}
}
