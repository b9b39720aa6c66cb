package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout"
	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/monitor/api"
	"github.com/gorm-fanout/fanout/outbox"
)

// An outbox that is partitioned by day later on: what was published before and after is found, counted and
// replayed alike by whoever is on call.
func TestPartitioned(t *testing.T) {
	t.Parallel()
	s := newShop(t, outbox.Postgres, newPostgres(t))
	delivered := func(string) *outbox.LastError { return nil }
	s.write(1, "Ordering.OrderPlaced.v1", "order-1", "default", "partner")
	s.complete("default", delivered)

	file, err := os.ReadFile(s.config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.config, []byte(strings.Replace(string(file), "on_abandon: block", "on_abandon: block, partition: day", 1)), 0o600))
	code, _, stderr := s.run("status")
	assert.NotZero(t, code)
	assert.Contains(t, stderr, "fanout migrate", "it says what to do")
	assert.Contains(t, s.does("migrate", "--print"), "CREATE TABLE outbox_messages_history (")
	assert.Contains(t, s.does("migrate"), "main: applied 1001_history")
	assert.Contains(t, s.does("migrate"), "main: up to date")
	cfg, err := config.Load(s.config, config.WithUnsetVariables("brokers"))
	require.NoError(t, err)
	require.NoError(t, s.store.Close())
	s.store, err = fanout.OpenStore(t.Context(), cfg, "main")
	require.NoError(t, err)

	for n := 2; n <= 4; n++ {
		s.write(n, "Ordering.OrderPlaced.v1", "order-1", "default", "partner")
	}
	s.complete("default", delivered)
	var rows int
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox_messages WHERE target_broker = 'default'").Scan(&rows))
	require.Equal(t, 1, rows, "the others are in the history")

	var status map[string]api.Database[api.Broker]
	require.NoError(t, json.Unmarshal([]byte(s.does("status", "--json")), &status))
	assert.EqualValues(t, 4, status["main"].Brokers["default"].Counts[outbox.StatusPublished])
	for n := 1; n <= 4; n++ {
		assert.Contains(t, s.does("trace", messageID(n)), "published", n)
	}
	list := s.does("messages", "list", "--broker", "default", "--status", "published")
	assert.Equal(t, 4, strings.Count(list, "Ordering.OrderPlaced.v1"), list)
	found := s.does("trace", "order-1")
	assert.Equal(t, 8, strings.Count(found, "default")+strings.Count(found, "partner"), found)

	out := s.does("messages", "replay", "--broker", "default", "--id", messageID(1), "--id", messageID(3), "--yes")
	assert.Contains(t, out, "2")
	require.NoError(t, json.Unmarshal([]byte(s.does("status", "--json")), &status))
	assert.EqualValues(t, 2, status["main"].Brokers["default"].Counts[outbox.StatusPublished])
	assert.EqualValues(t, 2, status["main"].Brokers["default"].Counts[outbox.StatusPending])
	assert.Contains(t, s.does("purge"), "main")
}
